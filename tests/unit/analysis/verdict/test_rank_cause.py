"""The rank that comes last most often is among the causes, and changes none of the others."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.summary import Summary, summarise
from lotus.analysis.verdict.rank_cause import with_straggler
from lotus.analysis.verdict.verdict import Cause, Verdict
from tests.unit.simulated import MS, Plan

STEPS = 60
_TABLES = ("ops", "samples", "batches", "waits", "workers", "epochs")


def job(sample: Sequence[float], step: Sequence[float], hosts: str = "aaaa") -> SimpleNamespace:
    """Ranks without workers that average after each step: the early ones wait for the last.

    Milliseconds by rank: to make a sample, and from a batch to its gradients, give or take 5 %.
    """
    count = len(sample)
    plans = [
        Plan(workers=0, batches=STEPS, rank=rank, operations={"Loader": each})
        for rank, each in enumerate(sample)
    ]
    making = np.array([(sum(p.operations.values()) + p.own) * p.batch_size for p in plans])
    making += plans[0].collate
    noise = np.random.default_rng(7).standard_normal((count, STEPS))
    own = np.array(step)[:, None] * (1 + 0.05 * noise)
    together = (making[:, None] + own).max(axis=0) + 1.0  # ms; the averaging takes 1
    runs = []
    for rank, plan in enumerate(plans):
        steps = (together - making[rank]).tolist()
        run = replace(plan, step=steps.__getitem__).run()
        for name in _TABLES:
            table = getattr(run, name)
            if len(table):
                whose = {"pid": table["pid"] + 100 * rank, "host": hosts[rank]}
                setattr(run, name, table.assign(**whose))
        taken = run.waits["start_ns"] + run.waits["wait_ns"]
        ready = taken + (own[rank] * MS).astype("int64")
        end = taken + run.waits["step_ns"]
        run.syncs = pd.DataFrame(
            {"rank": rank, "local_rank": rank, "world_size": count, "host": hosts[rank],
             "pid": 1 + 100 * rank, "step": range(STEPS), "start_ns": ready - MS // 10,
             "ready_ns": ready, "end_ns": end, "exposed_ns": end - ready}
        )  # fmt: skip
        runs.append(run)
    whole = runs[0]
    for name in (*_TABLES, "loaders", "syncs"):
        setattr(whole, name, pd.concat([getattr(run, name) for run in runs], ignore_index=True))
    whole.manifest |= {
        "end_ns": max(run.manifest["end_ns"] for run in runs),
        "host": hosts[0],
        "hosts": [
            {"host": host, "offset_ns": 0, "drift_ppb": 0, "error_ns": 0} for host in set(hosts)
        ],
    }
    return whole


def judged(summary: Summary) -> tuple[Verdict, list[Cause]]:
    """The verdict on the run, and the ranks among its causes."""
    verdict = summary.verdict
    assert verdict is not None
    return verdict, [cause for cause in verdict.causes if cause.kind == "slow-rank"]


@pytest.mark.parametrize(
    ("sample", "step", "behind_ms"),
    [([1, 1, 4], [8, 8, 8], 12), ([1, 1, 1], [8, 8, 14], 6), ([0.01] * 3, [8, 8, 14], 6)],
    ids=["slow data", "a slow step", "a slow step, hardly any wait"],
)
def test_a_straggler_is_a_cause_without_time(
    sample: list[float], step: list[float], behind_ms: float
) -> None:
    summary = summarise(job(sample, step))
    verdict, [last] = judged(summary)
    assert last.title == "rank 2, which comes last most often"
    assert (last.evidence["late_rank"], last.evidence["last_share"]) == (2, 1)
    assert last.evidence["behind_ns"] == pytest.approx(behind_ms * MS, rel=0.1)
    assert last.reason.startswith("It came last in 100% of the steps, ")
    assert (last.is_silent, last.share, last.ns) == (True, 0, 0)
    # AND it comes after the others, which are what they are without it
    of_loader = summary.loaders[0].verdict
    assert [cause.kind for cause in verdict.causes[:-1]] == [
        cause.kind for cause in of_loader.causes
    ]
    assert replace(verdict, causes=[]) == replace(of_loader, causes=[])
    # AND nobody who follows its advice changes the loader, or undoes what another cause advises
    assert not last.remedy.of_loader
    assert not last.remedy.setting | last.remedy.environment
    assert not any(last.remedy.contradicts(cause.remedy) for cause in verdict.causes)
    assert "`lotus balance` divides a batch among ranks of unequal speed" in last.advice


def test_of_equal_ranks_none_is_named() -> None:
    summary = summarise(job([1, 1, 1], [8, 8, 8]))
    assert judged(summary)[1] == []
    # AND each was last at times
    assert summary.ranks is not None
    assert (summary.ranks.table["last_steps"] > 0).all()


def test_of_a_host_whose_ranks_all_come_last_none_is_named() -> None:
    summary = summarise(job([1, 1, 1, 1], [8, 8, 14, 14], hosts="aabb"))
    assert summary.ranks is not None
    assert [straggler.ranks for straggler in summary.ranks.stragglers] == [[2, 3]]
    assert judged(summary)[1] == []


def test_the_rank_is_named_once() -> None:
    summary = summarise(job([1, 1, 4], [8, 8, 8]))
    verdict, named = judged(summary)
    assert len(named) == 1
    assert with_straggler(verdict, summary.ranks) is verdict


def test_a_loop_that_is_not_judged_gets_no_cause() -> None:
    """What makes the rank late is said to be among the other causes: there are none."""
    few = "Only 2 batches were taken: too few to judge."
    unknown = Verdict("unknown", "", few, 1.0, 0.0, 0.0, 0.0, [])
    summary = summarise(job([1, 1, 4], [8, 8, 8]))
    assert summary.ranks is not None
    assert with_straggler(unknown, summary.ranks) is unknown
