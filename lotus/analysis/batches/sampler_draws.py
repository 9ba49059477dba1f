"""The time of the sampler in `iter()`, where it draws the indices of an epoch's first batches."""

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import Floats, Ints, flag, integer, number, total
from lotus.analysis.common.scope import Scope

_RECEIVED_NS = 5e6  # a batch that is made, on a busy machine
# From the begin of a process, known to 10 ms, until its parent goes on, on a busy machine.
_STARTED_NS = 50e6


def drawn_ns(scope: Scope, loop: pd.DataFrame) -> float:
    """Return how much of `iter()` the sampler took, ns; `loop`: `loop_times` of the loader.

    Known of a map-style data set. Where `iter()` starts workers, it is the time after the last of
    them has begun, or has read what was pickled for it. Where they are kept, the only other long
    part of `iter()` is waiting for the batches that are left of an interrupted epoch, of which at
    most `prefetch_factor` a worker are on their way; an `iter()` that starts workers, where it is
    not known when they began, is taken to have drawn for the median time of the others. 0.0 where
    it is not known.
    """
    if scope.num_workers < 1 or scope.settings.get("dataset_kind") != "map" or not len(loop):
        return 0.0
    kept = bool(scope.settings.get("persistent_workers"))
    rows = pd.DataFrame(
        {
            **{name: integer(loop, name) for name in ("rank", "epoch")},
            "start": number(loop, "start_ns"),
            "iter": np.nan_to_num(number(loop, "iter_ns")),
            "delay": np.nan_to_num(number(loop, "iter_run_delay_ns")),
            "ended": flag(loop, "exhausted"),
        }
    ).sort_values(["rank", "epoch"])
    epoch_of = _epochs_of_workers(scope, rows)
    starts = np.isin(np.arange(len(rows)), epoch_of)
    after = _after_starts(scope, rows, epoch_of)
    again = rows["rank"].eq(rows["rank"].shift()).to_numpy() & ~starts & kept
    whole = rows["ended"].shift(fill_value=False).to_numpy(np.bool_)
    drew = np.maximum(rows["iter"].to_numpy() - np.where(again & ~whole, _left_ns(scope), 0.0), 0.0)
    usual = float(np.median(drew[again])) if again.any() else 0.0
    first = np.where(np.isfinite(after), after, np.minimum(drew, usual))
    return total(first[~again]) + total(drew[again])


def _after_starts(scope: Scope, epochs: pd.DataFrame, epoch_of: Ints) -> Floats:
    """Return how long each `iter()` went on after its last worker had begun, ns; NaN: unknown.

    Without the time in which it had no core, whenever that was. Unknown with pinned memory, for
    which it may set a device up.
    """
    after = np.full(len(epochs), np.nan)
    if scope.settings.get("pin_memory"):
        return after
    workers = scope.workers
    begun = number(workers, "start_ns")
    if scope.settings.get("start_method") != "fork":
        begun = begun + number(workers, "import_ns") + number(workers, "unpickle_ns")
    start, took, delay = (epochs[name].to_numpy(np.float64) for name in ("start", "iter", "delay"))
    end = start + took - delay
    for place in np.unique(epoch_of[epoch_of >= 0]):
        mine = begun[epoch_of == place]
        if len(mine) == scope.num_workers and mine.max() >= start[place] - _STARTED_NS:  # no NaN
            after[place] = max(end[place] - mine.max() - _STARTED_NS, 0.0)
    return after


def _epochs_of_workers(scope: Scope, epochs: pd.DataFrame) -> Ints:
    """Return in which of these epochs, in the order of their ranks, each worker was started; -1:
    in none."""
    of, began = integer(scope.workers, "rank"), number(scope.workers, "loop_ns")
    epoch_of = np.full(len(of), -1)
    for rank in np.unique(epochs["rank"]):
        mine = np.flatnonzero(epochs["rank"] == rank)
        starts = np.fmax.accumulate(epochs["start"].to_numpy(np.float64)[mine])
        theirs = np.flatnonzero((of == rank) & np.isfinite(began))
        place = np.searchsorted(starts, began[theirs], side="right") - 1
        epoch_of[theirs] = np.where(place >= 0, mine[place], -1)
    return epoch_of


def _left_ns(scope: Scope) -> float:
    """Return the longest that receiving what is left of an epoch has taken, in ns."""
    ahead = scope.prefetch_factor
    fetch = np.nanmax(number(scope.batches, "fetch_ns"), initial=0.0)
    return float(ahead * (fetch + scope.num_workers * _RECEIVED_NS))
