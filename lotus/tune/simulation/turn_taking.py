"""Computes the loss of taking batches in turn when their times vary, by simulation on a grid.

A worker can be at most `prefetch_factor` batches ahead, so a slow batch makes the other workers
idle and the training loop wait. Lognormal batch times are simulated exactly for a grid of workers,
prefetch factors, step times and variations; other values are interpolated. Each worker is assumed
to have a core.
"""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from lotus.analysis.replay.loader_replay import replay
from lotus.common.numbers.array_types import Floats

_WORKERS = (1, 2, 4, 8, 16, 32, 64, 128)
_PREFETCHES = (1, 2, 4, 8, 16)
_VARIATIONS = (0.0, 0.15, 0.3, 0.5, 0.8, 1.2, 1.8, 2.7, 4.0, 6.0)
_RATIOS = (0.35, 0.6, 0.8, 1.0, 1.25, 1.7, 3.0, 8.0)  # the workers' rate over the steps' rate
_LOG_WORKERS, _LOG_PREFETCHES, _LOG_RATIOS = (
    [math.log(value) for value in grid] for grid in (_WORKERS, _PREFETCHES, _RATIOS)
)
_LOG_VARIATIONS = [math.log1p(10 * value) for value in _VARIATIONS]
_BATCHES = 1200
_SEED = 1


def kept(workers: int, prefetch: int, variation: float, ratio: float) -> float:
    """Return what remains of the slower of two rates: that of all workers, that of the steps.

    `ratio` is the rate of all workers divided by the rate of the steps (0: steps take no time).
    The error is a few per cent, and around ten per cent for variations above 1.
    """
    if workers < 1 or variation <= 0:
        return 1.0
    line = _line(workers, prefetch, variation)
    low, part = _between(_LOG_RATIOS, math.log(max(ratio, 1e-9)))
    return min((1.0 - part) * line[low] + part * line[low + 1], 1.0)


@functools.lru_cache(maxsize=4096)
def _line(workers: int, prefetch: int, variation: float) -> tuple[float, ...]:
    """Return the remaining share at each of the grid's ratios."""
    low, part = _between(_LOG_VARIATIONS, math.log1p(10 * variation))
    parts = np.zeros(len(_RATIOS))
    for number, weight in ((low, 1.0 - part), (low + 1, part)):
        if weight:
            parts += weight * _of_grid(_table(number), workers, prefetch)
    return tuple(parts.tolist())


def _of_grid(table: Floats, workers: int, prefetch: int) -> Floats:
    for grid, value in ((_LOG_WORKERS, workers), (_LOG_PREFETCHES, prefetch)):
        low, part = _between(grid, math.log(value))
        table = (1.0 - part) * table[low] + part * table[low + 1]
    return table


def _between(grid: Sequence[float], value: float) -> tuple[int, float]:
    """Return (the grid point below a value, its relative distance to the next point)."""
    if value <= grid[0]:
        return 0, 0.0
    if value >= grid[-1]:
        return len(grid) - 2, 1.0
    low = bisect.bisect_right(grid, value) - 1
    return low, (value - grid[low]) / (grid[low + 1] - grid[low])


@functools.lru_cache(maxsize=len(_VARIATIONS))
def _table(number: int) -> Floats:
    """Return the remaining share at grid variation `number`, by workers, prefetch and ratio."""
    if not _VARIATIONS[number]:
        return np.ones((len(_WORKERS), len(_PREFETCHES), len(_RATIOS)))
    sigma = math.sqrt(math.log1p(_VARIATIONS[number] ** 2))
    normal = NormalDist()
    places = (np.arange(_BATCHES) + 0.5) / _BATCHES
    times = np.exp(sigma * np.array([normal.inv_cdf(place) for place in places]))
    times = np.random.default_rng(_SEED).permutation(times / times.mean())
    shape = (len(_WORKERS), len(_PREFETCHES), len(_RATIOS))
    workers, prefetch, ratio = (
        place.ravel()
        for place in np.meshgrid(
            np.array(_WORKERS), np.array(_PREFETCHES), np.array(_RATIOS), indexing="ij"
        )
    )
    step = ratio / workers  # in units of a batch's mean time
    every = np.ones(len(workers))
    taken = replay(
        np.outer(times, every), np.outer(np.ones(_BATCHES), step), workers, prefetch
    ).taken
    half = _BATCHES // 2
    each = (taken[-1] - taken[-1 - half]) / half
    # The mean time of that half may differ slightly from 1.
    own = times[half:].mean()
    parts: Floats = np.maximum(own / workers, step) / each
    return np.minimum(parts, 1.0).reshape(shape)
