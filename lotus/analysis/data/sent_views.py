"""Views of large storages that workers send whole."""

import math

from lotus.analysis.common.columns import float_column, median
from lotus.analysis.common.scope import Scope

_TIMES, _LEAST_BYTES = 4.0, 1 << 20


def sent_views(scope: Scope) -> tuple[float, float]:
    """Return the bytes of a batch's tensors and of their storages, where these are far larger.

    Medians over the workers' first batches; (NaN, NaN) where tensors fill their storages, nothing
    is sent, or it is not known.
    """
    first = scope.first_batches
    if not scope.num_workers or not len(first):
        return math.nan, math.nan
    rows = first[(first["generator"] == "").to_numpy()]
    tensors, storages = (median(float_column(rows, f"{of}_bytes")) for of in ("tensor", "storage"))
    much = storages >= _TIMES * tensors and storages - tensors >= _LEAST_BYTES
    return (tensors, storages) if much else (math.nan, math.nan)
