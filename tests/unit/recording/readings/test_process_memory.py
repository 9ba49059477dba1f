"""Readings of a process's memory from outside: each in turn, and within a share of a core."""

import os

import pytest

from lotus.recording.readings import process_memory
from lotus.recording.readings.process_memory import ProcessMemory


def test_a_reading_has_the_sizes_of_a_process() -> None:
    memory = ProcessMemory()
    memory.read([(os.getpid(), 3)])
    ((_, pid, worker, rss, pss, private, shared, anonymous, limit),) = memory.rows
    assert (pid, worker) == (os.getpid(), 3)
    assert rss >= private > 0
    assert rss >= pss > 0
    assert shared >= 0
    assert rss >= anonymous > 0
    assert limit == -1 or limit > 2


def test_what_has_ended_is_no_reading() -> None:
    memory = ProcessMemory()
    memory.read([(1 << 22, 0)])  # above any pid
    memory.read([])
    assert memory.rows == []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time of the readings, in place of the real one; sizes without a process."""
    now = [10**12]
    monkeypatch.setattr(process_memory.time, "monotonic_ns", lambda: now[0])
    monkeypatch.setattr(process_memory, "resident_bytes", lambda pid: pid)
    monkeypatch.setattr(process_memory, "_sizes", lambda pid: (pid, 0, 0, 0, 0))
    monkeypatch.setattr(process_memory, "_descriptor_limit", lambda pid: -1)
    return now


def test_processes_take_turns_and_wait_for_their_period(clock: list[int]) -> None:
    memory = ProcessMemory()
    for _ in range(3):
        memory.read([(11, 0), (12, 1)])
    assert [row[1] for row in memory.rows] == [11, 12]  # none of them is due again
    clock[0] += 10**9
    memory.read([(11, 0), (12, 1)])
    assert [row[1] for row in memory.rows] == [11, 12, 11]


def test_readings_are_further_and_further_apart_and_those_of_workers_come_first(
    clock: list[int],
) -> None:
    memory, begun = ProcessMemory(), clock[0]
    for _ in range(120):
        memory.read([(11, -1), (12, 0)])
        clock[0] += 10**8
    seconds = {
        pid: [(row[0] - begun) / 1e9 for row in memory.rows if row[1] == pid] for pid in (11, 12)
    }
    assert seconds[12] == pytest.approx([0.1, 1.1, 3.1, 7.1, 11.1], abs=0.11)
    assert seconds[11] == pytest.approx([0.0, 4.0, 8.0], abs=0.11)


def test_costly_readings_are_rare(clock: list[int]) -> None:
    memory = ProcessMemory()
    memory._cost_ns = 10**12  # as if they had taken that long
    memory.read([(11, 0)])
    assert memory.rows == []
    memory = ProcessMemory()
    memory.read([(10**13, 0), (11, 1)])  # so large that it would take minutes
    memory.read([(10**13, 0), (11, 1)])
    assert [row[1] for row in memory.rows] == [11]


def test_small_processes_leave_a_large_one_its_readings(
    clock: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, begun, used = ProcessMemory(), clock[0], [0]
    monkeypatch.setattr(process_memory.time, "thread_time_ns", lambda: used[0])

    def sizes(pid: int) -> tuple[int, ...]:
        used[0] += round(pid * process_memory._NS_PER_BYTE)
        return (pid, 0, 0, 0, 0)

    monkeypatch.setattr(process_memory, "_sizes", sizes)
    large = 6 << 30  # most of what may be used at once
    while clock[0] < begun + 300 * 10**9:
        memory.read([(large, -1), *(((1 << 28) + worker, worker) for worker in range(6))])
        clock[0] += 4 * 10**7
    last = max(row[0] for row in memory.rows if row[1] == large)
    assert last > begun + 200 * 10**9


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_readings_are_bounded_and_each_process_keeps_its_own(
    clock: list[int], processes: int
) -> None:
    memory = ProcessMemory()
    memory._cost_ns = -(10**15)
    for _ in range(9000):
        clock[0] += 10**10
        memory.read([(pid, 0) for pid in range(1, processes + 1)])
    assert len(memory.rows) < 4200
    counts = [sum(row[1] == pid for row in memory.rows) for pid in range(1, processes + 1)]
    assert min(counts) > 0.7 * max(counts)
    assert [row[1] for row in memory.rows[:2]] == [1, 2]  # the first of each
