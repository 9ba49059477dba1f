"""A job whose ranks wait for the data of one is judged by that one."""

from collections.abc import Iterator
from types import SimpleNamespace

import pandas as pd
import pytest

from lotus.analysis.common.run_contents import Partial, Parts, one_process
from lotus.analysis.summary import LoaderSummary, Summary, summarise
from tests.unit.simulated import Plan

FEED = 20.7  # milliseconds a batch of the slow rank


def job(blocked: float, step: float = FEED, samples: int = 40) -> SimpleNamespace:
    """Rank 1 has slow data; rank 0 has not, and is blocked in this share of its steps."""
    plans = (
        Plan(operations={"Fast": 0.1}, step=step, batches=samples),
        Plan(operations={"Slow": 10.0}, rank=1, step=0.5),
    )
    first, other = (plan.run() for plan in plans)
    for rank, run in enumerate((first, other)):
        busy = 1.0 if rank else 1.0 - blocked
        cpu = (busy * run.waits["step_ns"]).astype("int64")
        run.waits = run.waits.assign(step_cpu_ns=cpu, step_run_delay_ns=0, step_process_cpu_ns=cpu)
        for name in ("ops", "samples", "batches", "waits", "workers", "epochs"):
            table = getattr(run, name)
            setattr(run, name, table.assign(pid=table["pid"] + 100 * rank))
    for name in ("ops", "samples", "batches", "waits", "workers", "epochs", "loaders"):
        tables = [getattr(first, name), getattr(other, name)]
        setattr(first, name, pd.concat(tables, ignore_index=True))
    first.manifest["end_ns"] = max(first.manifest["end_ns"], other.manifest["end_ns"])
    return first


def judged(run: SimpleNamespace) -> tuple[Summary, LoaderSummary]:
    summary = summarise(run)
    return summary, summary.loaders[0]


def test_the_rank_that_waits_for_data_is_judged() -> None:
    summary, loader = judged(job(blocked=0.95))
    last = loader.held_up
    assert last is not None
    assert (last.rank, last.other) == (1, 0)
    assert last.other_blocked_share == pytest.approx(0.95)
    first = loader.verdict.causes[0]
    assert first.title == "Slow"
    assert first.share > 0.9
    assert loader.verdict.flaws[0].startswith("All this is about rank 1, which waits for data 9")
    # AND the rank is among the causes, with no time of its own
    last_cause = loader.verdict.causes[-1]
    assert (last_cause.kind, last_cause.is_silent) == ("slow-rank", True)
    assert last_cause.title == "rank 1, for which the others most likely wait"
    assert "is blocked for 95% of its step" in last_cause.reason
    # AND what the job would do with data always ready is what this rank's steps allow
    assert loader.times["step_limit_samples_per_s"] == pytest.approx(2 * 4 / 0.5e-3, rel=0.01)
    assert summary.time is not None
    assert summary.time.share("wait") > 0.8


def test_who_reads_the_job_reads_the_rank_again() -> None:
    read = []

    def counted(parts: Parts) -> Iterator[Partial]:
        read.append(len(parts))
        yield from one_process(parts)

    summary = summarise(job(blocked=0.95), partials=counted)
    assert summary.loaders[0].held_up is not None
    assert len(read) == 2


def without_delay() -> SimpleNamespace:
    """A kernel that does not say how long a thread was ready without a core."""
    run = job(blocked=0.95)
    run.waits["step_run_delay_ns"] = float("nan")
    return run


@pytest.mark.parametrize(
    "run",
    [
        job(blocked=0.1),
        job(blocked=0.95, step=30.0),
        job(blocked=0.95, samples=80),
        without_delay(),
    ],
    ids=["it computes", "not as long", "not together", "not measured"],
)
def test_without_evidence_all_ranks_are_judged(run: SimpleNamespace) -> None:
    _, loader = judged(run)
    assert loader.held_up is None
    assert 0.2 < loader.verdict.input_share < 0.8
    assert not any("rank 1" in flaw for flaw in loader.verdict.flaws)
