"""Any number of durations in bounded memory: exact while there are few, a histogram beyond."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lotus.common.numbers.array_types import Floats, Ints

# Up to so many values are kept as they are; of more, only the number in each bin.
EXACT = 1 << 18
# A bin is 1/128 of the power of two that it lies in: the first bits of a float64 are its number, so
# that no logarithm is computed. Its middle differs from each value in it by at most this share.
_BITS = 7
ERROR = 2.0 ** -(_BITS + 1)
_SHIFT = 52 - _BITS
_ONE = 0x3FF << _BITS  # the number of the bin that begins at 1 ns; below it lies one bin alone


@dataclass(frozen=True)
class Durations:
    """Durations in nanoseconds, at least 0. The order in which they are added does not matter.

    values  (n,) float64, all of them, while n <= EXACT; else empty
    bins    (k,) how many lie in each bin, as soon as there are more; else empty
    error   the largest relative error of a quantile
    """

    count: int
    total: float
    squares: float  # sum of squared differences from the mean
    least: float
    most: float
    values: Floats
    bins: Ints

    @classmethod
    def of(cls, values: Floats) -> "Durations":
        """Return those that are not NaN."""
        unknown = np.isnan(values)
        known = values[~unknown] if unknown.any() else values
        if not known.size:
            return NONE
        made = cls(
            count=int(known.size),
            total=float(known.sum()),
            squares=float(np.square(known - known.mean()).sum()),
            least=float(known.min()),
            most=float(known.max()),
            values=known,
            bins=_NO_BINS,
        )
        return made if known.size <= EXACT else made.binned()

    def __add__(self, other: "Durations") -> "Durations":
        if not self.count or not other.count:
            return self if self.count else other
        count, apart = self.count + other.count, other.mean - self.mean
        exact = count <= EXACT and not len(self.bins) and not len(other.bins)
        part = other.count / count
        return Durations(
            count=count,
            total=self.total + other.total,
            squares=self.squares + other.squares + apart * apart * self.count * part,
            least=min(self.least, other.least),
            most=max(self.most, other.most),
            values=np.concatenate((self.values, other.values)) if exact else _NO_VALUES,
            bins=_NO_BINS if exact else _sum(self.binned().bins, other.binned().bins),
        )

    @property
    def mean(self) -> float:
        """The mean; NaN of nothing."""
        return self.total / self.count if self.count else float("nan")

    @property
    def error(self) -> float:
        """The bound of a quantile's relative error; 0.0: it is exact."""
        return ERROR if len(self.bins) else 0.0

    @property
    def std(self) -> float:
        """The standard deviation; NaN of fewer than two values."""
        if self.count < 2:
            return float("nan")
        return float(self.values.std()) if len(self.values) else (self.squares / self.count) ** 0.5

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """Return quantiles as numpy's default method; NaN of nothing."""
        if not self.count:
            return [float("nan")] * len(shares)
        if len(self.values):
            return [float(cut) for cut in np.quantile(self.values, shares)]
        place = (self.count - 1) * np.asarray(shares, np.float64)
        low, high = self._ranked(np.floor(place)), self._ranked(np.ceil(place))
        cuts = low + (high - low) * (place - np.floor(place))
        return [float(cut) for cut in cuts]

    def _ranked(self, places: Floats) -> Floats:
        """Return the values at these places in order, as far as their bins show."""
        bins = np.searchsorted(np.cumsum(self.bins), places, side="right")
        edges = (np.stack((bins - 1, bins)) + _ONE) << _SHIFT
        middle = edges.view(np.float64).mean(axis=0)
        middle[bins == 0] = 0.0  # times are whole nanoseconds
        return np.asarray(np.clip(middle, self.least, self.most), np.float64)

    @property
    def median(self) -> float:
        """The median; NaN of nothing."""
        return self.quantiles((0.5,))[0]

    def binned(self) -> "Durations":
        """Return the same as a histogram, for callers that have many of these."""
        if len(self.bins) or not self.count:
            return self
        numbers = (self.values.view(np.int64) >> _SHIFT) - _ONE + 1
        bins = np.bincount(np.maximum(numbers, 0)).astype(np.int64)
        return replace(self, values=_NO_VALUES, bins=bins)


def _sum(mine: Ints, theirs: Ints) -> Ints:
    size = max(len(mine), len(theirs))
    return np.pad(mine, (0, size - len(mine))) + np.pad(theirs, (0, size - len(theirs)))


_NO_VALUES, _NO_BINS = np.zeros(0), np.zeros(0, np.int64)
NONE = Durations(0, 0.0, 0.0, np.inf, -np.inf, _NO_VALUES, _NO_BINS)
