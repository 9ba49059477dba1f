"""Notes on what the launcher did not observe, or what of it cannot be read."""

import json
import os
from pathlib import Path

import pytest

from lotus.format.run_directory import BLOCKING
from lotus.reading import recorded_notes
from lotus.reading.launcher import launcher_record

MANIFEST = {"ranks": [], "exit_code": 0, "signal": None}


def notes(folder: Path, **manifest: object) -> list[str]:
    record = launcher_record.read(folder)
    return recorded_notes.notes(folder, {**MANIFEST, **manifest}, [], record)


def test_a_run_without_the_record_is_marked(tmp_path: Path) -> None:
    [note] = notes(tmp_path)
    assert note.startswith("blocking.json is missing")
    assert notes(tmp_path, exit_code=None, signal="SIGTERM") == [note]


def test_one_that_no_launcher_saw_the_end_of_never_had_it(tmp_path: Path) -> None:
    assert notes(tmp_path, exit_code=None) == []
    assert notes(tmp_path, merged=[{"path": "a"}]) == []


def test_a_program_that_recorded_itself_was_not_observed_from_outside(tmp_path: Path) -> None:
    [note] = notes(tmp_path, exit_code=None, state="ended")
    assert note.startswith("recorded from inside the program (lotus.trace()")
    assert notes(tmp_path, exit_code=None, state="running") == []
    assert notes(tmp_path, exit_code=None, state="ended", merged=[{"path": "a"}]) == []


@pytest.mark.parametrize("kind", ["directory", "pipe", "link", "list"])
def test_one_that_cannot_be_read_is_marked(tmp_path: Path, kind: str) -> None:
    path = tmp_path / BLOCKING
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/dev/zero")
    else:
        path.write_text("[]")
    [note] = notes(tmp_path)
    assert "what threads were blocked in is not known" in note


def test_readings_that_are_not_understood_are_counted(tmp_path: Path) -> None:
    content = {"machine": [[1] * 9, [1] * 12], "memory": [[1] * 12], "children": ["x"]}
    (tmp_path / BLOCKING).write_text(json.dumps(content))
    assert notes(tmp_path) == [
        "3 readings in blocking.json not used: damaged, or of another version"
    ]
