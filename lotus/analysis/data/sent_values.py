"""What the values of large batches could do without: the size of float64, and padding."""

import math
from dataclasses import dataclass

from lotus.analysis.common.columns import float_column, median, ratio
from lotus.analysis.common.scope import Scope

LARGE = 8 << 20  # bytes of a batch
_MOSTLY = 0.5
_NEARLY_ALL = 0.8


@dataclass(frozen=True)
class SentValues:
    """Of a batch's tensors: their bytes, those of float64, and the share of zeros, 0 to 1.

    Medians over the workers' first batches; NaN: not known, or nothing is sent.
    """

    tensor_bytes: float = math.nan
    double_bytes: float = math.nan
    zero_share: float = math.nan

    @property
    def are_large(self) -> bool:
        """True if sending a batch is worth a word."""
        return self.tensor_bytes >= LARGE

    @property
    def are_doubles(self) -> bool:
        """True if they are large and mostly float64, with which hardly any model is trained."""
        return self.are_large and ratio(self.double_bytes, self.tensor_bytes) >= _MOSTLY

    @property
    def are_padded(self) -> bool:
        """True if they are large and nearly all values are zeros: probably padding."""
        return self.are_large and self.zero_share >= _NEARLY_ALL


def sent_values(scope: Scope) -> SentValues:
    """Return the values of a loader's batches."""
    return SentValues(*of_first_batches(scope, "tensor_bytes", "double_bytes", "zero_share"))


def of_first_batches(scope: Scope, *names: str) -> list[float]:
    """Return the medians of columns of `Run.first_batches`; NaN: not known, or nothing is sent."""
    first = scope.first_batches
    if not scope.num_workers or not len(first):
        return [math.nan] * len(names)
    rows = first[(first["generator"] == "").to_numpy()]
    return [median(float_column(rows, name)) for name in names]
