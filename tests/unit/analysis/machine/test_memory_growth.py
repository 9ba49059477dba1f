"""Workers that copy what they share with the main process, and workers that only grow."""

import mmap
from types import SimpleNamespace

import pandas as pd

from lotus.analysis.common.scope import scopes
from lotus.analysis.machine.memory_growth import memory_growth
from lotus.analysis.verdict.verdict import Verdict, verdict
from tests.unit.simulated import Plan

MIB = 1 << 20
COLUMNS = ["time_ns", "worker", "anonymous", "private", "shared"]


def with_memory(rows: list[tuple[float, int, float, float, float]], **plan: float):
    """A run with readings of (s, worker, anonymous, private, shared in MiB), and many faults."""
    run = Plan(**({"step": 30, "persistent": True} | plan)).run()
    run.loaders["persistent_workers"] = plan.get("persistent", True)
    pids = run.batches[run.batches["worker"] >= 0].groupby("worker")["pid"].first()
    run.batches["minor_faults"] = 1e6
    table = pd.DataFrame(rows, columns=COLUMNS)
    table["time_ns"] *= 1e9
    for name in ("anonymous", "private", "shared"):
        table[name] *= MIB
    known = {"pid": table["worker"].map(pids), "pss": 0, "rss": 400 * MIB, "descriptor_limit": 1024}
    run.memory = table.assign(**known)
    start = {"rss": 400 * MIB, "pss": 400 * MIB / (run.loaders["num_workers"][0] + 1)}
    own = [{"worker": w, "pid": pid, "rank": 0, "time_ns": 0, **start} for w, pid in pids.items()]
    run.resources = pd.DataFrame(own)
    # When the program has ended, its memory is free again.
    available = {"time_ns": [0, 1, 1e12], "available_bytes": [8e3 * MIB, 4e3 * MIB, 9e3 * MIB]}
    run.machine = pd.DataFrame(available)
    return run


def judged(run: SimpleNamespace) -> Verdict:
    return verdict(scopes(run)[0])


COPIES = [(1, 0, 400, 100, 300), (2, 0, 410, 160, 250)]


def test_copies_of_shared_pages_are_told_from_what_a_worker_allocates() -> None:
    growth = memory_growth(scopes(with_memory(COPIES))[0])
    assert growth.copied_bytes == 150 * MIB  # 160 private, 10 of them allocated
    assert growth.allocated_bytes == 10 * MIB
    assert growth.shared_bytes == 250 * MIB
    assert growth.copies
    few = memory_growth(scopes(with_memory([(1, 0, 400, 50, 350)]))[0])
    assert few.copied_bytes == 50 * MIB
    assert not few.copies  # as much as a garbage collection copies
    assert not memory_growth(scopes(with_memory([]))[0]).copies  # read once


def test_a_worker_that_reads_itself_before_the_others_are_forked_owns_no_more_for_it() -> None:
    run = with_memory(COPIES)
    early = run.resources["worker"] == 0
    run.resources.loc[early, "pss"] = 200 * MIB  # shared with the main process only
    growth = memory_growth(scopes(run)[0])
    assert growth.copied_bytes == 150 * MIB
    run.resources["pss"] = 200 * MIB  # none was read later: as much as is known
    assert memory_growth(scopes(run)[0]).copied_bytes == 50 * MIB


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
    assert growth.allocated_bytes == 200 * MIB  # between the first and the last reading
    assert growth.seconds_left == 4000 / (2 * 40)  # of two workers
    judgement = judged(with_memory(steady))
    assert judgement.causes[0].kind == "memory"
    assert "cache" in judgement.causes[0].advice
    assert any("50.0 s" in flaw for flaw in judgement.flaws)
    assert any("fill the machine's memory" in flaw for flaw in judgement.flaws)
    contained = with_memory(steady)
    contained.machine["memory_limit_bytes"] = [0, 6 << 30, 0]
    words = "would fill the 6.00 GiB of memory that its container or job may use in 50.0 s"
    assert any(words in flaw for flaw in judged(contained).flaws)
    at_first = [(s, 0, 400 + 240 * (s > 1), 0, 400) for s in range(1, 7)]
    assert memory_growth(scopes(with_memory(at_first))[0]).seconds_left == float("inf")


def test_what_nears_a_limit_is_a_flaw() -> None:
    run = with_memory([])
    run.resources["descriptors"], run.resources["shm"] = 900, 50 * MIB
    run.manifest |= {"shm_bytes": 64 * MIB}
    assert judged(run).flaws == ()  # the limit is not known
    pid = int(run.resources["pid"].iloc[0])
    run.memory = pd.DataFrame({"pid": [pid], "worker": 0, "time_ns": 1, "descriptor_limit": 1024})
    (descriptors,) = judged(run).flaws
    assert "900 file descriptors open, of at most 1,024" in descriptors
    (limit,) = (cause for cause in judged(run).causes if cause.kind == "limits")
    assert limit.is_silent
    assert limit.advice.startswith("Raise the limit (ulimit -n)")
    run.resources["descriptors"] = 1500  # it has raised its limit since
    assert judged(run).flaws == ()
    run.resources["shm"] = 60 * MIB
    assert any(
        "/dev/shm, through which batches are sent, was 94% full" in flaw
        for flaw in judged(run).flaws
    )


def test_what_one_worker_alone_holds_may_be_the_main_process_s_doing() -> None:
    growth = memory_growth(scopes(with_memory(COPIES, workers=1))[0])
    assert not growth.copies


def test_pages_of_files_do_not_fill_the_memory() -> None:
    run = with_memory([(s, 0, 400, 0, 400) for s in range(1, 7)])
    run.memory["rss"] = [(400 + 500 * s) * MIB for s in range(1, 7)]  # mapped ever more
    growth = memory_growth(scopes(run)[0])
    assert growth.allocated_bytes == 0
    assert growth.seconds_left == float("inf")


def test_workers_that_end_with_their_epoch_give_their_memory_back() -> None:
    steady = [(s, 0, 400 + 40 * s, 40 * s, 400) for s in range(1, 7)]
    growth = memory_growth(scopes(with_memory(steady, persistent=False))[0])
    assert growth.seconds_left == float("inf")


def test_copies_that_the_machine_has_room_for_do_not_come_first() -> None:
    run = with_memory(COPIES)
    run.machine["available_bytes"] *= 100
    judgement = judged(run)
    assert judgement.causes[0].kind == "consumer"
    assert any("copies" in flaw for flaw in judgement.flaws)


def test_copies_come_after_what_the_threads_of_the_step_lose() -> None:
    """GIVEN workers that copy pages, which costs no time, beside a step that lacks cores for most
    of its time
    THEN the step's threads are named first, and the copies are a flaw."""
    run = with_memory(COPIES)
    step = run.waits["step_ns"]
    run.waits = run.waits.assign(
        step_cpu_ns=0.3 * step, step_run_delay_ns=0.4 * step, step_process_cpu_ns=0.8 * step
    )
    judgement = judged(run)
    assert judgement.causes[0].kind == "step-threads"
    assert any("copies" in flaw for flaw in judgement.flaws)
