"""The samples that were slow by themselves."""

import numpy as np
import pandas as pd

from lotus.analysis.batches.usual_durations import sample_durations, usual_durations
from lotus.analysis.common.columns import BatchPlaces, int_column
from lotus.analysis.common.scope import Scope
from lotus.analysis.samples.operation_statistics import slowest_operation
from lotus.analysis.samples.slow_batches import SLOW_TIMES, slow_as_a_whole, typical_of_others
from lotus.common.numbers.array_types import Bools, Ints

_COLUMNS = ["rank", "worker", "epoch", "batch", "sample", "duration_ns", "times", "beyond", "path"]


def slowest_samples(scope: Scope, count: int = 10) -> pd.DataFrame:
    """Return the `count` samples that were slow most beyond their batch, the longest first.

    Columns: rank worker epoch batch sample duration_ns times beyond path operation operation_ns.
    `times`: over the median sample. `beyond`: over the median sample or, where that is more, over
    that of the others in its batch: how much of its slowness is its own. Samples of a batch that
    was slow as a whole (`slow_batches`) are in it only where they stand out of it. `path` "" where
    the data set does not tell it; `operation`: the one that took longest in it. Samples fetched
    many at once (`__getitems__`) have no time of their own and are not in it.
    """
    places, usual = BatchPlaces(scope.batches), usual_durations(scope)
    ordinary = float(np.fmax(usual.overall, 1.0))
    whole = slow_as_a_whole(scope).whole
    slowest, least = pd.DataFrame(), -np.inf
    for samples in scope.fetched.times() if count else ():
        part = _slowest_of(samples, places.rows(samples), ordinary, whole, count, least)
        if len(part):
            slowest = pd.concat([slowest, part], ignore_index=True) if len(slowest) else part
            slowest = slowest.sort_values("excess", ascending=False, kind="stable").head(count)
            least = slowest["excess"].iloc[-1] if len(slowest) == count else least
    if not len(slowest):
        return pd.DataFrame(columns=[*_COLUMNS, "operation", "operation_ns"])
    slowest = slowest.sort_values("duration_ns", ascending=False, kind="stable", ignore_index=True)
    slowest["times"] = slowest["duration_ns"] / ordinary
    slowest["beyond"] = slowest["duration_ns"] / slowest["base"]
    slowest["path"] = _paths(scope.paths, slowest["sample"])
    return slowest[_COLUMNS].assign(**slowest_operation(scope, slowest))


def _slowest_of(
    samples: pd.DataFrame, row: Ints, usual: float, whole: Bools, count: int, least: float
) -> pd.DataFrame:
    """Return the `count` samples of a part that were slow most beyond their batch, in their order.

    Only those by more than `least` nanoseconds matter.
    """
    duration = sample_durations(samples)
    if least > -np.inf:
        # With all samples of their batches, with which they are compared.
        matter = duration - usual > least
        theirs = np.zeros(len(whole) + 1, np.bool_)
        theirs[row[matter]] = True  # the last one stands for those in no batch
        near = np.flatnonzero(theirs[row])
        samples, row, duration = samples.iloc[near], row[near], duration[near]
    base = np.fmax(usual, typical_of_others(duration, row))
    excess = duration - base
    if whole.any():
        inside = (row >= 0) & whole[np.maximum(row, 0)]
        excess[inside & (duration < SLOW_TIMES * base)] = np.nan
    known = np.flatnonzero(~np.isnan(excess))
    if known.size > count:
        least = np.partition(excess[known], known.size - count)[known.size - count]
        more = known[excess[known] > least]
        # Of equally slow ones, the first.
        known = np.sort(np.append(more, known[excess[known] == least][: count - more.size]))
    names = ("rank", "worker", "loader", "epoch", "batch", "position", "sample")
    table = pd.DataFrame({name: int_column(samples, name)[known] for name in names})
    return table.assign(duration_ns=duration[known], base=base[known], excess=excess[known])


def _paths(paths: pd.DataFrame, samples: pd.Series) -> pd.Series:
    if not len(paths):
        return pd.Series([""] * len(samples))
    known = pd.Series(paths["path"].astype(str).to_numpy(), index=int_column(paths, "sample"))
    return samples.map(known[~known.index.duplicated()]).fillna("").astype(str)
