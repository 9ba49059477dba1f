"""The machine's own counters while a loader was iterated."""

import math

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import number
from lotus.analysis.common.scope import Scope

SWAPPED = 64 << 20  # bytes: a machine swaps less by itself
_LEAST_NS = 1e9  # a counter counts in ticks of 10 ms, and is read about once a second
ROOM = 0.2  # of the memory: if that much is always left, it is other cgroups that lack memory


def within_loops(scope: Scope, name: str) -> float:
    """Return how much a counter of `Run.machine` grew in the loops; 0.0 if it is not known.

    It is taken to grow evenly between two readings, about a second apart.
    """
    times, counts = number(scope.machine, "time_ns"), number(scope.machine, name)
    known = counts >= 0
    if known.sum() < 2 or not len(scope.epochs):
        return 0.0
    edges = np.stack([number(scope.epochs, "start_ns"), number(scope.epochs, "end_ns")])
    edges = edges[:, ~np.isnan(edges).any(axis=0)]
    read = np.interp(edges, times[known], counts[known])
    return float(np.maximum(read[1] - read[0], 0.0).sum())


def idle_cores(scope: Scope) -> float:
    """Return how many cores were idle while the loader was iterated; NaN: not known."""
    if len(scope.ranks) > 1 or not number(scope.machine, "idle_ns").any():
        return math.nan
    epochs = scope.epochs
    spent = np.nansum(number(epochs, "end_ns") - number(epochs, "start_ns"))
    if not spent >= _LEAST_NS:
        return math.nan
    return min(within_loops(scope, "idle_ns") / float(spent), scope.cores)


def least_memory_share(machine: pd.DataFrame, whole_bytes: float) -> float:
    """Return the least share of the memory that was left, 0 to 1; NaN: not known.

    Of a cgroup's limit where that left less than the machine, which has `whole_bytes` (NaN: not
    known). `machine` is a table as `Run.machine`.
    """
    left, limit = number(machine, "available_bytes"), number(machine, "memory_limit_bytes")
    shares = (left / np.where(limit > 0, limit, whole_bytes))[left >= 0]
    known = shares[np.isfinite(shares)]
    return float(known.min()) if known.size else math.nan
