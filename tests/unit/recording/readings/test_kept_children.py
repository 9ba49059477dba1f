"""CPU time of processes that a program keeps, read from outside."""

import itertools
import os
import subprocess
import sys

from lotus.recording.readings import kept_children
from lotus.recording.readings.kept_children import KeptChildren
from lotus.recording.readings.process_times import cpu_ns
from tests.waiting import wait_until

_COMPUTES = "while True: pass"
# A process that starts another one, which computes.
_KEEPS = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{_COMPUTES}']).wait()"


def test_what_kept_processes_compute_is_known_of_all_generations() -> None:
    me = (os.getpid(), -1)
    with subprocess.Popen([sys.executable, "-c", _KEEPS], start_new_session=True) as process:
        try:
            wait_until(lambda: kept_children._children(process.pid), process)
            [inner] = kept_children._children(process.pid)
            kept = KeptChildren()
            assert kept.cpu_ns(me, ()) == -1
            kept.read(me, ())
            before = cpu_ns(inner)
            wait_until(lambda: cpu_ns(inner) >= before + 50_000_000, process)
            kept.read(me, ())
            assert kept.cpu_ns(me, {process.pid}) >= 50_000_000
            # Those that make batches are read by themselves.
            others = {*kept._used[me]}
            assert kept.cpu_ns(me, others) == 0
            assert inner in others
        finally:
            os.killpg(process.pid, 9)


def test_a_child_of_a_worker_that_has_ended_is_counted_by_the_worker(monkeypatch) -> None:
    used = itertools.count()
    monkeypatch.setattr(kept_children, "cpu_ns", lambda pid: next(used))
    children = {7: [8], 8: [], 9: [10], 10: []}
    monkeypatch.setattr(kept_children, "_children", lambda pid: children[pid])
    kept = KeptChildren()
    for _ in range(2):
        kept.read((7, 0), ())
        kept.read((9, -1), ())
    assert kept.cpu_ns((7, 0), ()) == 2
    assert kept.cpu_ns((9, -1), ()) == 2
    children[7] = children[9] = []
    kept.read((7, 0), ())
    kept.read((9, -1), ())
    assert kept.cpu_ns((7, 0), ()) == 0
    assert kept.cpu_ns((9, -1), ()) == 2


def test_what_a_worker_keeps_is_the_workers_alone(monkeypatch) -> None:
    children = {7: [8, 11], 8: [9], 9: [], 11: []}
    monkeypatch.setattr(kept_children, "_children", lambda pid: children[pid])
    assert kept_children._descendants([7], {8}) == [11]
    assert kept_children._descendants([8], {8}) == [9]


def test_a_number_that_another_process_has_now_takes_nothing_away(monkeypatch) -> None:
    used = iter([5, 9, 1, 3])
    monkeypatch.setattr(kept_children, "cpu_ns", lambda pid: next(used))
    monkeypatch.setattr(kept_children, "_children", lambda pid: [8] if pid == 7 else [])
    kept = KeptChildren()
    for _ in range(4):
        kept.read((7, -1), ())
    assert kept.cpu_ns((7, -1), ()) == 2
