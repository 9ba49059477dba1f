"""A worker that a signal ended is named before the causes, with what that usually means."""

from typing import Any

import pandas as pd
import pytest

from lotus.analysis.summary import summarise
from lotus.reporters.run import short_report
from tests.unit.simulated import Plan

COLUMNS = ["rank", "pid", "worker", "worker_pid", "signal"]


def killed_run(*killed: tuple[int, int], **manifest: Any) -> Any:
    """Return a run of which workers (number, signal) were killed."""
    run = Plan(workers=3, operations={"Slow": 5.0}).run()
    pids = run.workers.set_index("worker")["pid"]
    rows = [(0, 1, worker, pids.loc[worker], number) for worker, number in killed]
    run.killed_workers = pd.DataFrame(rows, columns=COLUMNS)
    run.workers["rank"] = 0
    run.manifest |= manifest
    return run


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (9, "Worker 1 was ended by SIGKILL. Usually the kernel does that when memory is used up."),
        (7, "Worker 1 was ended by SIGBUS. Usually /dev/shm, through which batches are sent, is"),
        (11, "Worker 1 was ended by SIGSEGV. Usually that is an error in the native code"),
        (15, "Worker 1 was ended by SIGTERM. The program itself, a user or a job scheduler"),
    ],
)
def test_it_is_the_first_remark(number: int, words: str) -> None:
    run = killed_run((1, number))
    judged = summarise(run).verdict
    assert judged is not None
    assert judged.flaws[0].startswith(words)
    # AND it stands before the causes at the end of `lotus trace`
    text = " ".join(" ".join(short_report.short_report(run)).split())
    assert text.index(words) < text.index("Why (share of the loop")


def test_what_is_known_of_memory_is_said() -> None:
    run = killed_run((0, 9), (2, 9), memory_kills=2)
    pid = int(run.killed_workers["worker_pid"].iloc[0])
    own = {"rank": 0, "pid": pid, "worker": 0, "time_ns": run.manifest["start_ns"], "pss": 3 << 30}
    run.resources = pd.DataFrame([{**own, "rss": 0, "descriptors": 3, "shm": 0}])
    run.machine = pd.DataFrame({"time_ns": [0, 1], "available_bytes": [5 << 30, 64 << 20]})
    judged = summarise(run).verdict
    assert judged is not None
    assert judged.flaws[0].startswith("Workers 0 and 2 were ended by SIGKILL.")
    assert "it killed 2 processes of this cgroup for that." in judged.flaws[0]
    assert "one had 3.00 GiB, and at least 64.0 MiB of memory were free." in judged.flaws[0]


@pytest.mark.parametrize(
    ("used", "words"),
    [(63 << 20, "at most 98% of its 64.0 MiB were seen in use. Enlarge it"),
     (1 << 20, "at most 1.6% of its 64.0 MiB were seen in use, so a file that was cut")],
)  # fmt: skip
def test_what_is_known_of_shared_memory_is_said(used: int, words: str) -> None:
    run = killed_run((0, 7), shm_bytes=64 << 20)
    pid = int(run.killed_workers["worker_pid"].iloc[0])
    own = {"rank": 0, "pid": pid, "worker": 0, "time_ns": run.manifest["start_ns"], "pss": 0}
    run.resources = pd.DataFrame([{**own, "rss": 0, "descriptors": 3, "shm": used}])
    judged = summarise(run).verdict
    assert judged is not None
    assert words in judged.flaws[0]


def test_a_kernel_that_counted_none_is_quoted() -> None:
    judged = summarise(killed_run((0, 9), memory_kills=0)).verdict
    assert judged is not None
    assert "but it counted none of this cgroup" in judged.flaws[0]


def test_other_loaders_workers_are_theirs() -> None:
    run = killed_run((1, 9))
    run.killed_workers["worker_pid"] = 999_999
    judged = summarise(run).verdict
    assert judged is not None
    assert not any("SIGKILL" in flaw for flaw in judged.flaws)
