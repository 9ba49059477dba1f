"""Readings of a process's memory from outside: each in turn, and within a share of a core."""

import os

import pytest

from lotus.recording import process_memory
from lotus.recording.process_memory import ProcessMemory


def test_a_reading_has_the_sizes_of_a_process() -> None:
    memory = ProcessMemory()
    memory.read([(os.getpid(), 3)])
    ((_, pid, worker, rss, pss, private, shared),) = memory.rows
    assert (pid, worker) == (os.getpid(), 3)
    assert rss >= private > 0
    assert rss >= pss > 0
    assert shared >= 0


def test_what_has_ended_is_no_reading() -> None:
    memory = ProcessMemory()
    memory.read([(1 << 22, 0)])  # above any pid
    memory.read([])
    assert memory.rows == []


def test_processes_take_turns_and_wait_for_their_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_memory, "_sizes", lambda pid: (pid, 0, 0, 0))
    memory = ProcessMemory()
    for _ in range(3):
        memory.read([(11, 0), (12, 1)])
    assert [row[1] for row in memory.rows] == [11, 12]  # none of them is due again


def test_costly_readings_are_rare_and_their_number_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process_memory, "_sizes", lambda pid: (pid, 0, 0, 0))
    memory = ProcessMemory()
    memory._cost_ns = 10**12  # as if they had taken that long
    memory.read([(11, 0)])
    assert memory.rows == []
    memory = ProcessMemory()
    memory._cost_ns = -(10**15)
    for pid in range(1, 6000):
        memory.read([(pid, 0)])
    assert 1000 < len(memory.rows) < 4200
