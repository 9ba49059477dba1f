"""The circular block bootstrap: the variation of sums and means of a series.

Batches of one epoch are not independent: caches warm up, neighbours come and go, workers deliver
in bursts. So blocks of neighbouring batches are drawn with replacement, not single batches
(Politis and Romano 1992). Their length comes from the correlation of the series themselves
(Politis and White 2004, corrected by Patton, Politis and White 2009).
"""

import math

import numpy as np
import numpy.typing as npt

from lotus.common.numbers.array_types import Floats

REPLICATES = 2000
MOST_BINS = 1024  # longer series are summed into this many rows: blocks are longer than that anyway
LEAST_BLOCKS = 5  # that a series is cut into, if it has as many rows


def block_length(series: Floats) -> int:
    """Return rows of a block for series (n, c) of mean 0: the most that any of the columns needs.

    Twice the optimal length, and 2 n^(1/3) at least: the optimum trades bias for variance, but an
    interval that is too narrow is worse than one that is too wide.
    `tests/unit/compare/test_uncertainty.py` measures the coverage.
    """
    count = len(series)
    longest: float = max((_block_length(column) for column in series.T), default=1.0)
    rows = math.ceil(max(2 * longest, 2 * math.pow(count, 1 / 3)))
    return max(1, min(rows, count // LEAST_BLOCKS))


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
    # The lag from which on `run` consecutive correlations do not differ from none.
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
    rows: float = (2 * slope**2 / (4 / 3 * spectrum**2) * count) ** (1 / 3)
    return min(rows, 3 * math.sqrt(count))


def blocks(count: int, length: int) -> int:
    """Return how many blocks of `length` make up a series of `count` rows."""
    return -(-count // length)


def draw(count: int, length: int, generator: np.random.Generator) -> Floats:
    """Return how often each replicate takes the block that begins at a row: (REPLICATES, count)."""
    starts = generator.integers(0, count, (REPLICATES, blocks(count, length)))
    starts += np.arange(REPLICATES)[:, None] * count
    drawn = np.bincount(starts.ravel(), minlength=REPLICATES * count)
    return drawn.reshape(REPLICATES, count).astype(np.float64)


def replicated(rows: Floats, length: int, drawn: Floats) -> Floats:
    """Return sums of every column of (n, m) in each replicate: (REPLICATES, m).

    Sums are scaled to the length of the series, and their deviations by `widening`. A series of
    one block shows no variance: NaN.
    """
    count, whole = len(rows), rows.sum(axis=0)
    number = blocks(count, length)
    if number < 2:
        return np.full((REPLICATES, rows.shape[1]), np.nan)
    running = np.concatenate((np.zeros((1, rows.shape[1])), np.cumsum(np.tile(rows, (2, 1)), 0)))
    sums = running[length : length + count] - running[:count]
    drawn_sums = drawn @ sums * (count / (number * length))
    return np.asarray(whole + (drawn_sums - whole) * widening(number))


def widening(number: int) -> float:
    """Return the factor for deviations of replicates: k blocks show (k - 1) / k of the variance."""
    return math.sqrt(number / (number - 1))


def draw_rows(count: int, length: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return the rows of one replicate of a series: as many as it has, block after block."""
    starts = generator.integers(0, count, blocks(count, length))
    return ((starts[:, None] + np.arange(length)).ravel() % count)[:count]


def mean_deviations(series: Floats, replicates: int, generator: np.random.Generator) -> Floats:
    """Return relative deviations of a series' mean in each replicate; 0: no variation is known.

    Unlike `draw` and `replicated`, it needs no memory for each row of each replicate.
    """
    mean, count = float(series.mean()), len(series)
    length = block_length((series - mean)[:, None])
    number = blocks(count, length)
    if number < 2 or not mean > 0:
        return np.zeros(replicates)
    running = np.concatenate(([0.0], np.cumsum(np.concatenate((series, series)))))
    sums = running[length : length + count] - running[:count]
    means = sums[generator.integers(0, count, (replicates, number))].mean(axis=1) / length
    return np.asarray((means / mean - 1.0) * widening(number))
