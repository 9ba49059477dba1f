"""blocking.json as a table, whatever stands in it."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lotus.reading.launcher import blocking_table, launcher_record

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


PLACE = {**ROW, "reason": "file", "place": "/data/a.bin", "file_system": "ext4"}


def read_places(folder: Path, rows: object) -> list[list[Any]]:
    (folder / launcher_record.NAME).write_text(json.dumps({"rows": [ROW], "places": rows}))
    table = blocking_table.places(launcher_record.read(folder), [process()])
    types = ["int64", "object", "object", "object", "object", "int64"]
    assert table.dtypes.astype(str).tolist() == types
    return table.to_numpy().tolist()


def test_places_have_the_names_of_operations(tmp_path: Path) -> None:
    peer = {**PLACE, "operation": -4, "reason": "socket", "place": "[::1]:80", "file_system": ""}
    assert read_places(tmp_path, [PLACE, peer]) == [
        [7, "Slow", "file", "/data/a.bin", "ext4", 5],
        [7, "(step)", "socket", "[::1]:80", "", 5],
    ]


@pytest.mark.parametrize(
    "row",
    [
        {**PLACE, "pid": 8},
        {**PLACE, "operation": 9},
        {**PLACE, "reason": "elsewhere"},
        {**PLACE, "place": 3},
        {**PLACE, "place": ""},
        {**PLACE, "place": "/" + "x" * 5000},
        {**PLACE, "looks": -1},
        {"place": "/data/"},
        ROW,
        "/data/",
    ],
)
def test_places_that_do_not_fit_are_left_out(tmp_path: Path, row: object) -> None:
    assert [each[3] for each in read_places(tmp_path, [row, PLACE])] == ["/data/a.bin"]


@pytest.mark.parametrize("rows", [None, 3, {"a": 1}, "/data/"])
def test_a_damaged_list_of_places_is_an_empty_table(tmp_path: Path, rows: object) -> None:
    assert read_places(tmp_path, rows) == []


def test_runs_without_places_are_read_as_before(tmp_path: Path) -> None:
    assert read(tmp_path, json.dumps({"rows": [ROW]}))[0] == [[7, 0, "Slow", "sleep", 5]]
    assert not len(blocking_table.places(launcher_record.read(tmp_path), [process()]))


def test_places_have_no_secrets_and_nothing_that_cannot_be_encoded(tmp_path: Path) -> None:
    rows = [{**PLACE, "place": "/data/token=hf_abcdefgh12345678/\udcff", "file_system": ["x"]}]
    ((*_, place, kind, _looks),) = read_places(tmp_path, rows)
    assert "hf_abc" not in place
    assert place.startswith("/data/token=")
    assert place.encode()
    assert kind == ""


def test_no_more_places_are_read_than_a_run_may_have(tmp_path: Path) -> None:
    most = blocking_table._MOST_PLACES
    assert len(read_places(tmp_path, [PLACE] * (most + 1))) == most


STANDING = {**ROW, "alike": 4, "place": "/data/lock", "since_ns": 10, "seen_ns": 30}


@pytest.mark.parametrize(
    "row",
    [
        {**STANDING, "alike": 6},
        {**STANDING, "alike": 0},
        {**STANDING, "since_ns": 30},
        {**STANDING, "since_ns": -5},
        {**STANDING, "seen_ns": 1 << 70},
        {**STANDING, "operation": 9},
        {**STANDING, "reason": None},
        ROW,
        "row",
    ],
)
def test_of_processes_that_stood_only_whole_rows_are_read(tmp_path: Path, row: object) -> None:
    (tmp_path / launcher_record.NAME).write_text(json.dumps({"standing": [row, STANDING]}))
    table = blocking_table.standing(launcher_record.read(tmp_path), [process()])
    assert table.to_numpy().tolist() == [[7, 0, "Slow", "sleep", 5, 4, "/data/lock", 10, 30]]
