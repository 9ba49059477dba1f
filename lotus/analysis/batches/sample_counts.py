"""The unit of a loader's numbers of samples: samples, or items of unknown contents."""

import numpy as np

from lotus.analysis.common.columns import float_column, int_column
from lotus.analysis.common.scope import Scope
from lotus.inside.trace.log.log_format import ITEMS

SAMPLES, OF_ITEMS = "sample", "item"


def counted(scope: Scope) -> str:
    """Return SAMPLES, or OF_ITEMS if it is not known what the items of the data set hold."""
    flags = int_column(scope.batches, "flags", 0)
    return OF_ITEMS if bool(((flags & ITEMS) != 0).any()) else SAMPLES


def by_first_dimension(scope: Scope) -> bool:
    """Return True if the data set yields whole batches: samples are in the first dimension."""
    if scope.settings.get("dataset_kind") != "iterable" or scope.settings.get("batch_size"):
        return False
    several = np.nanmax(float_column(scope.batches, "size"), initial=0) > 1
    return bool(several and counted(scope) == SAMPLES)
