"""Detects samples that arrive evenly spaced over all workers, as under a limit that they share.

Workers that wait independently end their samples at any moment. Behind one rate limit or
one line, each sample ends a fixed time after the one before it.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, int_column
from lotus.analysis.common.scope import Scope
from lotus.analysis.samples.first_samples import first_samples
from lotus.common.numbers.array_types import Floats

_LEAST = 100  # distances
# Of the distances between ends: the middle half within itself, the short ones against the typical.
_MIDDLE, _SHORTEST = 0.75, 0.4
# Workers whose own samples vary by so much drift against each other, so that their ends are not
# even by chance for long: in simulations of 2 to 6 of them once in 25 at most, mostly never.
_DRIFT, _MIDDLE_OF_DRIFTING = 0.05, 0.6
_LEAST_WORKERS = 4  # of those that do not drift


def shared_pace_ns(scope: Scope) -> float:
    """Return the typical time from one sample's end to the next one's, of all workers of a rank.

    NaN where the distances are uneven or few, or there is one worker, or few that take the same
    time for every sample: they may end their samples at even distances by chance.
    """
    samples = first_samples(scope) if scope.num_workers > 1 else pd.DataFrame()
    distances = _distances(samples, ("rank", "epoch"))
    if len(distances) < _LEAST:
        return math.nan
    # Pauses between the batches of a worker do not count: they may be the same ones each time.
    own = _distances(samples, ("rank", "epoch", "worker", "batch"))
    drifts = _spread(own) >= _DRIFT
    if not drifts and scope.num_workers < _LEAST_WORKERS:
        return math.nan
    short, low, middle, high = np.quantile(distances, [0.1, 0.25, 0.5, 0.75])
    together = low >= (_MIDDLE_OF_DRIFTING if drifts else _MIDDLE) * high
    even = together and short >= _SHORTEST * max(middle, float(distances.mean()))
    return float(middle) if even else math.nan


def _distances(samples: pd.DataFrame, within: Sequence[str]) -> Floats:
    """Return the distances between ends of consecutive samples with the same `within`, ns."""
    if samples.empty:
        return np.empty(0)
    end = float_column(samples, "start_ns") + float_column(samples, "duration_ns")
    groups = [int_column(samples, name) for name in within]
    order = np.lexsort((end, *reversed(groups)))
    same = np.all([np.diff(group[order]) == 0 for group in groups], axis=0)
    distances = np.diff(end[order])[same]
    return np.asarray(distances[np.isfinite(distances)], np.float64)


def _spread(distances: Floats) -> float:
    """Return the width of the middle half over the middle; 0 without any."""
    low, middle, high = np.quantile(distances, [0.25, 0.5, 0.75]) if len(distances) else (0, 1, 0)
    return float((high - low) / middle) if middle > 0 else math.inf
