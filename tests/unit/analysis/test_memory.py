"""Workers that copy what they share with the main process, and workers that only grow."""

import mmap
from types import SimpleNamespace

import pandas as pd

from lotus.analysis.batches.memory import memory_growth
from lotus.analysis.common.scope import scopes
from lotus.analysis.verdict.verdict import Verdict, verdict
from tests.unit.simulated import Plan

MIB = 1 << 20
COLUMNS = ["time_ns", "worker", "rss", "private", "shared"]


def with_memory(rows: list[tuple[float, int, float, float, float]], **plan: float):
    """A run with readings of (s, worker, rss, private, shared in MiB), and many page faults."""
    run = Plan(**({"step": 30} | plan)).run()
    pids = run.batches[run.batches["worker"] >= 0].groupby("worker")["pid"].first()
    run.batches["minor_faults"] = 1e6
    table = pd.DataFrame(rows, columns=COLUMNS)
    table["time_ns"] *= 1e9
    for name in ("rss", "private", "shared"):
        table[name] *= MIB
    run.memory = table.assign(pid=table["worker"].map(pids), pss=0)
    start = {"rss": 400 * MIB, "pss": 400 * MIB / (run.loaders["num_workers"][0] + 1)}
    own = [{"worker": w, "pid": pid, "rank": 0, "time_ns": 0, **start} for w, pid in pids.items()]
    run.resources = pd.DataFrame(own)
    run.machine = pd.DataFrame({"time_ns": [0, 1], "available_bytes": [8000 * MIB, 4000 * MIB]})
    return run


def judged(run: SimpleNamespace) -> Verdict:
    return verdict(scopes(run)[0])


COPIES = [(1, 0, 400, 100, 300), (2, 0, 410, 160, 250)]


def test_copies_of_shared_pages_are_told_from_what_a_worker_allocates() -> None:
    growth = memory_growth(scopes(with_memory(COPIES))[0])
    assert growth.copied_bytes == 150 * MIB  # 160 private, 10 more than at first in all
    assert growth.allocated_bytes == 10 * MIB
    assert growth.shared_bytes == 250 * MIB
    assert growth.copies
    few = memory_growth(scopes(with_memory([(1, 0, 400, 50, 350)]))[0])
    assert few.copied_bytes == 50 * MIB
    assert not few.copies  # as much as a garbage collection copies
    assert not memory_growth(scopes(with_memory([]))[0]).copies  # read once


def test_pages_that_the_worker_did_not_touch_are_not_its_copies() -> None:
    run = with_memory(COPIES)
    run.batches["minor_faults"] = 0.0
    run.batches.loc[run.batches["worker"] == 0, "minor_faults"] = MIB / mmap.PAGESIZE
    growth = memory_growth(scopes(run)[0])
    assert growth.copied_bytes == MIB * (run.batches["worker"] == 0).sum()
    assert not growth.copies


def test_copies_come_first_where_the_loop_does_not_wait_and_are_a_flaw_elsewhere() -> None:
    judgement = judged(with_memory(COPIES))
    assert judgement.causes[0].kind == "memory"
    assert "copy-on-write" in judgement.causes[0].title
    assert "numpy" in judgement.causes[0].advice
    assert any("160 MiB" in flaw for flaw in judgement.flaws)
    waits = judged(with_memory(COPIES, own=20.0, step=1))
    assert waits.causes[0].kind == "dataset"
    assert waits.flaws == judgement.flaws
    assert judged(with_memory([])).flaws == ()


def test_a_worker_that_grows_all_the_time_fills_the_memory() -> None:
    steady = [(s, 0, 400 + 40 * s, 40 * s, 400) for s in range(1, 7)]
    growth = memory_growth(scopes(with_memory(steady))[0])
    assert growth.allocated_bytes == 240 * MIB
    assert growth.seconds_left == 4000 / (2 * 40)  # of two workers
    judgement = judged(with_memory(steady))
    assert judgement.causes[0].kind == "memory"
    assert "cache" in judgement.causes[0].advice
    assert any("50.0 s" in flaw for flaw in judgement.flaws)
    at_first = [(s, 0, 400 + 240 * (s > 1), 0, 400) for s in range(1, 7)]
    assert memory_growth(scopes(with_memory(at_first))[0]).seconds_left == float("inf")


def test_what_nears_a_limit_is_a_flaw() -> None:
    run = with_memory([])
    run.resources["descriptors"], run.resources["shm"] = 900, 50 * MIB
    run.manifest |= {"descriptor_limit": 1024, "shm_bytes": 64 * MIB}
    (descriptors,) = judged(run).flaws
    assert "900 of the 1,024 descriptors" in descriptors
    run.resources["shm"] = 60 * MIB
    assert any("/dev/shm was 94% full" in flaw for flaw in judged(run).flaws)
