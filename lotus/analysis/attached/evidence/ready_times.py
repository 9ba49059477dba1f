"""Moves delays of threads to the time when they passed: the kernel adds them afterwards."""

import numpy as np
import pandas as pd

from lotus.common.numbers.array_types import Floats


def spread_back(looks: pd.DataFrame) -> pd.DataFrame:
    """Return the looks with each delay in the time in which it passed.

    schedstat adds a delay when it is over. What is more than the time since the look before, less
    that on a core, passed before that look; what is more than all looks hold, before the first.
    """
    parts = []
    for _, mine in looks.groupby("pid", sort=False):
        mine = mine.sort_values("time_ns", kind="stable")
        spread = _spread_back(
            mine["wall_ns"].to_numpy(np.float64) - mine["cpu_ns"].to_numpy(np.float64),
            mine["delay_ns"].to_numpy(np.float64),
        )
        parts.append(pd.Series(spread, index=mine.index))
    if not parts:
        return looks
    return looks.assign(delay_ns=pd.concat(parts).reindex(looks.index))


def _spread_back(free: Floats, delay: Floats) -> Floats:
    """Return delays of one thread (n,), none of which exceeds the time that was free for it."""
    surplus = (delay - np.maximum(free, 0.0))[::-1]
    sums = np.cumsum(surplus)
    left = sums - np.minimum(np.minimum.accumulate(sums), 0.0)  # for the looks before
    before = np.concatenate([[0.0], left[:-1]])
    return np.asarray(delay + (before - left)[::-1], np.float64)
