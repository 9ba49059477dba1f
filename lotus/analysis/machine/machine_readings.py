"""The machine's own counters while a loader was iterated."""

import numpy as np

from lotus.analysis.common.columns import number
from lotus.analysis.common.scope import Scope


def within_loops(scope: Scope, name: str) -> float:
    """By how much a counter of `Run.machine` grew in the loops; 0.0 where it is not known.

    Between two readings, about a second apart, it is taken to grow evenly.
    """
    times, counts = number(scope.machine, "time_ns"), number(scope.machine, name)
    known = counts >= 0
    if known.sum() < 2 or not len(scope.epochs):
        return 0.0
    edges = np.stack([number(scope.epochs, "start_ns"), number(scope.epochs, "end_ns")])
    edges = edges[:, ~np.isnan(edges).any(axis=0)]
    read = np.interp(edges, times[known], counts[known])
    return float(np.maximum(read[1] - read[0], 0.0).sum())
