"""Batches of an epoch that go to whichever rank asks next, so that a fast rank takes more.

The order is that of the program's own `DistributedSampler`, cut into batches of the program's own
size; the job's store counts how many were given away. Each sample is taken once; the numbers that
torch adds so that all ranks have as many are not needed.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Dealt:
    """Stands for a `DistributedSampler` inside a loader's `BatchSampler`.

    The program keeps its own sampler, whose epoch, seed, order and length are followed.
    """

    def __init__(self, own: "Any", size: int, drop_last: bool, store: "Any") -> None:
        """`size`: of a batch; `store`: for this loader alone."""
        self.own, self.size, self.drop_last, self.store = own, size, drop_last, store
        self.epoch = 0  # how often it was iterated: as often on every rank

    def __getattr__(self, name: str) -> "Any":
        if name == "own":  # a copy that is being made
            raise AttributeError(name)
        return getattr(self.own, name)

    def __len__(self) -> int:
        return len(self.own)

    def __iter__(self) -> "Iterator[Any]":
        self.epoch += 1
        key, size = f"taken{self.epoch}", self.size
        many = len(self.own.dataset)
        if self.own.drop_last:
            many -= many % self.own.num_replicas  # as torch does
        if self.drop_last:
            many -= many % size
        order = order_of(self.own)
        while (start := (self.store.add(key, 1) - 1) * size) < many:
            yield from order[start : min(start + size, many)]


def order_of(own: "Any") -> "list[Any]":
    """All samples of an epoch in the order in which a `DistributedSampler` deals them out.

    By torch's own code for a job of one rank, whichever version it is.
    """
    import copy

    everything = copy.copy(own)
    many = len(everything.dataset)
    everything.num_replicas, everything.rank = 1, 0
    everything.num_samples = everything.total_size = many
    return list(everything)
