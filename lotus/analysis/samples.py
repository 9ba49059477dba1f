"""The slowest samples, and the samples as a whole."""

import numpy as np
import pandas as pd

from lotus.analysis.columns import flag, integer, median, number
from lotus.analysis.operations import slowest_operation
from lotus.analysis.scope import Scope


def slowest_samples(scope: Scope, count: int = 10) -> pd.DataFrame:
    """The `count` slowest samples: rank worker epoch batch sample duration_ns times path operation
    operation_ns.

    `times`: over the median sample; `path` "" where the data set does not tell it; `operation`: the
    one that took longest in it. Samples fetched many at once (`__getitems__`) have no time of their
    own and are not in it.
    """
    columns = ["rank", "worker", "epoch", "batch", "sample", "duration_ns", "times", "path"]
    samples = scope.samples
    duration = np.where(flag(samples, "many"), np.nan, number(samples, "duration_ns"))
    known = np.flatnonzero(~np.isnan(duration))
    count = min(count, known.size)
    if not count:
        return pd.DataFrame(columns=[*columns, "operation", "operation_ns"])
    largest = known[np.argpartition(-duration[known], count - 1)[:count]]
    largest = largest[np.argsort(-duration[largest], kind="stable")]
    found = pd.DataFrame(
        {name: integer(samples, name)[largest] for name in ("rank", "worker", "epoch", "batch")}
    )
    found["sample"] = integer(samples, "sample")[largest]
    found["duration_ns"] = duration[largest]
    found["times"] = duration[largest] / max(median(duration), 1.0)
    found["path"] = _paths(scope.paths, found["sample"])
    return found.assign(**slowest_operation(scope, largest.tolist()))


def _paths(paths: pd.DataFrame, samples: pd.Series) -> pd.Series:
    if not len(paths):
        return pd.Series([""] * len(samples))
    known = pd.Series(paths["path"].astype(str).to_numpy(), index=integer(paths, "sample"))
    return samples.map(known[~known.index.duplicated()]).fillna("").astype(str)
