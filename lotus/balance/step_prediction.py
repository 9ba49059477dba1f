"""Predicts the mean step of the whole job with given batch sizes, with its 95 % interval.

`predict_each` predicts other quantities of the ranks' times in the same way.

A step ends when its slowest rank does, so the prediction is the mean over steps of the slowest
rank's time, not the slowest mean: each recorded step is replayed with every rank's time scaled to
its new batch by its fitted line. On average an input cannot be faster than its workers make batches
(prefetching evens out single ones); workers continue while gradients are averaged. The interval is
that of the block bootstrap over steps (all ranks together, as disturbances often affect all) and
over batches, with lines fitted to each replicate. If lines rest on an assumption, the interval
covers the assumption's bounds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lotus.balance.rank_measurements import Job, Rank
from lotus.balance.time_fit import Curve, LinearFit, curve, fit
from lotus.common.numbers import bootstrap
from lotus.common.numbers.array_types import Bools, Floats, Ints
from lotus.common.numbers.statistics import t_quantile

REPLICATES = 200
_MOST_STEPS = 1000
_MOST_WORK = 40_000_000  # rank-steps over all replicates; with more ranks fewer are made


@dataclass(frozen=True)
class Predicted:
    """Seconds per step; `low` and `high`: the 95 % interval, NaN if too few steps were recorded."""

    seconds: float
    low: float
    high: float

    def many(self, count: float) -> "Predicted":
        """Return the time of `count` such steps."""
        return Predicted(self.seconds * count, self.low * count, self.high * count)


@dataclass(frozen=True)
class Steps:
    """The steps that all ranks made, in order: arrays (steps, ranks)."""

    size: Floats
    ns: Floats


@dataclass(frozen=True)
class Taken:
    """The ranks' times (ns) with batches of given sizes, as recorded or resampled."""

    own: Floats  # a rank's own part of each step: (steps, ranks)
    input: Floats  # its input for a batch, on average: (ranks,)
    in_turn: Bools  # one follows the other: (ranks,)

    def whole(self, collective_ns: float | Floats = 0.0) -> Floats:
        """Return each step's time with its input and a collective (one time, or one per rank):
        (steps, ranks).
        """
        return self._with_input(self.own + collective_ns, 1)

    def mean(self) -> Floats:
        """Return each rank's mean step if it waited for no other: (ranks,)."""
        return self._with_input(self.own.mean(axis=0), 1)

    def in_a_row(self, count: int, collective_ns: float = 0.0) -> Floats:
        """Return the times of `count` successive steps without waiting for others, and one
        collective after the last: (rows, ranks).
        """
        return self._with_input(in_a_row(self.own, count) + collective_ns, count)

    def _with_input(self, own: Floats, steps: int) -> Floats:
        input_times = steps * self.input
        return np.where(self.in_turn, own + input_times, np.maximum(own, input_times))


def in_a_row(values: Floats, count: int) -> Floats:
    """Return the sums of `count` successive rows of (n, c): (n - count + 1, c)."""
    running = np.concatenate((np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)))
    return np.asarray(running[count:] - running[:-count])


def aligned(job: Job, stretch: int = 1) -> Steps:
    """Return the steps recorded on every rank, matched by key, or by order if too few keys match.

    If there are too many steps, evenly spaced stretches of `stretch` steps are kept.
    """
    common = job.ranks[0].key
    for rank in job.ranks[1:]:
        common = np.intersect1d(common, rank.key)
    rows = []
    for rank in job.ranks:
        order = np.argsort(rank.key, kind="stable")
        place = order[np.searchsorted(rank.key[order], common)] if len(common) else order[:0]
        rows.append(place)
    least = min(len(rank.key) for rank in job.ranks)
    if len(common) < max(2, least // 2):
        rows = [np.arange(least) for _ in job.ranks]
    kept = _thinned(len(rows[0]), stretch)
    pairs = list(zip(job.ranks, rows, strict=True))
    return Steps(
        np.column_stack([rank.sizes[place][kept] for rank, place in pairs]),
        np.column_stack([rank.step_ns[place][kept] for rank, place in pairs]),
    )


def _thinned(count: int, stretch: int) -> Ints:
    """Return which of `count` rows are kept. The bootstrap's blocks consist of these."""
    if count <= _MOST_STEPS:
        return np.arange(count)
    first = np.linspace(0, count - stretch, _MOST_STEPS // stretch).astype(np.int64)
    return np.unique(first[:, None] + np.arange(stretch))


def predict(job: Job, sizes: Sequence[int], seed: int = 0) -> Predicted:
    """Predict a step with these batch sizes, one per rank."""

    def step(taken: Taken) -> Floats:
        return np.array([taken.whole(collective(job)).max(axis=1).mean()])

    (predicted,) = predict_each(job, sizes, step, seed)
    return predicted


def predict_each(
    job: Job,
    sizes: Sequence[int],
    of: Callable[[Taken], Floats],
    seed: int = 0,
    stretch: int = 1,
) -> list[Predicted]:
    """Predict other quantities of the ranks' times with these batch sizes, one per rank.

    `of` computes times (k,) in ns from them. `stretch`: as for `aligned`.
    """
    curves = [curve(rank) for rank in job.ranks]
    steps = aligned(job, stretch)
    new_sizes = np.array(sizes, np.float64)

    def value(curves: Sequence[Curve]) -> Floats:
        arrays = _Arrays.of(curves, new_sizes)
        return of(arrays.taken(steps, new_sizes, arrays.input))

    values = value(curves)
    spread = _spread(job, steps, curves, new_sizes, of, seed)
    ends = np.array(
        [values]
        + [
            value(
                [
                    replace(rank_curve, step=bound(rank_curve.step), input=bound(rank_curve.input))
                    for rank_curve in curves
                ]
            )
            for bound in (LinearFit.lowest, LinearFit.highest)
        ]
    )
    low, high = np.maximum(ends.min(axis=0) - spread, 0.0), ends.max(axis=0) + spread
    return [
        Predicted(*(float(time_ns) / 1e9 for time_ns in row))
        for row in zip(values, low, high, strict=True)
    ]


def taken(job: Job, sizes: Sequence[int], stretch: int = 1) -> Taken:
    """Return the ranks' times with these batch sizes, from the recorded steps."""
    new_sizes = np.array(sizes, np.float64)
    arrays = _Arrays.of([curve(rank) for rank in job.ranks], new_sizes)
    return arrays.taken(aligned(job, stretch), new_sizes, arrays.input)


def collective(job: Job) -> float:
    """Return the ns of a collective after the last rank has arrived; 0 if it was not traced."""
    return 0.0 if math.isnan(job.collective_ns) else job.collective_ns


def mean_step(
    steps: Steps, curves: Sequence[Curve], sizes: Floats, collective_ns: float = 0.0
) -> float:
    """Return the mean over steps of the slowest rank's time, ns."""
    arrays = _Arrays.of(curves, sizes)
    return float(arrays.taken(steps, sizes, arrays.input).whole(collective_ns).max(axis=1).mean())


@dataclass(frozen=True)
class _Arrays:
    """Curves as arrays (ranks,): the lines of steps, and the input times for given sizes."""

    fixed: Floats
    slope: Floats
    input: Floats
    in_turn: Bools

    @staticmethod
    def of(curves: Sequence[Curve], sizes: Floats) -> "_Arrays":
        return _Arrays(
            np.array([rank_curve.step.fixed for rank_curve in curves]),
            np.array([rank_curve.step.slope for rank_curve in curves]),
            np.array(
                [rank_curve.input.at(size) for rank_curve, size in zip(curves, sizes, strict=True)]
            ),
            np.array([rank_curve.in_turn for rank_curve in curves], np.bool_),
        )

    def taken(self, steps: Steps, sizes: Floats, made: Floats) -> Taken:
        was = self.fixed + self.slope * steps.size
        then = self.fixed + self.slope * sizes
        scale = np.divide(then, was, out=np.ones_like(was), where=was > 0)
        return Taken(steps.ns * scale, made, self.in_turn)


def _spread(
    job: Job,
    steps: Steps,
    curves: Sequence[Curve],
    sizes: Floats,
    of: Callable[[Taken], Floats],
    seed: int,
) -> float | Floats:
    """Return half the width of the 95 % intervals, ns; NaN if unknown."""
    count = len(steps.ns)
    slowest = steps.ns.max(axis=1, keepdims=True)
    length = bootstrap.block_length(slowest - slowest.mean())
    number = bootstrap.blocks(count, length)
    if number < bootstrap.LEAST_BLOCKS:
        return math.nan
    random = np.random.default_rng(seed)
    replicates = max(20, min(REPLICATES, _MOST_WORK // max(steps.ns.size, 1)))
    # The line does not matter for batches whose size is unchanged.
    changed = (steps.size != sizes).any(axis=0)
    refitted = [
        place
        for place, rank_curve in enumerate(curves)
        if changed[place] and rank_curve.step.how != "assumed"
    ]
    inputs = np.column_stack([_input_errors(rank, random, replicates) for rank in job.ranks])
    arrays = _Arrays.of(curves, sizes)
    outcomes = []
    for turn in range(replicates):
        rows = bootstrap.draw_rows(count, length, random)
        drawn = Steps(steps.size[rows], steps.ns[rows])
        again = replace(arrays, fixed=arrays.fixed.copy(), slope=arrays.slope.copy())
        for place in refitted:
            line = fit(drawn.size[:, place], drawn.ns[:, place])
            again.fixed[place], again.slope[place] = line.fixed, line.slope
        outcomes.append(
            of(again.taken(drawn, sizes, arrays.input * np.maximum(1.0 + inputs[turn], 0.0)))
        )
    error = np.std(outcomes, axis=0, ddof=1) * bootstrap.widening(number)
    return np.asarray(error * t_quantile(number - 1))


def _input_errors(rank: Rank, random: np.random.Generator, replicates: int) -> Floats:
    """Return relative errors of the mean time of a batch, resampled in blocks."""
    times = rank.fetch_ns / np.maximum(rank.fetch_sizes, 1.0)
    return bootstrap.mean_deviations(times, replicates, random)
