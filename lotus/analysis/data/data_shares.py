"""The division of an iterable data set's data among its workers."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, int_column
from lotus.analysis.common.scope import Scope

_SEVERAL = 3  # batches of a worker; fewer are the rest of a division
_LEAST_LOST = 0.2


@dataclass(frozen=True)
class DataShares:
    """The division of data. `empty`: workers without a batch, while each other made several.

    `lost`: share of the making, 0 to 1, that equal shares of the data would save; 0.0 where little
    is lost, or where samples go to the workers in turn. `largest`: share of the samples that the
    worker with the most made; NaN where nothing is lost. `times_read`: how often an epoch has each
    sample, on average, as `repeated_samples.divided_data` has it. `whole_passes`: that follows from
    how the workers pass over the data, not from samples that were seen to be equal.
    """

    empty: int = 0
    lost: float = 0.0
    largest: float = math.nan
    times_read: float = 1.0
    whole_passes: bool = False


def data_shares(scope: Scope) -> DataShares:
    """Return each worker's part; an epoch takes as long as the worker with the most data."""
    workers = scope.num_workers
    if scope.partial or workers < 2 or scope.settings.get("dataset_kind") != "iterable":
        return DataShares()
    batches = scope.batches
    worker, size = int_column(batches, "worker"), np.nan_to_num(float_column(batches, "size"))
    made = (size > 0) & (worker >= 0) & (worker < workers)
    if not made.any():
        return DataShares()
    rows = pd.DataFrame(
        {
            "rank": int_column(batches, "rank")[made],
            "epoch": int_column(batches, "epoch")[made],
            "worker": worker[made],
            "size": size[made],
        }
    )
    counts = np.bincount(rows["worker"], minlength=workers)
    empty = int((counts == 0).sum()) if counts[counts > 0].min() >= _SEVERAL else 0
    each = rows.groupby(["rank", "epoch", "worker"])["size"].agg(["sum", "count"])
    of_epoch = each.groupby(["rank", "epoch"])
    (whole, batches_made), (most, of_most) = of_epoch.sum().sum(), of_epoch.max().sum()
    lost = 1.0 - float(whole / workers / most)
    ahead = (of_most - batches_made / workers) / of_epoch.ngroups
    if empty or (lost >= _LEAST_LOST and ahead >= _SEVERAL):
        return DataShares(empty, lost, float(most / whole))
    return DataShares()
