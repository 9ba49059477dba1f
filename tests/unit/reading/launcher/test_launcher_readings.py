"""The readings of the machine as a table, whatever stands in the file."""

import json
from pathlib import Path

import pandas as pd
import pytest

from lotus.reading.launcher import launcher_readings, launcher_record

ROW = [5, 4, 3, 2, 1, 0, 7, 8, 9, 10, 11, 12, 13, 14, 15]


def readings(folder: Path) -> pd.DataFrame:
    return launcher_readings.table(launcher_record.read(folder), launcher_readings.MACHINE)


def table(folder: Path, content: str) -> list[list[int]]:
    (folder / launcher_record.NAME).write_text(content)
    rows: list[list[int]] = readings(folder).to_numpy().tolist()
    return rows


def test_readings_are_rows_in_the_order_of_time(tmp_path: Path) -> None:
    later = [9, *ROW[1:]]
    assert table(tmp_path, json.dumps({"machine": [later, ROW]})) == [ROW, later]


def test_readings_of_an_older_lotus_lack_what_it_did_not_read(tmp_path: Path) -> None:
    for known in (6, 8, 9, 14):
        expected = [*ROW[:known], *[-1] * (len(ROW) - known)]
        assert table(tmp_path, json.dumps({"machine": [ROW[:known]]})) == [expected]


@pytest.mark.parametrize(
    "rows", [5, [5], [[1, 2]], [[*ROW[:5], "x"]], [[*ROW[:5], True]], [[*ROW[:5], 1 << 70]], [None]]
)
def test_what_is_no_reading_is_left_out(tmp_path: Path, rows: object) -> None:
    assert table(tmp_path, json.dumps({"machine": rows})) == []


@pytest.mark.parametrize("content", ["", "[]", "{", '{"rows": []}'])
def test_a_run_without_readings_has_none(tmp_path: Path, content: str) -> None:
    assert table(tmp_path, content) == []


def test_a_run_without_the_file_has_none(tmp_path: Path) -> None:
    assert not len(readings(tmp_path))
