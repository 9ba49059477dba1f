"""The library of costs: files that are written whole, bounded, and left out if damaged."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from lotus.advise.costs import cost_library
from tests.unit.advise.costs.test_predicted_costs import CPU, operation

KEY = "0123456789abcdef" * 4


def measured(**changes: Any) -> dict[str, Any]:
    return operation(**{"key": KEY, "cpu_ns": [100, 200], **changes})


def records(place: Path) -> list[Any]:
    found, notes = cost_library.read([KEY, "f" * 64], place)
    assert notes == []
    return found[KEY]


def test_what_plans_measure_is_read_again(tmp_path: Path) -> None:
    place = tmp_path / "lotus" / "costs"
    assert cost_library.read([KEY], place) == ({}, [])
    events = measured(), {"event": "cut"}, measured(key=None), measured(key="a" * 64, cpu_ns=[])
    assert cost_library.add(events, CPU, place) == []
    assert cost_library.add([measured(cpu_ns=[400])], CPU, place) == []
    assert [(each.cost.mean_ns, each.cpu) for each in records(place)] == [(400, CPU), (150, CPU)]
    assert [path.name for path in place.iterdir()] == [f"{KEY[:32]}.json"]
    assert place.stat().st_mode & 0o077 == 0


def test_the_latest_records_stay(tmp_path: Path) -> None:
    for number in range(12):
        cost_library.add([measured(cpu_ns=[number + 1])], CPU, tmp_path)
    assert [each.cost.mean_ns for each in records(tmp_path)] == [12, 11, 10, 9, 8, 7, 6, 5]
    for number in range(12):
        event = measured(bytes=[10**number, 10**number], kinds=[f"kind {number}"] * 2)
        cost_library.add([event], CPU, tmp_path)
    kept = records(tmp_path)
    assert len(kept) == 20
    many = [measured(kinds=[f"kind {number}"], bytes=[1], cpu_ns=[1]) for number in range(80)]
    for event in many:
        cost_library.add([event], CPU, tmp_path)
    assert len(records(tmp_path)) == 64


def test_files_that_were_written_longest_ago_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost_library, "_MOST_FILES", 2)
    for number, letter in enumerate("abc"):
        cost_library.add([measured(key=letter * 64)], CPU, tmp_path)
        path = tmp_path / f"{letter * 32}.json"
        if path.exists():
            os.utime(path, (number, number))
    assert sorted(path.name[0] for path in tmp_path.iterdir()) == ["b", "c"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "other"}', "[" * 100_000])
def test_a_damaged_file_is_left_out_and_written_anew(tmp_path: Path, content: str) -> None:
    path = tmp_path / f"{KEY[:32]}.json"
    path.write_text(content)
    found, notes = cost_library.read([KEY], tmp_path)
    assert found == {}
    assert str(path) in notes[0]
    assert cost_library.add([measured()], CPU, tmp_path) == []
    assert len(records(tmp_path)) == 1


def test_a_file_that_is_none_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / f"{KEY[:32]}.json").symlink_to("/dev/zero")
    found, notes = cost_library.read([KEY], tmp_path)
    assert (found, len(notes)) == ({}, 1)


def test_no_room_is_told(tmp_path: Path) -> None:
    (tmp_path / "costs").write_text("")
    (note,) = cost_library.add([measured()], CPU, tmp_path / "costs")
    assert "costs of operations are not kept" in note
