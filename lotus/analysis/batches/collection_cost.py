"""What full collections of garbage cost the fetches, `next` and training steps: an estimate.

A full collection looks at every object of the process. How many each of these had is recorded, not
how long they took: that is what those with some take beyond others.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, int_column, ratio, total
from lotus.analysis.common.scope import Scope
from lotus.common.numbers.array_types import Bools, Floats
from lotus.inside.trace.full_collections import FETCH, MOST, NEXT, STEP

_LEAST = 5  # fetches with one; where as many have none, these are compared
_LONGER = 1.3  # times a usual one: fetches with a collection, in the median
_LEAST_IN_ALL, _CERTAIN = 10, 3.0  # fetches, and standard errors, where nearly all have some
_ABOUT_NS = 1000  # between clocks


@dataclass(frozen=True)
class CollectionCost:
    """`share`: of the time of fetches, `next` or steps, 0 to 1; `each_ns`: of one collection.

    `count`: how many a fetch, `next` or step had on average.
    """

    share: float
    each_ns: float
    count: float


def fetch_collections(scope: Scope) -> tuple[Floats, Bools]:
    """Return how many each batch (n,) had while it was made, and of which that is known."""
    return _counts(scope, FETCH, scope.batches, float_column(scope.batches, "fetch_start_ns"))


def step_collections(scope: Scope) -> tuple[Floats, Bools]:
    """Return the same of the training step after each wait (n,)."""
    waits = scope.waits
    begin = float_column(waits, "start_ns") + float_column(waits, "wait_ns")
    return _counts(scope, STEP, waits, begin)


def _counts(
    scope: Scope, during: str, table: pd.DataFrame, begin_ns: Floats
) -> tuple[Floats, Bools]:
    """Return how many there were in what began then in the process of each row (n,).

    A process stops recording them after so many.
    """
    collections = scope.full_collections
    if len(collections):
        collections = collections[collections["during"] == during]
    pids = int_column(table, "pid")
    counts, known = np.zeros(len(table)), np.isfinite(begin_ns)
    begun = pd.DataFrame({"pid": pids, "time_ns": begin_ns, "row": np.arange(len(table))})[known]
    recorded = pd.DataFrame(
        {
            "pid": int_column(collections, "pid"),
            "time_ns": float_column(collections, "time_ns"),
            "count": float_column(collections, "count"),
        }
    )
    had = pd.merge_asof(
        recorded.sort_values("time_ns"),
        begun.sort_values("time_ns"),
        on="time_ns",
        by="pid",
        direction="nearest",
        tolerance=_ABOUT_NS,
    ).dropna()
    np.add.at(counts, had["row"].to_numpy(np.int64), had["count"].to_numpy(np.float64))
    of_process = recorded.groupby("pid")["time_ns"].agg(["size", "max"])
    ends = of_process["max"][of_process["size"] >= MOST]
    known &= ~(begin_ns > pd.Series(pids).map(ends).to_numpy(np.float64) + _ABOUT_NS)
    return counts, known


def of_fetches(scope: Scope) -> CollectionCost | None:
    """Return what full collections cost the fetches; None if that does not show."""
    fetch = float_column(scope.batches, "fetch_ns")
    delay = np.nan_to_num(float_column(scope.batches, "run_delay_ns"))
    return _cost(fetch - delay, *fetch_collections(scope))


def of_steps(scope: Scope, rows: Bools | None = None) -> CollectionCost | None:
    """Return what they cost the training steps after these waits (n,); None if it does not show.

    `rows`: None stands for all.
    """
    step = float_column(scope.waits, "step_ns")
    delay = np.nan_to_num(float_column(scope.waits, "step_run_delay_ns"))
    counts, known = step_collections(scope)
    return _cost(step - delay, counts, known if rows is None else known & rows)


def of_receiving(scope: Scope) -> CollectionCost | None:
    """Return what they cost the main process in `next`, of its CPU time there, which waits are not.

    None if that does not show.
    """
    waits = scope.waits
    counts = _counts(scope, NEXT, waits, float_column(waits, "start_ns"))
    return _cost(float_column(waits, "wait_cpu_ns"), *counts)


def _cost(took: Floats, counts: Floats, known: Bools) -> CollectionCost | None:
    known = known & (took > 0)
    took, counts = took[known], counts[known]
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
