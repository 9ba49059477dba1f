"""The iterations of a loader: whole epochs, loops that were left, batches not used."""

from dataclasses import dataclass

import numpy as np

from lotus.analysis.common.columns import flag, float_column, int_column
from lotus.analysis.common.scope import Scope


@dataclass(frozen=True)
class Passes:
    """The iterations of one loader, counted on all of its ranks at once.

    iterations      all but the sanity checks that Lightning makes before training
    whole           those that came to the end of the data, or to the length that the loader tells
    endless         whether an iterator gave more batches than the loader's length
    sanity          sanity checks
    sanity_batches  batches that were taken for those, by all ranks
    unused          batches that a library took ahead and dropped where its loop was left, by all
    """

    iterations: int
    whole: int
    endless: bool
    sanity: int
    sanity_batches: int
    unused: int


def passes_of(scope: Scope) -> Passes:
    """Count the iterations of a loader."""
    table = scope.epochs
    epoch, taken = int_column(table, "epoch"), np.nan_to_num(float_column(table, "batches"))
    sanity, ended = flag(table, "sanity"), flag(table, "exhausted")
    stated = scope.settings.get("length")
    length = float(stated) if isinstance(stated, int) and stated > 0 else np.inf
    whole, beyond = ended | (taken >= length), taken > length
    left = ~ended & ~np.isnan(float_column(table, "end_ns"))
    ahead = np.minimum(np.nan_to_num(float_column(table, "ahead")), taken)
    counted = np.unique(epoch[~sanity])
    return Passes(
        iterations=len(counted),
        whole=len(counted) - len(np.unique(epoch[~sanity & ~whole])),
        endless=bool((beyond & ~sanity).any()),
        sanity=len(np.unique(epoch[sanity])),
        sanity_batches=int(taken[sanity].sum()),
        unused=int(ahead[left & ~sanity].sum()),
    )
