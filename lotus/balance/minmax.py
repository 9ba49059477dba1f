"""Sharing a global batch out so that the slowest rank is as quick as it can be, in whole samples.

Times grow with the share, so handing out one sample after the other, each to the rank that would
be quickest with it, is exact (Fox 1966, for the sum; Gross 1956). The first of them are found by
bisection on the time.
"""

import heapq
import math
from collections.abc import Sequence

import numpy as np

from lotus.analysis.common.columns import Floats

Lines = Sequence[tuple[float, float]]
_ROUNDS = 100  # of bisection: halves any time down to its rounding


def split(curves: Sequence[Lines], total: int, caps: Sequence[int | None]) -> list[int]:
    """`total` samples among ranks, at least 1 and at most its cap (None: no cap) for each.

    `curves[i]`: (fixed, slope) of lines, the largest of which is what rank i takes; slopes >= 0.
    Raises ValueError where the caps or the least leave no way.
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
    # What fits into less than the shortest time is in every best split. One sample less bears the
    # rounding of the division.
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
    """How many samples each rank can take in that time; 1 at least."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        each = np.floor((time - fixed) / slope)
    each = np.where(slope > 0, each, np.where(fixed <= time, math.inf, 0.0))
    return np.asarray(np.clip(each.min(axis=1), 1.0, limit))


def _time(lines: Lines, size: int) -> float:
    return max(fixed + slope * size for fixed, slope in lines)
