"""The samples that were slow by themselves."""

import numpy as np
import pandas as pd

from lotus.analysis.batches.operation_statistics import slowest_operation
from lotus.analysis.batches.slow_batches import (
    SLOW_TIMES,
    sample_durations,
    slow_as_a_whole,
    typical_of_others,
)
from lotus.analysis.common.columns import batch_rows, integer, median
from lotus.analysis.common.scope import Scope

_COLUMNS = ["rank", "worker", "epoch", "batch", "sample", "duration_ns", "times", "beyond", "path"]


def slowest_samples(scope: Scope, count: int = 10) -> pd.DataFrame:
    """The `count` samples that were slow most beyond their batch: rank worker epoch batch sample
    duration_ns times beyond path operation operation_ns.

    `times`: over the median sample. `beyond`: over the median sample or, where that is more, over
    that of the others in its batch: how much of its slowness is its own. Samples of a batch that
    was slow as a whole (`slow_batches`) are in it only where they stand out of it. `path` "" where
    the data set does not tell it; `operation`: the one that took longest in it. Samples fetched
    many at once (`__getitems__`) have no time of their own and are not in it.
    """
    samples = scope.samples
    duration = sample_durations(samples)
    row = batch_rows(scope.batches, samples)
    usual = max(median(duration), 1.0) if (~np.isnan(duration)).any() else 1.0
    base = np.fmax(usual, typical_of_others(duration, row))
    excess = duration - base
    whole = slow_as_a_whole(scope.batches, samples)
    if whole.any():
        inside = (row >= 0) & whole[np.maximum(row, 0)]
        excess[inside & (duration < SLOW_TIMES * base)] = np.nan
    known = np.flatnonzero(~np.isnan(excess))
    count = min(count, known.size)
    if not count:
        return pd.DataFrame(columns=[*_COLUMNS, "operation", "operation_ns"])
    largest = known[np.argpartition(-excess[known], count - 1)[:count]]
    largest = largest[np.argsort(-excess[largest], kind="stable")]
    slowest = pd.DataFrame(
        {name: integer(samples, name)[largest] for name in ("rank", "worker", "epoch", "batch")}
    )
    slowest["sample"] = integer(samples, "sample")[largest]
    slowest["duration_ns"] = duration[largest]
    slowest["times"] = duration[largest] / usual
    slowest["beyond"] = duration[largest] / base[largest]
    slowest["path"] = _paths(scope.paths, slowest["sample"])
    return slowest.assign(**slowest_operation(scope, largest.tolist()))


def _paths(paths: pd.DataFrame, samples: pd.Series) -> pd.Series:
    if not len(paths):
        return pd.Series([""] * len(samples))
    known = pd.Series(paths["path"].astype(str).to_numpy(), index=integer(paths, "sample"))
    return samples.map(known[~known.index.duplicated()]).fillna("").astype(str)
