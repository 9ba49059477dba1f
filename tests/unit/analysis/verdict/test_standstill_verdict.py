"""The verdict on a loop in which nothing moved any more when its program was ended."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.summary import summarise
from lotus.analysis.verdict.verdict import STANDSTILL, Verdict
from lotus.common.text.formatting import duration
from tests.unit.simulated import Plan

SECOND = 1_000_000_000


def stood(seconds: float, signal: int | None = 2, plan: Plan | None = None, **row: Any) -> Any:
    """A run that was ended after a worker, or all, had stood for so long."""
    run = (plan or Plan()).run()
    since = int(np.nanmax(run.batches["fetch_start_ns"] + run.batches["fetch_ns"]))
    seen = since + int(seconds * SECOND)
    pids = run.batches.groupby("worker")["pid"].first()
    rows = [
        {
            "pid": pid, "worker": worker, "operation": "", "reason": "lock", "looks": 100,
            "alike": 100, "place": "", "since_ns": since, "seen_ns": seen,
        } | row
        for worker, pid in pids.items()
    ]  # fmt: skip
    run.standing = pd.DataFrame(rows)
    run.manifest |= {"signal": signal, "exit_code": None if signal else 0, "end_ns": seen}
    run.own_code = pd.DataFrame(
        [
            {
                "part": "standing", "stack": 0, "depth": 0, "function": "Data.__getitem__",
                "file": "/home/me/data.py", "line": 12, "text": "self.lock.acquire()",
                "samples": 90,
            }
        ]
    )  # fmt: skip
    # The last wait was broken off.
    run.epochs["end_ns"], run.epochs["exhausted"] = float(seen), False
    run.waits.loc[run.waits.index[-1], "wait_ns"] += seen - since
    return run


def judged(run: SimpleNamespace) -> Verdict:
    verdict = summarise(run).verdict
    assert verdict is not None
    return verdict


def test_workers_that_stood_to_the_end_are_the_answer() -> None:
    said = judged(stood(60))
    assert said.kind == STANDSTILL
    assert said.summary == (
        "Nothing moved in the last 60.0 s of the loop: workers 0 and 1 stand at "
        "Data.__getitem__ (data.py:12: `self.lock.acquire()`), and wait for other threads of "
        "their processes."
    )
    assert [cause.kind for cause in said.causes] == ["standing"]
    assert said.causes[0].title.endswith("standing still at Data.__getitem__ (data.py:12)")
    assert "who holds the lock" in said.causes[0].advice
    assert np.isnan(said.causes[0].gain)


def test_forked_workers_that_compute_in_several_threads_get_advice_of_their_own() -> None:
    run = stood(60)
    run.workers["torch_threads"] = 4
    assert "Let torch compute in one thread in a worker" in judged(run).causes[0].advice
    run.loaders["start_method"] = "spawn"
    assert "who holds the lock" in judged(run).causes[0].advice


@pytest.mark.parametrize(
    "run",
    [
        stood(8),  # shorter than any hang
        stood(60, signal=None),  # the program ended by itself: it was a pause
        stood(60, reason="computing"),
        stood(60, alike=60),  # of 100 looks: it did something in between
        stood(60, seen_ns=int(6 * SECOND)),  # long before the end
        stood(60, operation="(next)"),
        stood(60, pid=999),  # of another program's
        stood(60, plan=Plan(step=5000.0, batches=4)),  # batches usually take that long
    ],
)
def test_what_is_no_standstill_is_judged_as_before(run: SimpleNamespace) -> None:
    assert judged(run).kind != STANDSTILL


def test_a_long_loop_that_stood_for_a_small_part_of_it_is_judged_with_a_remark() -> None:
    run = stood(15, plan=Plan(step=400.0, batches=400))
    still = float(run.standing["seen_ns"].max() - run.waits["start_ns"].max())  # the last `next`
    said = judged(run)
    assert said.kind == "consumer-bound"
    assert said.flaws[0].startswith(
        f"Nothing moved in the last {duration(still)} of the loop: workers 0 and 1"
    )


def test_a_step_that_stood_is_named() -> None:
    run = stood(60, worker=-1, operation="(step)", reason="socket", place="10.0.0.7:29500")
    run.standing = run.standing.iloc[:1].assign(pid=int(run.epochs["pid"].iloc[0]))
    said = judged(run)
    assert said.kind == STANDSTILL
    assert "the training step stands at" in said.summary
    assert "waits for the network (10.0.0.7:29500)" in said.summary


def test_a_run_of_an_older_lotus_is_judged_as_before() -> None:
    run = stood(60)
    del run.standing
    assert judged(run).kind != STANDSTILL
