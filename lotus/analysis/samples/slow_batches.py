"""Batches that were slow as a whole, so that their samples are not named one by one.

A stall of the machine or of storage makes every sample of a batch slow; that says nothing of the
samples.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.batches.components import first_of_process, held_up
from lotus.analysis.batches.usual_durations import (
    UsualDurations,
    sample_durations,
    usual_durations,
)
from lotus.analysis.common.columns import BatchPlaces, float_column, int_column
from lotus.analysis.common.scope import Scope
from lotus.common.numbers.array_types import Bools, Floats, Ints

# A sample is slow if it takes this many times the usual; a batch, if this part of its samples is.
SLOW_TIMES, SLOW_PART = 1.5, 0.75
# The probability that as many slow samples meet by chance in one of all batches is below this.
_CHANCE = 0.05
COLUMNS = ["rank", "worker", "epoch", "batch", "samples", "slow", "typical_ns", "times", "first"]


@dataclass(frozen=True)
class WholeBatches:
    """Batches that were slow as a whole: `whole` (n,) and a row per measured sample of them.

    `samples`: row (of the batch), took and usual (ns), index (in the data set).
    """

    whole: Bools
    samples: pd.DataFrame


def slow_batches(scope: Scope, count: int = 10) -> pd.DataFrame:
    """Return the `count` batches that were slow as a whole, the slowest first.

    Columns: rank worker epoch batch samples (measured) slow (of them) typical_ns (its median
    sample) times (the same over what is usual of its worker) first (the first batch of its
    process).
    """
    batches, slow = scope.batches, slow_as_a_whole(scope)
    if not slow.whole.any() or not count:
        return pd.DataFrame(columns=COLUMNS)
    frame = slow.samples.assign(slow=slow.samples["took"] > SLOW_TIMES * slow.samples["usual"])
    each = frame.groupby("row").agg(
        samples=("took", "size"),
        slow=("slow", "sum"),
        typical_ns=("took", "median"),
        usual=("usual", "median"),
    )
    table = pd.DataFrame(
        {name: int_column(batches, name)[each.index] for name in COLUMNS[:4]}
        | {name: each[name].to_numpy() for name in each.columns}
    )
    table["times"] = table["typical_ns"] / table["usual"]
    table["first"] = first_of_process(batches, scope.workers)[each.index]
    return table.sort_values("times", ascending=False, kind="stable").head(count)[COLUMNS]


def slow_as_a_whole(scope: Scope) -> WholeBatches:
    """Return which batches were slow in all but a few of their samples.

    A batch of slow samples that met by chance, or that are slow in other batches too, was not slow
    as a whole.
    """
    return scope.fetched.once("slow as a whole", lambda: _slow_as_a_whole(scope))


def _slow_as_a_whole(scope: Scope) -> WholeBatches:
    count, places, usual = len(scope.batches), BatchPlaces(scope.batches), usual_durations(scope)
    size, many, excess = np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count)
    for samples in scope.fetched.times():
        row, duration = places.rows(samples), sample_durations(samples)
        known = (row >= 0) & ~np.isnan(duration)
        if known.any():
            row, duration, ordinary = row[known], duration[known], usual.usual(samples)[known]
            slow, least = duration > SLOW_TIMES * ordinary, int(row.min())
            here = slice(least, int(row.max()) + 1)
            width = here.stop - least
            size[here] += np.bincount(row - least, minlength=width)
            many[here] += np.bincount(row[slow] - least, minlength=width)
            beyond = (duration - ordinary)[slow]
            excess[here] += np.bincount(row[slow] - least, beyond, width)
    none = pd.DataFrame(columns=["row", "took", "usual", "index"])
    fetch = np.nan_to_num(float_column(scope.batches, "fetch_ns"))
    busy = excess <= held_up(scope.batches, fetch)  # it was without a core
    whole: Bools = (size > 1) & (many >= SLOW_PART * size) & ~busy
    if not whole.any():
        return WholeBatches(whole, none)
    others, other_slow = int(size[~whole].sum()), int(many[~whole].sum())
    rate = (other_slow + 1) / (others + 2)
    whole &= _likely(many, size, rate) * int((size > 0).sum()) < _CHANCE
    if not whole.any():
        return WholeBatches(whole, none)
    inside = pd.concat([_measured(each, places, usual, whole) for each in scope.fetched.times()])
    whole &= ~_slow_elsewhere(scope, places, usual, inside, whole)
    return WholeBatches(whole, inside[whole[inside["row"].to_numpy(np.int64)]])


def _measured(
    samples: pd.DataFrame, places: BatchPlaces, usual: UsualDurations, whole: Bools
) -> pd.DataFrame:
    """Return the samples of these batches that have a time of their own."""
    row, duration = places.rows(samples), sample_durations(samples)
    mine = (row >= 0) & whole[np.maximum(row, 0)] & ~np.isnan(duration)
    chosen = samples[mine]
    return pd.DataFrame(
        {
            "row": row[mine],
            "took": duration[mine],
            "usual": usual.usual(chosen),
            "index": int_column(chosen, "sample"),
        }
    )


def _likely(many: Ints, size: Ints, rate: float) -> Floats:
    """Return the probability that `many` or more of `size` are slow at this rate; an upper bound.

    Chernoff's bound, which is exact where all are.
    """
    part = many / np.maximum(size, 1)
    rest = 1.0 - part
    distance = part * np.log(np.maximum(part, 1e-300) / rate)
    distance += rest * np.log(np.maximum(rest, 1e-300) / (1.0 - rate))
    return np.where(part > rate, np.exp(-size * distance), 1.0)


def _slow_elsewhere(
    scope: Scope, places: BatchPlaces, usual: UsualDurations, inside: pd.DataFrame, whole: Bools
) -> Bools:
    """Return which batches had samples that were as slow in other epochs (n,)."""
    result = np.zeros(len(whole), np.bool_)
    inside = inside[inside["index"] >= 0]
    wanted = np.unique(inside["index"])
    again: list[pd.Series] = []  # of the usual duration, by index
    for samples in scope.fetched.times():
        index = int_column(samples, "sample")
        row, duration = places.rows(samples), sample_durations(samples)
        here = (row >= 0) & ~whole[np.maximum(row, 0)] & ~np.isnan(duration)
        here &= np.isin(index, wanted)
        if here.any():
            times = duration[here] / usual.usual(samples[here])
            again.append(pd.Series(times, index=index[here]))
    if again:
        elsewhere = pd.concat(again).groupby(level=0).median()
        typical = inside["index"].map(elsewhere).groupby(inside["row"]).median()
        result[typical[typical > SLOW_TIMES].index.to_numpy(np.int64)] = True
    return result


def typical_of_others(duration: Floats, batch: Ints) -> Floats:
    """Return the median of the other samples of each sample's batch (m,); NaN: there are none."""
    result = np.full(len(duration), np.nan)
    known = np.flatnonzero((batch >= 0) & ~np.isnan(duration))
    if not known.size:
        return result
    order = known[np.lexsort((duration[known], batch[known]))]
    sorted_batch, took = batch[order], duration[order]
    begin = np.searchsorted(sorted_batch, sorted_batch, side="left")
    others = np.searchsorted(sorted_batch, sorted_batch, side="right") - begin - 1
    place = np.arange(len(order)) - begin
    has = others > 0

    def without_itself(rank: Ints) -> Floats:
        """Return the value of this rank among the others."""
        rank = rank + (rank >= place)
        return np.asarray(took[np.where(has, begin + rank, 0)])

    middle = (without_itself((others - 1) // 2) + without_itself(others // 2)) / 2
    result[order] = np.where(has, middle, np.nan)
    return result
