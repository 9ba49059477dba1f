"""Fits the time of a rank for b samples: t(b) = fixed + slope x b, for its step and its input."""

import math
from dataclasses import dataclass

import numpy as np

from lotus.balance.rank_measurements import Rank
from lotus.common.numbers.array_types import Floats

# Steps that a batch size needs to count, and how much smaller the smaller size must be.
ENOUGH, APART = 5, 0.9


@dataclass(frozen=True)
class LinearFit:
    """t(b) = fixed + slope x b, nanoseconds; neither is negative.

    `fixed_low` and `fixed_high` bound `fixed`. They differ if the batches had only one size; each
    bound has the slope that gives the same time at `size`.
    """

    fixed: float
    slope: float
    size: float  # mean number of samples of the batches behind it
    how: str  # "fitted", "last batches" or "assumed"
    fixed_low: float
    fixed_high: float

    def at(self, size: float) -> float:
        return self.fixed + self.slope * size

    def lowest(self) -> "LinearFit":
        """Return the line with the smallest fixed time that the batches allow."""
        return self._with(self.fixed_low)

    def highest(self) -> "LinearFit":
        """Return the line with the largest fixed time that the batches allow."""
        return self._with(self.fixed_high)

    def _with(self, fixed: float) -> "LinearFit":
        if fixed == self.fixed:
            return self
        slope = max(self.at(self.size) - fixed, 0.0) / self.size
        return LinearFit(fixed, slope, self.size, self.how, self.fixed_low, self.fixed_high)


def fit(sizes: Floats, times: Floats, weights: Floats | None = None) -> LinearFit:
    """Fit a line to times (n,) of batches of `sizes` samples (n,), by least squares.

    That needs two sizes with ENOUGH batches each. If there are fewer of a second size (the last
    batches of epochs), the fixed part is bounded by three standard errors. With one size, it is
    unknown: it is assumed to be 0, and bounded by the shortest time.
    """
    weights = np.ones(len(sizes)) if weights is None else weights
    seen = weights > 0
    sizes, times, weights = sizes[seen], times[seen], weights[seen]
    if not len(sizes):
        raise ValueError("a line needs a time")
    size, mean = (float(np.average(values, weights=weights)) for values in (sizes, times))
    distinct, counts = np.unique(sizes, return_counts=True)
    usual = float(distinct[np.flatnonzero(counts == counts.max())[-1]])
    is_other = (sizes <= APART * usual) | (sizes >= usual / APART)
    at_usual = float(np.average(times[sizes == usual], weights=weights[sizes == usual]))
    if not is_other.any():
        return LinearFit(0.0, mean / size, size, "assumed", 0.0, min(float(times.min()), mean))
    slope, fixed = _least_squares(sizes, times, weights)
    if is_other.sum() >= ENOUGH and counts.max() >= ENOUGH:
        return LinearFit(fixed, slope, size, "fitted", fixed, fixed)
    most = min(float(times[sizes == usual].min()), at_usual)
    fixed = min(fixed, most)
    # Three standard errors, as there are so few batches.
    gap = usual - float(sizes[is_other].mean())
    error = (
        float(times[sizes == usual].std()) / math.sqrt(is_other.sum()) * usual / abs(gap or usual)
    )
    low, high = max(fixed - 3 * error, 0.0), min(fixed + 3 * error, most)
    return LinearFit(fixed, max(at_usual - fixed, 0.0) / usual, usual, "last batches", low, high)


def _least_squares(sizes: Floats, times: Floats, weights: Floats) -> tuple[float, float]:
    """Return (slope, fixed), neither below 0."""
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
    """The time of a rank for b samples: the longer of step and input.

    It is their sum if the main process fetches by itself (`in_turn`).
    """

    step: LinearFit
    input: LinearFit
    in_turn: bool

    def at(self, size: float) -> float:
        step, input_time = self.step.at(size), self.input.at(size)
        return step + input_time if self.in_turn else max(step, input_time)

    def lines(self) -> list[tuple[float, float]]:
        """Return (fixed, slope) of lines whose maximum is the curve."""
        step, input_line = self.step, self.input
        if self.in_turn:
            return [(step.fixed + input_line.fixed, step.slope + input_line.slope)]
        return [(step.fixed, step.slope), (input_line.fixed, input_line.slope)]

    def input_binds(self, size: float, collective_ns: float = 0.0) -> bool:
        """Return whether the input, not the step and its collective, limits this rank's rate."""
        return self.input.at(size) > self.step.at(size) + collective_ns


def curve(rank: Rank) -> Curve:
    """Return the curve of a rank; its workers make batches in parallel."""
    input_line = fit(rank.fetch_sizes, rank.fetch_ns / max(rank.workers, 1))
    return Curve(fit(rank.sizes, rank.step_ns), input_line, rank.workers == 0)
