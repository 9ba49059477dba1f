"""Values with their uncertainty, and differences of two values with a 95 % interval.

The standard error, from replicates (`lotus.common.numbers.bootstrap`) or repeated runs, is
multiplied by Student's t, as blocks and runs are few.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from lotus.common.numbers.array_types import Floats
from lotus.common.numbers.statistics import t_p_value, t_quantile


@dataclass(frozen=True)
class ReplicatedValue:
    """A value of one side: over all its runs, in each replicate, and in each run.

    `blocks` is how many pieces of a series the replicates were drawn from; below 2 the variation
    within runs is not known. `spread`: how much runs are taken to vary where neither side has
    several, as the standard deviation of the value's logarithm.
    """

    value: float
    replicates: Floats  # (REPLICATES,)
    blocks: float
    runs: Floats  # (runs,)
    spread: float = 0.0


@dataclass(frozen=True)
class Difference:
    """The difference of b and a, with its 95 % interval.

    `relative`: the numbers are b / a - 1, else b - a in the measure's unit. `low`, `high` and `p`
    are NaN if no variation is known. `p` is two-sided, for the hypothesis of no difference.
    """

    relative: bool
    difference: float
    low: float
    high: float
    p: float

    @property
    def has_interval(self) -> bool:
        """True if there is an interval."""
        return not (math.isnan(self.low) or math.isnan(self.high))


def difference(a: ReplicatedValue, b: ReplicatedValue, relative: bool = True) -> Difference:
    """Return the difference of b and a; absolute instead of `relative` if a replicate is 0."""
    if math.isnan(a.value) or math.isnan(b.value):
        return Difference(relative, math.nan, math.nan, math.nan, math.nan)
    if relative and not (_positive(a) and _positive(b)):
        absolute = difference(a, b, relative=False)
        if not a.value > 0:
            return absolute
        # The uncertainty of a is included in that of the difference.
        ends = (absolute.difference, absolute.low, absolute.high)
        # No measure is below zero, so a decrease cannot exceed 100 %.
        gap, low, high = (
            float(np.fmax(end / a.value, -1.0)) if end == end else end for end in ends
        )
        return Difference(True, gap, low, high, absolute.p)
    first, second = (_log(a), _log(b)) if relative else (_of_unit(a), _of_unit(b))
    gap = second.value - first.value
    error, freedom = _error(first, second)
    if math.isnan(error):
        low = high = p = math.nan
    else:
        reach = t_quantile(freedom) * error
        low, high = gap - reach, gap + reach
        p = _p_value(gap, error, freedom)
    if relative:
        gap, low, high = (math.expm1(min(part, 700.0)) for part in (gap, low, high))
    return Difference(relative, gap, low, high, p)


def _positive(measured: ReplicatedValue) -> bool:
    replicates = measured.replicates[~np.isnan(measured.replicates)]
    return measured.value > 0 and bool((replicates > 0).all()) and bool((measured.runs > 0).all())


def _log(measured: ReplicatedValue) -> ReplicatedValue:
    return ReplicatedValue(
        math.log(measured.value),
        np.log(measured.replicates),
        measured.blocks,
        np.log(measured.runs),
        measured.spread,
    )


def _of_unit(measured: ReplicatedValue) -> ReplicatedValue:
    return replace(measured, spread=measured.spread * abs(measured.value))


def _error(a: ReplicatedValue, b: ReplicatedValue) -> tuple[float, float]:
    """Return the standard error of the difference and its degrees of freedom (Welch); NaN if
    unknown.
    """
    # The variation between runs of a side with one run is taken from the other side.
    spreads = [
        (float(np.var(side.runs, ddof=1)), len(side.runs) - 1)
        for side in (a, b)
        if len(side.runs) > 1 and not np.isnan(side.runs).any()
    ]
    parts = []
    for side in (a, b):
        within = float(np.var(side.replicates)) if side.blocks >= 2 else math.nan
        if not spreads:
            parts += [(within, side.blocks - 1), (side.spread**2, math.inf)]
            continue
        if len(side.runs) > 1 and not np.isnan(side.runs).any():
            between, freedom = float(np.var(side.runs, ddof=1)), len(side.runs) - 1
        else:
            between, freedom = max(spreads)
        # Variation between runs includes that of batches, but few runs may agree by chance.
        parts.append((float(np.fmax(between / max(len(side.runs), 1), within)), freedom))
    variance = sum(part for part, _ in parts)
    if math.isnan(variance):
        return math.nan, math.nan
    if math.sqrt(variance) < 1e-12 * max(abs(a.value), abs(b.value), abs(b.value - a.value)):
        return 0.0, math.inf  # rounding errors of the sums
    below = sum(part**2 / freedom for part, freedom in parts if part > 0)
    return math.sqrt(variance), variance**2 / below if below > 0 else math.inf


def _p_value(gap: float, error: float, freedom: float) -> float:
    if gap == 0:
        return 1.0
    return t_p_value(gap / error, freedom) if error else 0.0


def adjusted(values: Sequence[float] | npt.NDArray[np.float64]) -> Floats:
    """Adjust p-values for their number (Benjamini and Hochberg 1995); NaN stays NaN.

    At most 5 % of the differences below 0.05 are false. Without any real difference, 5 % of
    comparisons show one.
    """
    p_values = np.asarray(values, np.float64)
    corrected = np.full(len(p_values), np.nan)
    order = np.argsort(p_values, kind="stable")
    order = order[~np.isnan(p_values[order])]
    steps = p_values[order] * len(order) / np.arange(1, len(order) + 1)
    corrected[order] = np.minimum(np.minimum.accumulate(steps[::-1])[::-1], 1.0)
    return corrected
