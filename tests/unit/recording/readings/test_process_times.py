"""CPU time of processes, read from outside."""

import os
import time

from lotus.recording.readings import process_times
from lotus.recording.readings.process_times import ProcessTimes


def test_what_a_process_computes_between_two_readings_is_known(monkeypatch) -> None:
    monkeypatch.setattr(process_times, "_PERIOD_NS", 0)
    times, me = ProcessTimes(), (os.getpid(), -1)
    times.read(me)
    assert times.between(me) == (-1, -1)
    before = time.process_time_ns()
    while time.process_time_ns() < before + 100_000_000:
        pass
    used = time.process_time_ns() - before
    times.read(me)
    cpu, wall = times.between(me)
    assert wall > 0
    assert abs(cpu - used) <= 50_000_000  # clock ticks


def test_a_process_that_has_ended_keeps_what_was_read(monkeypatch) -> None:
    times = ProcessTimes()
    times.read((1 << 22, 0))  # more than Linux numbers
    assert times.processes == {}
    assert times.between((1 << 22, 0)) == (-1, -1)


def test_a_process_is_not_read_more_often_than_twice_a_second(monkeypatch) -> None:
    now = [0]
    monkeypatch.setattr(process_times.time, "monotonic_ns", lambda: now[0])
    read: list[int] = []
    monkeypatch.setattr(process_times, "cpu_ns", lambda pid: read.append(pid) or 0)
    times = ProcessTimes()
    for now[0] in range(0, 2_000_000_000, 100_000_000):
        times.read((7, 0))
    assert len(read) == 4
