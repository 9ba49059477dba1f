"""What full collections of garbage cost the making of batches: an estimate.

A full collection looks at every object of the process. How many each fetch had is recorded, not
how long they took: that is what fetches take beyond those of the same process with fewer.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, int_column, ratio, total
from lotus.analysis.common.scope import Scope
from lotus.common.numbers.array_types import Bools, Floats
from lotus.inside.trace.fetches.full_collections import MOST

_LEAST = 5  # fetches with one; where as many have none, these are compared
_LONGER = 1.3  # times a usual one: fetches with a collection, in the median
_LEAST_IN_ALL, _CERTAIN = 10, 3.0  # fetches, and standard errors, where nearly all have some
_ABOUT_NS = 1000.0  # between clocks


@dataclass(frozen=True)
class CollectionCost:
    """`share`: of the time of fetches, 0 to 1; `each_ns`: one; `a_fetch`: how many, on average."""

    share: float
    each_ns: float
    a_fetch: float


def full_collections(scope: Scope) -> tuple[Floats, Bools]:
    """Return how many each batch (n,) had, and of which that is known.

    A process stops recording them after so many.
    """
    batches, collections = scope.batches, scope.full_collections
    pids, starts = int_column(batches, "pid"), float_column(batches, "fetch_start_ns")
    counts, known = np.zeros(len(batches)), np.isfinite(starts)
    fetches = pd.DataFrame({"pid": pids, "time_ns": starts, "row": np.arange(len(batches))})[known]
    recorded = pd.DataFrame(
        {
            "pid": int_column(collections, "pid"),
            # The start of its fetch, but for how a clock of another machine was converted.
            "time_ns": float_column(collections, "time_ns") + _ABOUT_NS,
            "count": float_column(collections, "count"),
        }
    )
    had = pd.merge_asof(
        recorded.sort_values("time_ns"), fetches.sort_values("time_ns"), on="time_ns", by="pid"
    ).dropna()
    np.add.at(counts, had["row"].to_numpy(np.int64), had["count"].to_numpy(np.float64))
    of_process = recorded.groupby("pid")["time_ns"].agg(["size", "max"])
    ends = of_process["max"][of_process["size"] >= MOST]
    known &= ~(starts > pd.Series(pids).map(ends).to_numpy(np.float64))
    return counts, known


def collection_cost(scope: Scope) -> CollectionCost | None:
    """Return what full collections cost the fetches; None if that does not show."""
    counts, known = full_collections(scope)
    fetch = float_column(scope.batches, "fetch_ns")
    known &= fetch > 0
    delay = np.nan_to_num(float_column(scope.batches, "run_delay_ns"))
    took, counts = np.maximum(fetch - delay, 0.0)[known], counts[known]
    had = counts > 0
    if had.sum() < _LEAST:
        return None
    if (~had).sum() >= _LEAST:
        with_one, without = float(np.median(took[had])), float(np.median(took[~had]))
        beyond = total(np.maximum(took[had] - without, 0.0))
        each_ns = ratio(beyond, total(counts)) if with_one >= _LONGER * without else math.nan
    else:
        each_ns = _each_by_slope(counts, took)
        beyond = each_ns * total(counts)
    if not each_ns > 0:
        return None
    share = min(ratio(beyond, total(took)), 1.0)
    return CollectionCost(share, each_ns, float(counts.mean()))


def _each_by_slope(counts: Floats, took: Floats) -> float:
    """Return how much longer fetches take with one more; NaN if that is not certain."""
    apart = counts - counts.mean() if len(counts) else counts
    squares = float((apart**2).sum())
    if len(counts) < _LEAST_IN_ALL or not squares > 0:
        return math.nan
    slope = float((apart * took).sum() / squares)
    rest = took - took.mean() - slope * apart
    error = math.sqrt(float((rest**2).sum()) / (len(counts) - 2) / squares)
    return slope if slope > _CERTAIN * error else math.nan
