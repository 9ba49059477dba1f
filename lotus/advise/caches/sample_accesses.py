"""The number of samples of each epoch that a cache has, from the order of an epoch's accesses.

The order comes from lotus/inside/isolate/access_order.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lotus.common.numbers.array_types import Floats
from lotus.inside.isolate import access_order


@dataclass(frozen=True)
class SampleAccesses:
    """The accesses of some epochs. A sample's rank is its place in the order of first accesses.

    accesses  in each epoch
    distinct  samples that were asked for up to the end of each epoch
    ranks  ascending, from 0 to the number of all samples
    hits  of each epoch: accesses to samples below each rank that are not their first ones
    """

    accesses: Floats
    distinct: Floats
    ranks: Floats
    hits: Floats

    @classmethod
    def read(cls, columns: Mapping[str, Any]) -> SampleAccesses:
        """Return what the columns of the program say."""
        names = ("accesses", "distinct", "ranks", "hits")
        return cls(*(np.asarray(columns[name], dtype=np.float64) for name in names))

    @classmethod
    def each_once(cls, length: int) -> SampleAccesses:
        """Return those of epochs that ask for each sample once."""
        return cls.read(access_order.each_once(length))

    @property
    def samples(self) -> float:
        """The number of different samples that are accessed."""
        return float(self.distinct[-1])

    @property
    def once(self) -> bool:
        """True if each epoch accesses the same samples, each of them once."""
        return bool(np.all(self.accesses == self.samples) and np.all(self.distinct == self.samples))

    def shares(self, room: float, epochs: int) -> tuple[Floats, Floats]:
        """Return which part of an epoch's accesses are hits, and which are written, epoch by epoch.

        `room` is how many samples the cache has room for. After the last epoch that is known, the
        others are like it.
        """
        known = len(self.accesses)
        each = np.minimum(np.arange(epochs), known - 1)
        accesses = np.maximum(self.accesses, 1)
        hits = np.array([np.interp(room, self.ranks, of_epoch) for of_epoch in self.hits])
        written = np.diff(np.minimum(self.distinct, room), prepend=0.0)
        return (hits / accesses)[each], (written / accesses)[each]
