"""Predicts a traced job with other ranks, stragglers, links or splits: `lotus whatif --ranks`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from lotus.balance.rank_measurements import Job, Rank, measure
from lotus.balance.time_fit import curve
from lotus.common.errors import LotusError
from lotus.common.numbers.array_types import Floats
from lotus.reading.run import load
from lotus.settings import share_plan
from lotus.tune.simulation import model_error
from lotus.tune.simulation.job_simulation import (
    COLLECTIVES,
    Collective,
    JobOutcome,
    Member,
    Stragglers,
    simulate,
)

STEPS = 1000
_MOST_TIMES = 5000  # of one rank that are drawn from


@dataclass(frozen=True)
class JobChange:
    """The changes to a job; None: as traced. Times are nanoseconds, bandwidth is bytes/s."""

    ranks: int
    workers: int | None = None
    prefetch: int | None = None
    batch_sizes: Sequence[int] | None = None  # of each rank; as many as there are ranks
    stragglers: Stragglers = field(default_factory=Stragglers)
    collective: str = COLLECTIVES[0]
    gradients: float | None = None  # bytes that are averaged
    link_latency_ns: float | None = None
    link_bandwidth: float | None = None
    steps: int = STEPS
    seed: int = 0


@dataclass(frozen=True)
class JobPrediction:
    """The job as traced and as changed, both simulated."""

    job: Job
    question: JobChange
    today: JobOutcome
    then: JobOutcome
    collective: str  # in words: what it is taken to take
    notes: tuple[str, ...]

    @property
    def measured_s(self) -> float:
        """Mean step of the traced job; NaN if it is not known."""
        return self.job.measured_ns / 1e9

    @property
    def error(self) -> float:
        """The relative error of the simulated step of the unchanged job."""
        return self.today.step_s / self.measured_s - 1.0 if self.measured_s > 0 else math.nan

    @property
    def times(self) -> float | None:
        """The speed-up in samples per second; None if that error is too large."""
        if not model_error.predicts(self.error):
            return None
        return self.then.samples_per_s / self.today.samples_per_s


def stragglers(ranks: int | None, chance: float | None, times: float | None) -> Stragglers:
    """Return the stragglers that were asked for; None: not given.

    Raises LotusError if it was only said how slow they are.
    """
    if times is not None and not (ranks or chance):
        raise LotusError("--slower needs --stragglers N or --straggler-chance P")
    return Stragglers(ranks or 0, chance or 0.0, Stragglers.times if times is None else times)


def answer_of_run(
    path: Path, question: JobChange, loader: int | None = None, plan: Path | None = None
) -> JobPrediction:
    """Read the run of a job and answer a question about one of its loaders.

    `plan` is a balance.json, whose batch sizes replace those of `question`. Raises LotusError.
    """
    if plan is not None:
        question = replace(question, batch_sizes=share_plan.read(plan).batch_sizes)
    return answer(measure(load(path), loader), question)


def answer(job: Job, question: JobChange) -> JobPrediction:
    """Simulate the job with and without the changes. Raises LotusError for impossible changes."""
    own = 0.0 if math.isnan(job.collective_ns) else job.collective_ns
    notes = list(job.notes)
    collective, words = _collective(job, question, notes)
    count = len(job.ranks)
    if question.ranks > count:
        notes.append(
            f"rank n of {question.ranks:,} runs as the traced rank n mod {count}, with times drawn "
            "independently: what slows all ranks at once is not modelled"
        )
    if question.workers is not None:
        notes.append("a worker's time for a batch is taken as traced, however many workers share "
                     "the cores")  # fmt: skip
    if question.stragglers.ranks > question.ranks:
        raise LotusError(
            f"{question.stragglers.ranks} stragglers are more than there are ranks: "
            f"--stragglers {question.ranks} at most"
        )
    sizes = question.batch_sizes
    if sizes is not None and len(sizes) != question.ranks:
        raise LotusError(
            f"the plan is for {len(sizes)} ranks, not for {question.ranks}: use --ranks "
            f"{len(sizes)}"
        )
    today = simulate(
        [_member(rank) for rank in job.ranks],
        steps=question.steps,
        collective_ns=own,
        seed=question.seed,
    )
    members = [
        _member(
            job.ranks[rank % count],
            question.workers,
            question.prefetch,
            None if sizes is None else sizes[rank],
        )
        for rank in range(question.ranks)
    ]
    then = simulate(
        members,
        steps=question.steps,
        collective_ns=collective,
        stragglers=question.stragglers,
        seed=question.seed,
    )
    prediction = JobPrediction(job, question, today, then, words, ())
    if model_error.far_off(prediction.error):
        notes.insert(0, model_error.far_off(prediction.error))
    return JobPrediction(job, question, today, then, words, tuple(dict.fromkeys(notes)))


def _member(
    rank: Rank, workers: int | None = None, prefetch: int | None = None, size: int | None = None
) -> Member:
    """Return the rank with batches of one size: the requested one, else its usual one."""
    requested = float(rank.batch if size is None else size)
    rank_curve = curve(rank)
    own_workers = rank.workers if workers is None else workers
    step = rank.step_ns * _scale(
        rank_curve.step.at(requested), [rank_curve.step.at(n) for n in rank.sizes]
    )
    lanes = max(rank.workers, 1)
    fetch = rank.fetch_ns * _scale(
        rank_curve.input.at(requested) * lanes,
        [rank_curve.input.at(n) * lanes for n in rank.fetch_sizes],
    )
    return Member(
        step_ns=step[-_MOST_TIMES:],
        fetch_ns=fetch[-_MOST_TIMES:],
        samples=requested,
        workers=own_workers,
        prefetch=rank.prefetch if prefetch is None else prefetch,
    )


def _scale(wanted: float, was: Sequence[float]) -> Floats:
    before = np.array(was, np.float64)
    return np.asarray(np.divide(wanted, before, out=np.ones_like(before), where=before > 0))


def _collective(job: Job, question: JobChange, notes: list[str]) -> tuple[float, str]:
    """Return the ns of the collective with this number of ranks, and how they were obtained."""
    link = (question.gradients, question.link_bandwidth)
    ranks, count, kind = question.ranks, len(job.ranks), question.collective
    if any(option is not None for option in (*link, question.link_latency_ns)):
        if question.gradients is None or question.link_bandwidth is None:
            raise LotusError("a collective by its links needs --gradients and --link-bandwidth")
        simulated = Collective(
            kind, question.gradients, question.link_latency_ns or 0.0, question.link_bandwidth
        )
        return simulated.ns(ranks), f"{kind} all-reduce by its formula, none of it overlapped"
    if math.isnan(job.collective_ns):
        notes.append(
            "the collective is taken as 0, as the synchronisation was not traced: --gradients and "
            "--link-bandwidth say what it is"
        )
        return 0.0, "not traced"
    if ranks == count:
        return job.collective_ns, "as traced, after the last rank's arrival"
    if ranks < 2:
        return 0.0, "none with one rank"
    if kind == "tree":
        rounds = math.ceil(math.log2(ranks)) / math.ceil(math.log2(count))
        return (
            job.collective_ns * rounds,
            f"as traced with {count} ranks, {rounds:.2f} times (tree)",
        )
    # Its two terms grow as (N - 1) / N and as N - 1; a trace does not tell them apart.
    moved = ((ranks - 1) / ranks) / ((count - 1) / count)
    waited = (ranks - 1) / (count - 1)
    notes.append(
        f"how much of the traced collective is latency is not known: all of it is taken as "
        f"bandwidth, {moved:.2f} times with {ranks} ranks in a ring; if all were latency, it would "
        f"be {waited:.1f} times, {job.collective_ns * waited / 1e6:.3g} ms (--gradients and "
        "--link-bandwidth give a better estimate)"
    )
    return job.collective_ns * moved, f"as traced with {count} ranks, {moved:.2f} times (ring)"
