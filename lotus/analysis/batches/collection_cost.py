"""What full collections of garbage cost the making of batches: an estimate.

A full collection looks at every object of the process. Only which fetches had one is recorded, so
its time is what these took beyond the usual one of their process.
"""

from dataclasses import dataclass

import numpy as np

from lotus.analysis.common.columns import float_column, int_column, ratio, total
from lotus.analysis.common.scope import Scope
from lotus.common.numbers.array_types import Bools
from lotus.inside.trace.fetches.full_collections import MOST

_LEAST = 5  # fetches with one, and without
_ABOUT_NS = 1000.0  # between clocks
_LONGER = 1.3  # times a usual one: fetches with a collection, in the median


@dataclass(frozen=True)
class CollectionCost:
    """`share`: of the time of fetches, 0 to 1; the medians of fetches are in nanoseconds."""

    share: float
    with_ns: float
    without_ns: float


def had_full_collection(scope: Scope) -> tuple[Bools, Bools]:
    """Return which batches (n,) had one, and of which that is known.

    A process stops recording them after so many.
    """
    batches, collections = scope.batches, scope.full_collections
    pids, starts = int_column(batches, "pid"), float_column(batches, "fetch_start_ns")
    had, known = np.zeros(len(batches), np.bool_), np.isfinite(starts)
    for pid in np.unique(int_column(collections, "pid")).tolist():
        times = np.sort(float_column(collections, "time_ns")[int_column(collections, "pid") == pid])
        mine = np.flatnonzero((pids == pid) & known)
        order = mine[np.argsort(starts[mine], kind="stable")]
        # Its own start, but for how a clock of another machine was converted.
        place = np.searchsorted(starts[order], times + _ABOUT_NS, side="right") - 1
        had[order[place[place >= 0]]] = True
        if len(times) >= MOST:
            known[mine] &= starts[mine] <= times[-1] + _ABOUT_NS
    return had, known


def collection_cost(scope: Scope) -> CollectionCost | None:
    """Return what full collections cost the fetches; None if that does not show."""
    had, known = had_full_collection(scope)
    fetch = float_column(scope.batches, "fetch_ns")
    delay = np.nan_to_num(float_column(scope.batches, "run_delay_ns"))
    took = np.maximum(fetch - delay, 0.0)
    known &= fetch > 0
    had &= known
    if had.sum() < _LEAST or (known & ~had).sum() < _LEAST:
        return None
    with_one, without = float(np.median(took[had])), float(np.median(took[known & ~had]))
    if with_one < _LONGER * without:
        return None
    beyond = total(np.maximum(took[had] - without, 0.0))
    return CollectionCost(ratio(beyond, total(took[known])), with_one, without)
