"""CPU time of processes, read from outside."""

import mmap
import os
import time

from lotus.recording.readings import process_times
from lotus.recording.readings.process_times import ProcessTimes, Used


def test_what_a_process_computes_between_two_readings_is_known(monkeypatch) -> None:
    monkeypatch.setattr(process_times, "_PERIOD_NS", 0)
    times, me = ProcessTimes(), (os.getpid(), -1)
    times.read(me)
    assert times.between(me) == Used()
    before = time.process_time_ns()
    while time.process_time_ns() < before + 100_000_000:
        pass
    used = time.process_time_ns() - before
    times.read(me)
    between = times.between(me)
    assert between.wall_ns > 0
    assert abs(between.cpu_ns - used) <= 50_000_000  # clock ticks
    assert 0 <= between.system_ns <= between.cpu_ns


def test_page_faults_are_counted(monkeypatch) -> None:
    monkeypatch.setattr(process_times, "_PERIOD_NS", 0)
    times, me = ProcessTimes(), (os.getpid(), -1)
    times.read(me)
    pages = mmap.mmap(-1, 1000 * mmap.PAGESIZE)
    for page in range(1000):
        pages[page * mmap.PAGESIZE] = 1
    times.read(me)
    assert times.between(me).minor_faults > 0  # a kernel may map many pages at a time


def test_what_a_process_reads_is_counted(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(process_times, "_PERIOD_NS", 0)
    (tmp_path / "data").write_bytes(bytes(1 << 20))
    times, me = ProcessTimes(), (os.getpid(), -1)
    times.read(me)
    for _ in range(10):
        (tmp_path / "data").read_bytes()
    times.read(me)
    between = times.between(me)
    assert between.copied_bytes >= 10 << 20
    assert between.copies >= 10


def test_a_process_whose_reading_is_not_told_has_its_times_all_the_same(monkeypatch) -> None:
    monkeypatch.setattr(process_times, "_PERIOD_NS", 0)
    monkeypatch.setattr(process_times, "_copied", lambda pid: (-1, -1))
    times, me = ProcessTimes(), (os.getpid(), -1)
    times.read(me)
    times.read(me)
    between = times.between(me)
    assert (between.copied_bytes, between.copies) == (-1, -1)
    assert between.cpu_ns >= 0


def test_a_process_that_has_ended_keeps_what_was_read(monkeypatch) -> None:
    times = ProcessTimes()
    times.read((1 << 22, 0))  # more than Linux numbers
    assert times.processes == {}
    assert times.between((1 << 22, 0)) == Used()


def test_a_process_is_not_read_more_often_than_twice_a_second(monkeypatch) -> None:
    now = [0]
    monkeypatch.setattr(process_times.time, "monotonic_ns", lambda: now[0])
    read: list[int] = []
    monkeypatch.setattr(process_times, "_counted", lambda pid: read.append(pid) or (0, 0, 0))
    times = ProcessTimes()
    for now[0] in range(0, 2_000_000_000, 100_000_000):
        times.read((7, 0))
    assert len(read) == 4
