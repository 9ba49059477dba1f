"""Views of large storages that workers send whole."""

import math

from lotus.analysis.common.scope import Scope
from lotus.analysis.data.sent_values import of_first_batches

_TIMES, _LEAST_BYTES = 4.0, 1 << 20


def sent_views(scope: Scope) -> tuple[float, float]:
    """Return the bytes of a batch's tensors and of their storages, where these are far larger.

    Medians over the workers' first batches; (NaN, NaN) where tensors fill their storages, nothing
    is sent, or it is not known.
    """
    tensors, storages = of_first_batches(scope, "tensor_bytes", "storage_bytes")
    much = storages >= _TIMES * tensors and storages - tensors >= _LEAST_BYTES
    return (tensors, storages) if much else (math.nan, math.nan)
