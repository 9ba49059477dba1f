"""blocking.json as a table, whatever stands in it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lotus.reading import blocking_table, launcher_record

ROW = {"pid": 7, "worker": 0, "operation": 1, "reason": "sleep", "looks": 5}


def process() -> Any:
    return SimpleNamespace(pid=7, operations=lambda: [{"id": 1, "name": "Slow"}])


def read(folder: Path, content: str) -> tuple[list[list[Any]], str]:
    (folder / launcher_record.NAME).write_text(content)
    record = launcher_record.read(folder)
    table = blocking_table.table(record, [process()])
    assert table.dtypes.astype(str).tolist() == ["int64", "int64", "object", "object", "int64"]
    return table.to_numpy().tolist(), record.problem


def test_operations_have_their_names(tmp_path: Path) -> None:
    rows = [ROW, {**ROW, "operation": -1}, {**ROW, "operation": -2, "reason": "file"}]
    table, problem = read(tmp_path, json.dumps({"schema": 1, "problem": "", "rows": rows}))
    assert table == [
        [7, 0, "Slow", "sleep", 5],
        [7, 0, "", "sleep", 5],
        [7, 0, "collate", "file", 5],
    ]
    assert problem == ""


@pytest.mark.parametrize(
    "row",
    [
        {**ROW, "pid": 8},
        {**ROW, "operation": 9},
        {**ROW, "reason": "\x1b[31m"},
        {**ROW, "reason": ["sleep"]},
        {**ROW, "looks": 0},
        {**ROW, "looks": True},
        {**ROW, "looks": 1e300},
        {**ROW, "looks": 1 << 70},
        {"pid": 7},
        [],
    ],
)
def test_rows_that_do_not_fit_are_left_out(tmp_path: Path, row: object) -> None:
    assert read(tmp_path, json.dumps({"rows": [row, ROW]}))[0] == [[7, 0, "Slow", "sleep", 5]]


@pytest.mark.parametrize("content", ["", "[]", "{", '{"rows": 3}', "null", '{"rows": {"a": 1}}'])
def test_a_damaged_file_is_an_empty_table(tmp_path: Path, content: str) -> None:
    assert read(tmp_path, content)[0] == []


def test_not_every_run_has_the_file(tmp_path: Path) -> None:
    record = launcher_record.read(tmp_path)
    assert not len(blocking_table.table(record, [process()]))
    assert record.problem == ""


def test_damage_is_said(tmp_path: Path) -> None:
    assert "damaged" in read(tmp_path, "{")[1]
    assert read(tmp_path, '{"problem": "refused", "rows": []}')[1] == "refused"
