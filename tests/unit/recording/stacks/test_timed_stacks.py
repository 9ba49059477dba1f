"""The stacks of one process with their times, as py-spy writes them to a file."""

import json
import os
import time
from pathlib import Path
from typing import Any

from lotus.recording.stacks import timed_stacks
from lotus.recording.stacks.timed_stacks import TimedStacks

RATE, PERIOD_US, MOST = 50, 20_000, 1 << 20
PID = os.getpid()
F, G = ("f", "/a.py", 3), ("g", "/a.py", 7)
_S_F, _S_G = "f (/a.py:3)", "f (/a.py:3);g (/a.py:7)"


def changes(kind: str, at_us: int, tid: int, *frames: tuple[str, str, int]) -> list[dict[str, Any]]:
    return [
        {"args": {"filename": file, "line": line}, "name": name, "ph": kind, "tid": tid,
         "pid": PID, "ts": at_us}
        for name, file, line in frames
    ]  # fmt: skip


def thread(tid: int) -> tuple[str, str, int]:
    return f"thread ({tid}): T", "", 0


def written(path: Path, *events: list[dict[str, Any]]) -> tuple[TimedStacks, int]:
    """What is read of a py-spy that began just before the file was written; and when it began."""
    last = max(event["ts"] for part in events for event in part)
    began = time.monotonic_ns() - last * 1000
    path.write_text(json.dumps([event for part in events for event in part]))
    return timed_stacks.read(path, PID, RATE, began, MOST), began


def test_samples_of_the_main_thread_have_times(tmp_path: Path) -> None:
    found, began = written(
        tmp_path / "o",
        changes("B", 0, 1, thread(PID), F),
        changes("B", 3 * PERIOD_US, 1, G),
        changes("E", 5 * PERIOD_US, 1, G, F, thread(PID)),
    )
    assert found.counts == {_S_F: 3, _S_G: 2}
    for stack, places in ((_S_F, (0, 1, 2)), (_S_G, (3, 4))):
        for at, place in zip(found.times_ns[stack], places, strict=True):
            assert abs(at - began - place * PERIOD_US * 1000) <= found.bound_ns


def test_a_thread_that_has_ended_counts_once_and_has_no_times(tmp_path: Path) -> None:
    gone = 1 << 29  # above all numbers of threads
    found, _ = written(
        tmp_path / "o",
        changes("B", 0, 1, thread(PID), F),
        changes("B", 0, 2, thread(gone), F, G),
        changes("E", 9 * PERIOD_US, 2, G, F, thread(gone)),
        changes("E", 9 * PERIOD_US, 1, F, thread(PID)),
    )
    assert found.counts == {_S_F: 9, _S_G: 1}
    assert list(found.times_ns) == [_S_F]


def test_a_python_that_does_not_know_its_threads_numbers_has_a_main_thread(tmp_path: Path) -> None:
    main = "thread (0x7FA1): MainThread", "", 0
    found, _ = written(
        tmp_path / "o", changes("B", 0, 1, main, F), changes("E", PERIOD_US, 1, F, main)
    )
    assert len(found.times_ns[_S_F]) == 1


def test_a_py_spy_without_times_has_counts(tmp_path: Path) -> None:
    (tmp_path / "o").write_text("f (/a.py:3) 2\nf (/a.py:3);g (/a.py:7) 30\nno count\n")
    found = timed_stacks.read(tmp_path / "o", PID, RATE, 0, MOST)
    assert +found.counts == {_S_F: 2, _S_G: 30}
    assert found.times_ns == {}


def test_a_damaged_file_has_nothing(tmp_path: Path) -> None:
    for text in ("[", '[{"ph": "E", "tid": 1, "ts": 1, "name": "f", "args": {}}]', "[1]"):
        (tmp_path / "o").write_text(text)
        assert not timed_stacks.read(tmp_path / "o", PID, RATE, 0, MOST).counts


def test_times_that_cannot_be_are_left_out(tmp_path: Path) -> None:
    # GIVEN a file from before py-spy was started, as where the machine's clock was set meanwhile
    (tmp_path / "o").write_text(
        json.dumps(
            changes("B", 0, 1, thread(PID), F) + changes("E", 3_600_000_000, 1, F, thread(PID))
        )
    )
    found = timed_stacks.read(tmp_path / "o", PID, RATE, time.monotonic_ns(), MOST)
    assert found.counts[_S_F] > 0
    assert found.times_ns == {}
