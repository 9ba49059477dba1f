"""In which order epochs ask for samples, as far as it decides what a cache of samples gives.

A cache that is full keeps what it has. So it has those samples that were asked for first, and an
access is a hit if the sample's rank, in the order of first accesses, is below the number that find
room. Only samplers of torch are followed: those of a program may have effects.
"""

from __future__ import annotations

import copy
import sys
from array import array
from bisect import bisect_left
from itertools import islice

from ..common.clocks import clock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable
    from typing import Any

_LEAST_EPOCHS, _MOST_EPOCHS = 2, 1000  # the first one fills the cache
_MOST_ACCESSES = 4_000_000  # in all epochs: some seconds
_MOST_DRAWN_FROM = 20_000_000  # samples: those that draw a few of them permute them all
_MOST_S = 5.0
_POINTS = 256  # ranks for which hits are counted


class UnknownOrderError(Exception):
    """The reason for which the order of a sampler is not computed."""


class AccessOrder:
    """Counts the accesses of epochs by the rank of their sample."""

    def __init__(self) -> None:
        self._ranks: dict[Hashable, int] = {}
        self._repeats: list[array[int]] = []  # of an epoch: ranks of accesses that are not first
        self._accesses: list[int] = []
        self._distinct: list[int] = []

    def add(self, samples: Iterable[Hashable]) -> None:
        """Count the accesses of the next epoch."""
        ranks, known, repeats = self._ranks, len(self._ranks), []
        for sample in samples:
            rank = ranks.setdefault(sample, known)
            if rank == known:
                known += 1
            else:
                repeats.append(rank)
        before = self._distinct[-1] if self._distinct else 0
        self._accesses.append(len(repeats) + known - before)
        self._repeats.append(array("q", sorted(repeats)))
        self._distinct.append(len(ranks))

    def columns(self) -> dict[str, Any]:
        """Return what lotus/advise/caches/sample_accesses.py reads."""
        count = len(self._ranks)
        points = sorted({count * place // _POINTS for place in range(_POINTS + 1)})
        return {
            "accesses": self._accesses,
            "distinct": self._distinct,
            "ranks": points,
            "hits": [_below(repeats, points) for repeats in self._repeats],
        }


def _below(repeats: array[int], points: list[int]) -> list[int]:
    """Return how many of the ranks, which ascend, are below each point."""
    return [bisect_left(repeats, point) for point in points]


def each_once(length: int) -> dict[str, Any]:
    """Return the columns of epochs that ask for each of so many samples once."""
    return {
        "accesses": [length, length],
        "distinct": [length, length],
        "ranks": [0, length],
        "hits": [[0, 0], [0, length]],
    }


def columns(loader: Any, epochs: int) -> dict[str, Any]:
    """Return how often so many epochs of a loader ask for which samples, or the first of them.

    They are fewer where that takes more than some seconds. Samplers draw other random numbers here
    than in the epochs of the program. Raises UnknownOrderError.
    """
    kinds, batches = sys.modules["torch"].utils.data, loader.batch_sampler
    # Where the program gives the batch sampler, `loader.sampler` is one that nothing asks.
    sampler = batches.sampler if type(batches) is kinds.BatchSampler else batches
    # Whether each epoch asks for the same samples, for each of them once.
    once: dict[type, Callable[[], bool]] = {
        kinds.SequentialSampler: lambda: True,
        kinds.RandomSampler: lambda: _takes_all(sampler, sampler.data_source),
        kinds.WeightedRandomSampler: lambda: _takes_all(sampler, sampler.weights),
        kinds.SubsetRandomSampler: lambda: len(_indices(sampler).unique()) == len(sampler),
    }
    distributed = type(sampler) is kinds.distributed.DistributedSampler
    if type(sampler) not in once and not distributed:
        raise UnknownOrderError("it is not torch's own")
    drops = type(batches) is kinds.BatchSampler and batches.drop_last
    given = len(sampler) - (len(sampler) % batches.batch_size if drops else 0)
    if distributed:
        if given < len(sampler):
            raise UnknownOrderError("each rank drops its last batch")
        return each_once(len(sampler.dataset))  # all ranks together
    same = given == len(sampler) or type(sampler) is kinds.SequentialSampler
    if same and once[type(sampler)]():
        return each_once(given)
    most = _MOST_ACCESSES // _LEAST_EPOCHS
    if len(sampler) > most:
        raise UnknownOrderError(f"it draws more than {most:,} samples an epoch")
    if _drawn_from(sampler) > _MOST_DRAWN_FROM:
        raise UnknownOrderError(f"it draws from more than {_MOST_DRAWN_FROM:,} samples")
    copied, order, until = _copied(sampler), AccessOrder(), clock() + int(_MOST_S * 1e9)
    wanted = min(epochs, _MOST_EPOCHS, _MOST_ACCESSES // max(len(sampler), 1))
    drawn = 0
    while drawn < max(wanted, _LEAST_EPOCHS) and (drawn < _LEAST_EPOCHS or clock() < until):
        order.add(islice(copied, given))
        drawn += 1
    return order.columns()


def _drawn_from(sampler: Any) -> int:
    for name in ("data_source", "weights", "indices"):
        if hasattr(sampler, name):
            return len(getattr(sampler, name))
    return len(sampler)


def _takes_all(sampler: Any, source: Any) -> bool:
    return not sampler.replacement and bool(sampler.num_samples == len(source))


def _indices(sampler: Any) -> Any:
    return sys.modules["torch"].as_tensor(sampler.indices)


def _copied(sampler: Any) -> Any:
    """Return a sampler that draws as this one does, and leaves its generator alone."""
    copied = copy.copy(sampler)
    if hasattr(copied, "indices"):
        copied.indices = _indices(sampler).tolist()  # equal tensors do not count as one sample
    if sampler.generator is not None:
        copied.generator = sys.modules["torch"].Generator()
        copied.generator.set_state(sampler.generator.get_state())
    return copied
