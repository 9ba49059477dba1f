"""Intervals of differences from batches that follow one another, by the block bootstrap.

Batches of one epoch are not independent: caches warm up, neighbours come and go, workers deliver
in bursts. So blocks of batches in their order are drawn with replacement, not single batches
(circular block bootstrap: Politis and Romano 1992), as long as the series themselves ask for
(Politis and White 2004, corrected by Patton, Politis and White 2009). The standard error that the
replicates give is taken times Student's t, as blocks are few.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from lotus.analysis.columns import Floats

REPLICATES = 2000
MOST_BINS = 1024  # longer series are added up to so many rows: blocks are longer than that anyway
LEAST_BLOCKS = 5  # that a series is cut into, if it has as many rows
_NORMAL = NormalDist()
LEVEL = 0.05  # of the intervals and of the tests


def block_length(series: Floats) -> int:
    """Rows of a block that series (n, c) of mean 0 ask for: the most that one of them does.

    Twice as long as the rule says, and 2 n^(1/3) at least: the rule weighs bias against variance,
    but too narrow an interval is worse than a wide one. `tests/unit/test_bootstrap.py` has what
    that does to the coverage.
    """
    count = len(series)
    longest: float = max((_block_length(column) for column in series.T), default=1.0)
    wanted = math.ceil(max(2 * longest, 2 * math.pow(count, 1 / 3)))
    return max(1, min(wanted, count // LEAST_BLOCKS))


def _block_length(series: Floats) -> float:
    """Politis and White 2004, section 3.2, with the flat-top window; for circular blocks."""
    count = len(series)
    if count < 4:
        return 1.0
    series = series - series.mean()
    power = float(series @ series) / count
    if not power > 0:
        return 1.0
    run = max(5, math.ceil(math.sqrt(math.log10(count))))
    most = min(math.ceil(math.sqrt(count)) + run, count - 1)
    lags = np.arange(most + 1)
    covariance = np.array([series[lag:] @ series[: count - lag] / count for lag in lags])
    small = np.abs(covariance[1:] / power) < 2 * math.sqrt(math.log10(count) / count)
    # The lag from which on `run` correlations in a row cannot be told from none.
    last = next(
        (lag for lag in range(len(small) - run + 1) if small[lag : lag + run].all()),
        int(np.flatnonzero(~small)[-1]) + 1 if (~small).any() else 0,
    )
    if last == 0:
        return 1.0
    window = min(2 * last, most)
    weight = np.clip(2 * (1 - lags / window), 0, 1)
    spectrum = covariance[0] + 2 * float((weight * covariance)[1:].sum())
    slope = 2 * float((weight * lags * covariance)[1:].sum())
    if spectrum == 0:
        return 1.0
    wanted: float = (2 * slope**2 / (4 / 3 * spectrum**2) * count) ** (1 / 3)
    return min(wanted, 3 * math.sqrt(count))


def blocks(count: int, length: int) -> int:
    """How many blocks of `length` make up a series of `count` rows."""
    return -(-count // length)


def draw(count: int, length: int, generator: np.random.Generator) -> Floats:
    """How often each replicate takes the block that begins at each row: (REPLICATES, count)."""
    starts = generator.integers(0, count, (REPLICATES, blocks(count, length)))
    starts += np.arange(REPLICATES)[:, None] * count
    drawn = np.bincount(starts.ravel(), minlength=REPLICATES * count)
    return drawn.reshape(REPLICATES, count).astype(np.float64)


def replicated(rows: Floats, length: int, drawn: Floats) -> Floats:
    """Sums of every column of (n, m) in each replicate: (REPLICATES, m).

    Drawing from k blocks has (k - 1) / k of the variance that is sought: that is put right, and
    so is the length of a replicate. A series of one block shows no variance: NaN.
    """
    count, whole = len(rows), rows.sum(axis=0)
    number = blocks(count, length)
    if number < 2:
        return np.full((REPLICATES, rows.shape[1]), np.nan)
    running = np.concatenate((np.zeros((1, rows.shape[1])), np.cumsum(np.tile(rows, (2, 1)), 0)))
    sums = running[length : length + count] - running[:count]
    drawn_sums = drawn @ sums * (count / (number * length))
    return np.asarray(whole + (drawn_sums - whole) * math.sqrt(number / (number - 1)))


@dataclass(frozen=True)
class Measured:
    """A value of one side: over all its runs, in each replicate, and of each run.

    blocks: how many pieces of a series the replicates were drawn from; below 2 nothing is known
    of the variation within runs.
    """

    value: float
    replicates: Floats  # (REPLICATES,)
    blocks: float
    runs: Floats  # (runs,)


@dataclass(frozen=True)
class Difference:
    """How far b is from a, with its 95 % interval.

    relative: the numbers are b / a - 1; else b - a, in the measure's own unit.
    low, high, p: NaN where no variation is known. p: two-sided, of no difference.
    """

    relative: bool
    difference: float
    low: float
    high: float
    p: float

    @property
    def known(self) -> bool:
        """Whether there is an interval."""
        return not (math.isnan(self.low) or math.isnan(self.high))


def difference(a: Measured, b: Measured, relative: bool = True) -> Difference:
    """Hold b against a; `relative` falls back to absolute where a value or replicate is 0."""
    if math.isnan(a.value) or math.isnan(b.value):
        return Difference(relative, math.nan, math.nan, math.nan, math.nan)
    if relative and not (_positive(a) and _positive(b)):
        found = difference(a, b, relative=False)
        if not a.value > 0:
            return found
        # The uncertainty of a is in that of the difference.
        ends = (found.difference, found.low, found.high)
        # Nothing measured is below zero: less than all of it cannot be missing.
        gap, low, high = (
            float(np.fmax(end / a.value, -1.0)) if end == end else end for end in ends
        )
        return Difference(True, gap, low, high, found.p)
    one, other = (_log(a), _log(b)) if relative else (a, b)
    gap = other.value - one.value
    error, freedom = _error(one, other)
    if math.isnan(error):
        low = high = p = math.nan
    else:
        reach = t_quantile(freedom) * error
        low, high = gap - reach, gap + reach
        p = _p(gap, error, freedom)
    if relative:
        gap, low, high = (math.expm1(min(part, 700.0)) for part in (gap, low, high))
    return Difference(relative, gap, low, high, p)


def _positive(one: Measured) -> bool:
    known = one.replicates[~np.isnan(one.replicates)]
    return one.value > 0 and bool((known > 0).all()) and bool((one.runs > 0).all())


def _log(one: Measured) -> Measured:
    return Measured(math.log(one.value), np.log(one.replicates), one.blocks, np.log(one.runs))


def _error(a: Measured, b: Measured) -> tuple[float, float]:
    """Standard error of the difference and its degrees of freedom (Welch); NaN: not known."""
    # What one run cannot show, how runs differ, the repeats of the other side show.
    spreads = [
        (float(np.var(side.runs, ddof=1)), len(side.runs) - 1)
        for side in (a, b)
        if len(side.runs) > 1 and not np.isnan(side.runs).any()
    ]
    parts = []
    for side in (a, b):
        within = float(np.var(side.replicates)) if side.blocks >= 2 else math.nan
        if not spreads:
            parts.append((within, side.blocks - 1))
            continue
        if len(side.runs) > 1 and not np.isnan(side.runs).any():
            between, freedom = float(np.var(side.runs, ddof=1)), len(side.runs) - 1
        else:
            between, freedom = max(spreads)
        # The batches' variation is in that of the runs; by luck a few runs may be too much alike.
        parts.append((float(np.fmax(between / max(len(side.runs), 1), within)), freedom))
    variance = sum(part for part, _ in parts)
    if math.isnan(variance):
        return math.nan, math.nan
    if math.sqrt(variance) < 1e-12 * max(abs(a.value), abs(b.value), abs(b.value - a.value)):
        return 0.0, math.inf  # the sums' own rounding
    below = sum(part**2 / freedom for part, freedom in parts if part > 0)
    return math.sqrt(variance), variance**2 / below if below > 0 else math.inf


def t_quantile(freedom: float, level: float = LEVEL) -> float:
    """Student's t that is exceeded, either way, with probability `level`.

    By Wallace's transformation (1959): within 2 % from 3 degrees of freedom on, larger below.
    """
    z = -_NORMAL.inv_cdf(level / 2)
    if math.isinf(freedom):
        return z
    z *= (8 * freedom + 3) / (8 * freedom + 1)
    return math.sqrt(freedom * math.expm1(min(z * z / freedom, 700.0)))


def _p(gap: float, error: float, freedom: float) -> float:
    if gap == 0:
        return 1.0
    if error == 0:
        return 0.0
    t = abs(gap) / error
    if math.isinf(freedom):
        return 2 * _NORMAL.cdf(-t)
    z = (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(freedom * math.log1p(t * t / freedom))
    return 2 * _NORMAL.cdf(-z)


def adjusted(values: Sequence[float] | npt.NDArray[np.float64]) -> Floats:
    """p-values adjusted for their number (Benjamini and Hochberg 1995); NaN stays NaN.

    Of the differences below 0.05 at most 5 % are false ones; where there is none at all, 5 % of
    comparisons show one.
    """
    given = np.asarray(values, np.float64)
    found = np.full(len(given), np.nan)
    order = np.argsort(given, kind="stable")
    order = order[~np.isnan(given[order])]
    steps = given[order] * len(order) / np.arange(1, len(order) + 1)
    found[order] = np.minimum(np.minimum.accumulate(steps[::-1])[::-1], 1.0)
    return found
