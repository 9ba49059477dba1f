"""Splits a global batch so that the slowest rank is as fast as possible, in whole samples.

Times grow with the share, so giving one sample after another to the rank that would be fastest with
it is exact (Fox 1966, for the sum; Gross 1956). Most samples are assigned at once, by bisection on
the time.
"""

import heapq
import math
from collections.abc import Sequence

import numpy as np

from lotus.common.numbers.array_types import Floats

Lines = Sequence[tuple[float, float]]
_ROUNDS = 100  # of bisection: halves any time down to its rounding


def split(curves: Sequence[Lines], total: int, caps: Sequence[int | None]) -> list[int]:
    """Split `total` samples among ranks: at least 1 and at most its cap (None: no cap) for each.

    `curves[i]`: (fixed, slope) of lines; rank i takes as long as the largest of them. Slopes are
    not negative. Raises ValueError if the caps or the minimum of 1 allow no split.
    """
    most = [total if cap is None else min(cap, total) for cap in caps]
    if total < len(curves) or min(most) < 1 or sum(most) < total:
        raise ValueError("the samples do not fit the ranks")
    width = max(len(lines) for lines in curves)
    padded = np.array([[*lines, *[(0.0, 0.0)] * (width - len(lines))] for lines in curves])
    fixed, slope, limit = padded[..., 0], padded[..., 1], np.array(most, np.float64)
    low, high = -1.0, float((fixed + slope * limit[:, None]).max())
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if _within(fixed, slope, limit, middle).sum() >= total:
            high = middle
        else:
            low = middle
    # Samples that fit into less than the shortest time are in every best split. One less per rank
    # allows for rounding in the division.
    sizes = [max(int(size) - 1, 1) for size in _within(fixed, slope, limit, low)]
    waiting = [
        (_time(lines, size + 1), size, place)
        for place, (lines, size) in enumerate(zip(curves, sizes, strict=True))
        if size < most[place]
    ]
    heapq.heapify(waiting)
    for _ in range(total - sum(sizes)):
        _, size, place = heapq.heappop(waiting)
        sizes[place] = size + 1
        if size + 1 < most[place]:
            heapq.heappush(waiting, (_time(curves[place], size + 2), size + 1, place))
    return sizes


def _within(fixed: Floats, slope: Floats, limit: Floats, time: float) -> Floats:
    """Return how many samples each rank can process within that time, at least 1."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        samples = np.floor((time - fixed) / slope)
    samples = np.where(slope > 0, samples, np.where(fixed <= time, math.inf, 0.0))
    return np.asarray(np.clip(samples.min(axis=1), 1.0, limit))


def _time(lines: Lines, size: int) -> float:
    return max(fixed + slope * size for fixed, slope in lines)
