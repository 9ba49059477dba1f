"""Detects samples that arrive evenly spaced over all workers, as under a limit that they share.

Workers that wait each for itself end their samples at whatever moments. Behind one rate limit or
one line, each sample ends a fixed time after the one before it.
"""

import math

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import Floats, integer, number
from lotus.analysis.common.scope import Scope

_MOST = 65_536  # samples that are looked at
_LEAST = 100  # distances
_LEAST_WORKERS = 4
# Of the distances between ends: the middle half within itself, the short ones against the typical.
_MIDDLE, _SHORTEST = 0.75, 0.4


def shared_pace_ns(scope: Scope) -> float:
    """The typical time from one sample's end to the next one's, of all workers of a rank.

    NaN where the distances are uneven or few, or there are few workers: two or three that wait by
    themselves may end their samples at even distances by chance.
    """
    if scope.num_workers < _LEAST_WORKERS:
        return math.nan
    distances = _distances(_first_samples(scope))
    if len(distances) < _LEAST:
        return math.nan
    short, low, middle, high = np.quantile(distances, [0.1, 0.25, 0.5, 0.75])
    even = low >= _MIDDLE * high and short >= _SHORTEST * max(middle, float(distances.mean()))
    return float(middle) if even else math.nan


def _first_samples(scope: Scope) -> pd.DataFrame:
    parts, count = [], 0
    for samples in scope.fetched.times():
        parts.append(samples)
        count += len(samples)
        if count >= _MOST:
            break
    return pd.concat(parts, ignore_index=True)[:_MOST] if parts else pd.DataFrame()


def _distances(samples: pd.DataFrame) -> Floats:
    """Between the ends of samples that follow each other in an epoch of a rank, nanoseconds."""
    end = number(samples, "start_ns") + number(samples, "duration_ns")
    rank, epoch = integer(samples, "rank"), integer(samples, "epoch")
    order = np.lexsort((end, epoch, rank))
    same = (np.diff(rank[order]) == 0) & (np.diff(epoch[order]) == 0)
    distances = np.diff(end[order])[same]
    return np.asarray(distances[np.isfinite(distances)], np.float64)
