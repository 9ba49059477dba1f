"""How long a step of the whole job takes with given batch sizes, with its 95 % interval.

Or whatever else follows from what the ranks take (`predict_each`).

A step ends when its slowest rank does, so the mean over steps of the slowest counts, not the
slowest mean: each recorded step is taken again, every rank's time scaled to its new batch by its
fitted line. An input cannot be quicker than its workers make batches, on average (prefetching evens
single ones out); they go on while gradients are averaged. The interval is that of the block
bootstrap over steps (all ranks together, as what disturbs one often disturbs all) and over batches,
lines fitted anew each time; where lines rest on an assumption, it reaches over all that the
assumption's bounds allow.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lotus.analysis.common.columns import Bools, Floats, Ints
from lotus.balance.rank_measurements import Job, Rank
from lotus.balance.time_fit import Curve, LinearFit, curve, fit
from lotus.common import bootstrap
from lotus.common.statistics import t_quantile

REPLICATES = 200
_MOST_STEPS = 1000
_MOST_WORK = 40_000_000  # rank-steps over all replicates; with more ranks fewer are made


@dataclass(frozen=True)
class Predicted:
    """Seconds of a step; low and high: 95 %, NaN where too few steps were recorded."""

    seconds: float
    low: float
    high: float

    def many(self, count: float) -> "Predicted":
        """So many of them."""
        return Predicted(self.seconds * count, self.low * count, self.high * count)


@dataclass(frozen=True)
class Steps:
    """The steps that all ranks took, in their order: (steps, ranks)."""

    size: Floats
    ns: Floats


@dataclass(frozen=True)
class Taken:
    """What ranks take for batches of some sizes, as recorded or as drawn anew, ns."""

    own: Floats  # a rank's own part of each step: (steps, ranks)
    input: Floats  # its input for a batch, on average: (ranks,)
    in_turn: Bools  # whether one follows the other: (ranks,)

    def whole(self, collective_ns: float | Floats = 0.0) -> Floats:
        """Every step with its input, and a collective, or each rank's, after its own part:
        (steps, ranks)."""
        return self._with_input(self.own + collective_ns, 1)

    def mean(self) -> Floats:
        """What a rank that waits for no other takes for a step: (ranks,)."""
        return self._with_input(self.own.mean(axis=0), 1)

    def in_a_row(self, count: int, collective_ns: float = 0.0) -> Floats:
        """What `count` steps in a row take without waiting for others, and one collective after
        the last of them: (rows of them, ranks)."""
        return self._with_input(in_a_row(self.own, count) + collective_ns, count)

    def _with_input(self, own: Floats, steps: int) -> Floats:
        made = steps * self.input
        return np.where(self.in_turn, own + made, np.maximum(own, made))


def in_a_row(values: Floats, count: int) -> Floats:
    """Sums of `count` rows that follow each other, of (n, c): (n - count + 1, c)."""
    running = np.concatenate((np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)))
    return np.asarray(running[count:] - running[:-count])


def aligned(job: Job, stretch: int = 1) -> Steps:
    """The steps that are recorded of every rank; in order, where keys have too few in common.

    Of more than can be worked with only some are taken, evenly: `stretch` in a row.
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
    """Which of so many rows are taken. The bootstrap's blocks are of what is left."""
    if count <= _MOST_STEPS:
        return np.arange(count)
    first = np.linspace(0, count - stretch, _MOST_STEPS // stretch).astype(np.int64)
    return np.unique(first[:, None] + np.arange(stretch))


def predict(job: Job, sizes: Sequence[int], seed: int = 0) -> Predicted:
    """What a step takes with these batch sizes, one for each rank."""

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
    """Whatever follows from what the ranks take with these batch sizes, one for each rank.

    `of` makes times (k,), ns, of it. `stretch`: as `aligned` has it.
    """
    curves = [curve(rank) for rank in job.ranks]
    steps = aligned(job, stretch)
    wanted = np.array(sizes, np.float64)

    def value(curves: Sequence[Curve]) -> Floats:
        made = _Arrays.of(curves, wanted)
        return of(made.taken(steps, wanted, made.input))

    values = value(curves)
    spread = _spread(job, steps, curves, wanted, of, seed)
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
    """What the ranks take with these batch sizes, by the recorded steps."""
    wanted = np.array(sizes, np.float64)
    made = _Arrays.of([curve(rank) for rank in job.ranks], wanted)
    return made.taken(aligned(job, stretch), wanted, made.input)


def collective(job: Job) -> float:
    """What ranks take after the last has arrived, ns; 0 where that was not traced."""
    return 0.0 if math.isnan(job.collective_ns) else job.collective_ns


def mean_step(
    steps: Steps, curves: Sequence[Curve], sizes: Floats, collective_ns: float = 0.0
) -> float:
    """Mean over the steps of the slowest rank's time, ns."""
    made = _Arrays.of(curves, sizes)
    return float(made.taken(steps, sizes, made.input).whole(collective_ns).max(axis=1).mean())


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
    """Half of the 95 % intervals, ns; NaN where it cannot be told."""
    count = len(steps.ns)
    slowest = steps.ns.max(axis=1, keepdims=True)
    length = bootstrap.block_length(slowest - slowest.mean())
    number = bootstrap.blocks(count, length)
    if number < bootstrap.LEAST_BLOCKS:
        return math.nan
    random = np.random.default_rng(seed)
    replicates = max(20, min(REPLICATES, _MOST_WORK // max(steps.ns.size, 1)))
    # A line says nothing of batches that stay as they were.
    changed = (steps.size != sizes).any(axis=0)
    refitted = [
        place
        for place, rank_curve in enumerate(curves)
        if changed[place] and rank_curve.step.how != "assumed"
    ]
    inputs = np.column_stack([_input_errors(rank, random, replicates) for rank in job.ranks])
    made = _Arrays.of(curves, sizes)
    outcomes = []
    for turn in range(replicates):
        rows = bootstrap.draw_rows(count, length, random)
        drawn = Steps(steps.size[rows], steps.ns[rows])
        again = replace(made, fixed=made.fixed.copy(), slope=made.slope.copy())
        for place in refitted:
            line = fit(drawn.size[:, place], drawn.ns[:, place])
            again.fixed[place], again.slope[place] = line.fixed, line.slope
        outcomes.append(
            of(again.taken(drawn, sizes, made.input * np.maximum(1.0 + inputs[turn], 0.0)))
        )
    error = np.std(outcomes, axis=0, ddof=1) * bootstrap.widening(number)
    return np.asarray(error * t_quantile(number - 1))


def _input_errors(rank: Rank, random: np.random.Generator, replicates: int) -> Floats:
    """Relative errors of the mean time of a batch, as drawn in blocks."""
    times = rank.fetch_ns / np.maximum(rank.fetch_sizes, 1.0)
    return bootstrap.mean_deviations(times, replicates, random)
