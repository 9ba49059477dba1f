"""How long a rank takes for b samples: t(b) = fixed + slope x b, for its step and its input."""

import math
from dataclasses import dataclass

import numpy as np

from lotus.analysis.common.columns import Floats
from lotus.balance.rank_measurements import Rank

# Steps of a batch size that tell something of it, and how much smaller the smaller size must be.
ENOUGH, APART = 5, 0.9


@dataclass(frozen=True)
class LinearFit:
    """t(b) = fixed + slope x b, nanoseconds; neither is negative.

    fixed_low and fixed_high: what `fixed` may be; they differ where the batches were of one size
    only, and then each goes with the slope that gives the same time at `size`.
    """

    fixed: float
    slope: float
    size: float  # samples of the batches that it was made of, on average
    how: str  # "fitted", "last batches" or "assumed"
    fixed_low: float
    fixed_high: float

    def at(self, size: float) -> float:
        return self.fixed + self.slope * size

    def lowest(self) -> "LinearFit":
        """The line with the least fixed time that the batches allow."""
        return self._with(self.fixed_low)

    def highest(self) -> "LinearFit":
        """The line with the most."""
        return self._with(self.fixed_high)

    def _with(self, fixed: float) -> "LinearFit":
        if fixed == self.fixed:
            return self
        slope = max(self.at(self.size) - fixed, 0.0) / self.size
        return LinearFit(fixed, slope, self.size, self.how, self.fixed_low, self.fixed_high)


def fit(sizes: Floats, times: Floats, weights: Floats | None = None) -> LinearFit:
    """The line through times (n,) of batches of so many samples (n,), by least squares.

    It needs two sizes with ENOUGH batches each. With fewer of another size (the last ones of
    epochs) it is bounded by three of its errors; with one size only nothing tells what of a time is
    fixed: it is taken to be none, and bounded by the shortest time seen.
    """
    weights = np.ones(len(sizes)) if weights is None else weights
    seen = weights > 0
    sizes, times, weights = sizes[seen], times[seen], weights[seen]
    if not len(sizes):
        raise ValueError("a line needs a time")
    size, mean = (float(np.average(values, weights=weights)) for values in (sizes, times))
    known, counts = np.unique(sizes, return_counts=True)
    usual = float(known[np.flatnonzero(counts == counts.max())[-1]])
    others = (sizes <= APART * usual) | (sizes >= usual / APART)
    at_usual = float(np.average(times[sizes == usual], weights=weights[sizes == usual]))
    if not others.any():
        return LinearFit(0.0, mean / size, size, "assumed", 0.0, min(float(times.min()), mean))
    slope, fixed = _least_squares(sizes, times, weights)
    if others.sum() >= ENOUGH and counts.max() >= ENOUGH:
        return LinearFit(fixed, slope, size, "fitted", fixed, fixed)
    most = min(float(times[sizes == usual].min()), at_usual)
    fixed = min(fixed, most)
    # Three standard errors of what so few batches tell.
    gap = usual - float(sizes[others].mean())
    error = float(times[sizes == usual].std()) / math.sqrt(others.sum()) * usual / abs(gap or usual)
    low, high = max(fixed - 3 * error, 0.0), min(fixed + 3 * error, most)
    return LinearFit(fixed, max(at_usual - fixed, 0.0) / usual, usual, "last batches", low, high)


def _least_squares(sizes: Floats, times: Floats, weights: Floats) -> tuple[float, float]:
    """(slope, fixed), neither below 0."""
    size, mean = (float(np.average(values, weights=weights)) for values in (sizes, times))
    spread = float(weights @ (sizes - size) ** 2)
    slope = float(weights @ ((sizes - size) * (times - mean))) / spread if spread > 0 else 0.0
    if slope <= 0:
        return 0.0, mean
    fixed = mean - slope * size
    if fixed < 0:
        return float(weights @ (sizes * times)) / float(weights @ sizes**2), 0.0
    return slope, fixed


@dataclass(frozen=True)
class Curve:
    """What a rank takes for b samples: the longer of step and input, or both one after the other
    where the main process fetches by itself (`in_turn`)."""

    step: LinearFit
    input: LinearFit
    in_turn: bool

    def at(self, size: float) -> float:
        step, made = self.step.at(size), self.input.at(size)
        return step + made if self.in_turn else max(step, made)

    def lines(self) -> list[tuple[float, float]]:
        """(fixed, slope) of lines of which the largest is the curve."""
        step, made = self.step, self.input
        if self.in_turn:
            return [(step.fixed + made.fixed, step.slope + made.slope)]
        return [(step.fixed, step.slope), (made.fixed, made.slope)]

    def input_binds(self, size: float, collective_ns: float = 0.0) -> bool:
        """Whether the input, not the step and the collective after it, sets this rank's pace."""
        return self.input.at(size) > self.step.at(size) + collective_ns


def curve(rank: Rank) -> Curve:
    """The curve of a rank; its workers make batches side by side."""
    made = fit(rank.fetch_sizes, rank.fetch_ns / max(rank.workers, 1))
    return Curve(fit(rank.sizes, rank.step_ns), made, rank.workers == 0)
