"""How long a step of the whole job takes with given batch sizes, with its 95 % interval.

A step ends when its slowest rank does, so the mean over steps of the slowest counts, not the
slowest mean: each recorded step is taken again, every rank's time scaled to its new batch by its
fitted line. An input cannot be quicker than its workers make batches, on average (prefetching
evens single ones out). The interval is that of the block bootstrap over steps (all ranks
together, as what disturbs one often disturbs all) and over batches, lines fitted anew each time;
where lines rest on an assumption, it reaches over all that the assumption's bounds allow.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lotus.analysis.bootstrap import LEAST_BLOCKS, block_length, blocks, t_quantile
from lotus.analysis.columns import Bools, Floats
from lotus.balance.fit import Curve, Line, curve, fit
from lotus.balance.measured import Job, Rank

REPLICATES = 200
_MOST_STEPS = 1000
_MOST_WORK = 40_000_000  # rank-steps over all replicates; with more ranks fewer are made


@dataclass(frozen=True)
class Predicted:
    """Seconds of a step; low and high: 95 %, NaN where too few steps were recorded."""

    seconds: float
    low: float
    high: float


@dataclass(frozen=True)
class Steps:
    """The steps that all ranks took, in their order: (steps, ranks)."""

    size: Floats
    ns: Floats


def aligned(job: Job) -> Steps:
    """The steps that are recorded of every rank; in order, where keys have too few in common."""
    common = job.ranks[0].key
    for one in job.ranks[1:]:
        common = np.intersect1d(common, one.key)
    rows = []
    for one in job.ranks:
        order = np.argsort(one.key, kind="stable")
        place = order[np.searchsorted(one.key[order], common)] if len(common) else order[:0]
        rows.append(place)
    least = min(len(one.key) for one in job.ranks)
    if len(common) < max(2, least // 2):
        rows = [np.arange(least) for _ in job.ranks]
    # Evenly thinned: the bootstrap's blocks are of what is left.
    kept = np.unique(np.linspace(0, len(rows[0]) - 1, min(len(rows[0]), _MOST_STEPS)).astype(int))
    pairs = list(zip(job.ranks, rows, strict=True))
    return Steps(
        np.column_stack([one.sizes[place][kept] for one, place in pairs]),
        np.column_stack([one.step_ns[place][kept] for one, place in pairs]),
    )


def predict(job: Job, sizes: Sequence[int], seed: int = 0) -> Predicted:
    """What a step takes with these batch sizes, one for each rank."""
    curves = [curve(one) for one in job.ranks]
    steps = aligned(job)
    wanted = np.array(sizes, np.float64)
    collective = 0.0 if math.isnan(job.collective_ns) else job.collective_ns
    value = mean_step(steps, curves, wanted) + collective
    spread = _spread(job, steps, curves, wanted, seed)
    ends = [value]
    for bound in (Line.lowest, Line.highest):
        bounded = [replace(one, step=bound(one.step), input=bound(one.input)) for one in curves]
        ends.append(mean_step(steps, bounded, wanted) + collective)
    low, high = max(min(ends) - spread, 0.0), max(ends) + spread
    return Predicted(value / 1e9, low / 1e9, high / 1e9)


def mean_step(steps: Steps, curves: Sequence[Curve], sizes: Floats) -> float:
    """Mean over the steps of the slowest rank's time, ns."""
    made = _Arrays.of(curves, sizes)
    return made.mean_step(steps, sizes, made.input)


@dataclass(frozen=True)
class _Arrays:
    """Curves as arrays (ranks,): the lines of steps, and what inputs take for some sizes."""

    fixed: Floats
    slope: Floats
    input: Floats
    in_turn: Bools

    @staticmethod
    def of(curves: Sequence[Curve], sizes: Floats) -> "_Arrays":
        return _Arrays(
            np.array([one.step.fixed for one in curves]),
            np.array([one.step.slope for one in curves]),
            np.array([one.input.at(size) for one, size in zip(curves, sizes, strict=True)]),
            np.array([one.in_turn for one in curves], np.bool_),
        )

    def mean_step(self, steps: Steps, sizes: Floats, made: Floats) -> float:
        was = self.fixed + self.slope * steps.size
        then = self.fixed + self.slope * sizes
        scale = np.divide(then, was, out=np.ones_like(was), where=was > 0)
        own = steps.ns * scale
        own = np.where(self.in_turn, own + made, np.maximum(own, made))
        return float(own.max(axis=1).mean())


def _spread(job: Job, steps: Steps, curves: Sequence[Curve], sizes: Floats, seed: int) -> float:
    """Half of the 95 % interval, ns; NaN where it cannot be told."""
    count = len(steps.ns)
    slowest = steps.ns.max(axis=1, keepdims=True)
    length = block_length(slowest - slowest.mean())
    number = blocks(count, length)
    if number < LEAST_BLOCKS:
        return math.nan
    random = np.random.default_rng(seed)
    replicates = max(20, min(REPLICATES, _MOST_WORK // max(steps.ns.size, 1)))
    refitted = [place for place, one in enumerate(curves) if one.step.how != "assumed"]
    inputs = np.column_stack([_input_errors(one, random, replicates) for one in job.ranks])
    made = _Arrays.of(curves, sizes)
    found = np.empty(replicates)
    for turn in range(replicates):
        start = random.integers(0, count, number)
        rows = ((start[:, None] + np.arange(length)).ravel() % count)[:count]
        drawn = Steps(steps.size[rows], steps.ns[rows])
        again = replace(made, fixed=made.fixed.copy(), slope=made.slope.copy())
        for place in refitted:
            line = fit(drawn.size[:, place], drawn.ns[:, place])
            again.fixed[place], again.slope[place] = line.fixed, line.slope
        found[turn] = again.mean_step(
            drawn, sizes, made.input * np.maximum(1.0 + inputs[turn], 0.0)
        )
    # Drawing from k blocks has (k - 1) / k of the variance that is sought.
    error = float(found.std(ddof=1)) * math.sqrt(number / (number - 1))
    return error * t_quantile(number - 1)


def _input_errors(rank: Rank, random: np.random.Generator, replicates: int) -> Floats:
    """Relative errors of the mean time of a batch, as drawn in blocks."""
    times = rank.fetch_ns / np.maximum(rank.fetch_sizes, 1.0)
    mean = float(times.mean())
    length = block_length((times - mean)[:, None])
    number = blocks(len(times), length)
    if number < 2 or not mean > 0:
        return np.zeros(replicates)
    rows = np.concatenate((times, times))
    running = np.concatenate(([0.0], np.cumsum(rows)))
    sums = running[length : length + len(times)] - running[: len(times)]
    drawn = sums[random.integers(0, len(times), (replicates, number))].mean(axis=1) / length
    return np.asarray((drawn / mean - 1.0) * math.sqrt(number / (number - 1)))
