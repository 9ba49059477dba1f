"""The time of the sampler in `iter()`, where it draws the indices of an epoch's first batches."""

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import Bools, flag, integer, number, total
from lotus.analysis.common.scope import Scope

_RECEIVED_NS = 5e6  # a batch that is made, on a busy machine


def drawn_ns(scope: Scope, loop: pd.DataFrame) -> float:
    """Return how much of `iter()` the sampler took, ns; `loop`: `loop_times` of the loader.

    Known of a map-style data set whose workers are kept. The only other long part of `iter()` is
    waiting for the batches that are left of an interrupted epoch, of which at most
    `prefetch_factor` a worker are on their way. An `iter()` that starts workers, the first and that
    of each loader created anew, is taken to have drawn for the median time of the others. 0.0 where
    it is not known.
    """
    kept = bool(scope.settings.get("persistent_workers")) and scope.num_workers > 0
    if not kept or scope.settings.get("dataset_kind") != "map" or len(loop) < 2:
        return 0.0
    rows = pd.DataFrame(
        {
            **{name: integer(loop, name) for name in ("rank", "epoch")},
            "start": number(loop, "start_ns"),
            "iter": np.nan_to_num(number(loop, "iter_ns")),
            "ended": flag(loop, "exhausted"),
        }
    ).sort_values(["rank", "epoch"])
    again = rows["rank"].eq(rows["rank"].shift()).to_numpy() & ~_starts_workers(scope, rows)
    if not again.any():
        return 0.0
    whole = rows["ended"].shift(fill_value=False).to_numpy(np.bool_)
    drew = np.maximum(rows["iter"].to_numpy() - np.where(again & ~whole, _left_ns(scope), 0.0), 0.0)
    return total(np.minimum(drew[~again], np.median(drew[again]))) + total(drew[again])


def _starts_workers(scope: Scope, epochs: pd.DataFrame) -> Bools:
    """Return in which of these epochs, in the order of their ranks, a worker was started."""
    of, began = integer(scope.workers, "rank"), number(scope.workers, "loop_ns")
    fresh = np.zeros(len(epochs), np.bool_)
    for rank in np.unique(epochs["rank"]):
        mine = np.flatnonzero(epochs["rank"] == rank)
        starts = np.fmax.accumulate(epochs["start"].to_numpy(np.float64)[mine])
        place = np.searchsorted(starts, began[(of == rank) & np.isfinite(began)], side="right") - 1
        fresh[mine[place[place >= 0]]] = True
    return fresh


def _left_ns(scope: Scope) -> float:
    """Return the longest that receiving what is left of an epoch has taken, in ns."""
    ahead = scope.prefetch_factor
    fetch = np.nanmax(number(scope.batches, "fetch_ns"), initial=0.0)
    return float(ahead * (fetch + scope.num_workers * _RECEIVED_NS))
