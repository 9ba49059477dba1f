"""Batches that were slow as a whole, so that their samples are not named one by one.

A stall of the machine or of storage makes every sample of a batch slow; that says nothing of the
samples.
"""

import numpy as np
import pandas as pd

from lotus.analysis.batches.components import first_of_process
from lotus.analysis.common.columns import (
    Bools,
    Floats,
    Ints,
    batch_rows,
    flag,
    integer,
    median,
    number,
)
from lotus.analysis.common.scope import Scope

# A sample is slow that takes this many times the usual; a batch, most of whose samples are.
SLOW_TIMES, SLOW_PART = 1.5, 0.75
# Of a worker with so many batches its own are the usual ones: one that is always slow has no slow
# batch.
_ENOUGH = 4
# That as many slow samples meet by chance in one of all the batches is less likely than this.
_CHANCE = 0.05
COLUMNS = ["rank", "worker", "epoch", "batch", "samples", "slow", "typical_ns", "times", "first"]


def sample_durations(samples: pd.DataFrame) -> Floats:
    """Nanoseconds of each sample; NaN of those that were fetched many at once."""
    return np.where(flag(samples, "many"), np.nan, number(samples, "duration_ns"))


def usual_durations(samples: pd.DataFrame, duration: Floats) -> Floats:
    """The median sample of each sample's worker (m,), or of all where it made few batches."""
    frame = pd.DataFrame(
        {
            "rank": integer(samples, "rank"),
            "worker": integer(samples, "worker"),
            "batch": integer(samples, "epoch") * 4_194_304 + integer(samples, "batch"),
            "took": duration,
        }
    )
    grouped = frame.groupby(["rank", "worker"])
    own, batches = grouped["took"].transform("median"), grouped["batch"].transform("nunique")
    usual = np.where(batches >= _ENOUGH, own, median(duration))
    return np.fmax(usual.astype(np.float64), 1.0)


def slow_batches(scope: Scope, count: int = 10) -> pd.DataFrame:
    """The `count` batches that were slow as a whole, the slowest first.

    Columns: rank worker epoch batch samples (measured) slow (of them) typical_ns (its median
    sample) times (the same over what is usual of its worker) first (the first batch of its
    process).
    """
    batches, samples = scope.batches, scope.samples
    row, whole = batch_rows(batches, samples), slow_as_a_whole(batches, samples)
    if not whole.any() or not count:
        return pd.DataFrame(columns=COLUMNS)
    duration = sample_durations(samples)
    usual = usual_durations(samples, duration)
    inside = np.flatnonzero((row >= 0) & whole[np.maximum(row, 0)] & ~np.isnan(duration))
    frame = pd.DataFrame({"row": row[inside], "took": duration[inside], "usual": usual[inside]})
    frame["slow"] = frame["took"] > SLOW_TIMES * frame["usual"]
    each = frame.groupby("row").agg(
        samples=("took", "size"),
        slow=("slow", "sum"),
        typical_ns=("took", "median"),
        usual=("usual", "median"),
    )
    table = pd.DataFrame(
        {name: integer(batches, name)[each.index] for name in COLUMNS[:4]}
        | {name: each[name].to_numpy() for name in each.columns}
    )
    table["times"] = table["typical_ns"] / table["usual"]
    table["first"] = first_of_process(batches, scope.workers)[each.index]
    return table.sort_values("times", ascending=False, kind="stable").head(count)[COLUMNS]


def slow_as_a_whole(batches: pd.DataFrame, samples: pd.DataFrame) -> Bools:
    """Which batches were slow in all but a few of their samples (n,).

    A batch of slow samples that met by chance, or that are slow in other batches too, was not slow
    as a whole.
    """
    count, batch, duration = len(batches), batch_rows(batches, samples), sample_durations(samples)
    known = (batch >= 0) & ~np.isnan(duration)
    if not known.any():
        return np.zeros(count, np.bool_)
    usual = usual_durations(samples, duration)
    slow = known & (duration > SLOW_TIMES * usual)
    excess = np.bincount(batch[slow], (duration - usual)[slow], count)
    busy = excess <= np.nan_to_num(number(batches, "run_delay_ns"))  # it was without a core
    size = np.bincount(batch[known], minlength=count)
    many = np.bincount(batch[slow], minlength=count)
    whole: Bools = (size > 1) & (many >= SLOW_PART * size) & ~busy
    if not whole.any():
        return whole
    others, other_slow = int(size[~whole].sum()), int(many[~whole].sum())
    rate = (other_slow + 1) / (others + 2)
    whole &= _likely(many, size, rate) * int((size > 0).sum()) < _CHANCE
    times = np.where(known, duration / usual, np.nan)
    return whole & ~_slow_elsewhere(times, batch, integer(samples, "sample"), whole)


def _likely(many: Ints, size: Ints, rate: float) -> Floats:
    """How likely `many` or more of `size` are slow, of which each is with `rate`; an upper bound.

    Chernoff's bound, which is exact where all are.
    """
    part = many / np.maximum(size, 1)
    rest = 1.0 - part
    distance = part * np.log(np.maximum(part, 1e-300) / rate)
    distance += rest * np.log(np.maximum(rest, 1e-300) / (1.0 - rate))
    return np.where(part > rate, np.exp(-size * distance), 1.0)


def _slow_elsewhere(times: Floats, batch: Ints, index: Ints, whole: Bools) -> Bools:
    """Batches whose samples were as slow in other epochs: it was the samples (n,).

    times: of the usual duration, per sample, NaN where not known; index: in the data set, or -1.
    """
    in_whole = (batch >= 0) & whole[np.maximum(batch, 0)]
    inside = in_whole & ~np.isnan(times) & (index >= 0)
    again = ~in_whole & ~np.isnan(times) & np.isin(index, np.unique(index[inside]))
    result = np.zeros(len(whole), np.bool_)
    if again.any():
        elsewhere = pd.Series(times[again]).groupby(index[again]).median()
        typical = pd.Series(index[inside]).map(elsewhere).groupby(batch[inside]).median()
        result[typical[typical > SLOW_TIMES].index.to_numpy(np.int64)] = True
    return result


def typical_of_others(duration: Floats, batch: Ints) -> Floats:
    """The median of the other samples of each sample's batch (m,); NaN where there are none."""
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
        """The value of this rank among the others."""
        rank = rank + (rank >= place)
        return np.asarray(took[np.where(has, begin + rank, 0)])

    middle = (without_itself((others - 1) // 2) + without_itself(others // 2)) / 2
    result[order] = np.where(has, middle, np.nan)
    return result
