"""functions.json: what was written is read again, and what is hostile is refused with one line."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from lotus.attach.files import attached_run, function_file
from lotus.common.errors import LotusError
from tests.unit.attach import test_attached_run


def write(directory: Path) -> Path:
    samples = {"time_ns": [5, 3], "pid": [7, 7], "tid": [7, 8], "function": [1, 0]}
    functions = {
        "event": "cpu-clock:u", "frequency": 997, "kernel": False, "lost": 2, "cpu_ns": 1,
        "names": [["libz.so", "crc32_z"], ["libc.so", "memcpy"]], "samples": samples,
        "notes": ["1 sample without a name"],
    }  # fmt: skip
    moments = pd.DataFrame({"time_ns": [4], "pid": [7], "tid": [7], "label": [1]})
    function_file.write(directory, functions, moments)
    return directory / "functions.json"


def test_what_was_written_is_read_with_the_rest(tmp_path: Path) -> None:
    test_attached_run.write(tmp_path)
    assert attached_run.load(tmp_path).functions is None
    write(tmp_path)
    seen = attached_run.load(tmp_path).functions
    assert seen is not None
    assert (seen.event, seen.frequency, seen.kernel, seen.lost) == ("cpu-clock:u", 997, False, 2)
    assert seen.samples["time_ns"].tolist() == [3, 5]
    assert seen.names["function"].tolist() == ["crc32_z", "memcpy"]
    assert seen.moments["label"].tolist() == [1]


@pytest.mark.parametrize(
    ("way", "to"),
    [
        (("schema",), 2),
        (("schema",), None),
        (("names",), [["a"]]),
        (("names", 0, 0), "x" * 100_000),
        (("samples", "function"), [0, 2]),
        (("samples", "function"), [0]),
        (("samples", "pid"), [7, -1]),
        (("samples",), 3),
        (("moments", "label"), [9]),
        (("moments", "time_ns"), [1.5]),
        (("frequency",), 0),
        (("lost",), "many"),
        (("event",), None),
        (("notes",), [3]),
    ],
)
def test_a_hostile_file_is_refused_with_one_line(
    tmp_path: Path, way: tuple[Any, ...], to: Any
) -> None:
    test_attached_run.write(tmp_path)
    test_attached_run.changed(write(tmp_path), *way, to=to)
    with pytest.raises(LotusError, match="--perf") as refusal:
        attached_run.load(tmp_path)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", json.dumps({"schema": 1})])
def test_what_is_no_such_file_is_refused(tmp_path: Path, text: str) -> None:
    test_attached_run.write(tmp_path)
    (tmp_path / "functions.json").write_text(text)
    with pytest.raises(LotusError, match="damaged"):
        attached_run.load(tmp_path)
