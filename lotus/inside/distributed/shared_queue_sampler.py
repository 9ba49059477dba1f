"""Batches of an epoch that go to whichever rank asks next, so that a fast rank takes more.

The order is that of the program's own `DistributedSampler`, cut into batches of the program's own
size; the job's store counts how many were given away. Each sample is taken once; the numbers that
torch adds so that all ranks have as many are not needed. Where the program's ranks meet in steps
of its own (to average a loss, say), each takes as many batches, or one would wait for ever.
"""

import sys

from ..common.guard import first_line, of_the_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Dealt:
    """Stands for a `DistributedSampler` inside a loader's `BatchSampler`.

    The program keeps its own sampler, whose epoch, seed, order and length are followed.
    """

    def __init__(
        self, own: "Any", size: int, drop_last: bool, store: "Any", norms: bool = False
    ) -> None:
        """`size`: of a batch; `store`: for this loader alone; `norms`: one sample is no batch."""
        self.own, self.size, self.drop_last, self.store = own, size, drop_last, store
        self.norms = norms
        self.passes = 0  # epochs that were trained on: as many on every rank
        # Whether each rank must have as many batches; None: it is not known before a first step.
        self.level: bool | None = None
        self.key, self.drawn = "", list[int]()  # the epoch that is under way, and what was taken

    def __getattr__(self, name: str) -> "Any":
        if name == "own":  # a copy that is being made
            raise AttributeError(name)
        return getattr(self.own, name)

    def __reduce__(self) -> "Any":
        return _same, (self.own,)  # a copy of the loader is as the program made it

    def __len__(self) -> int:
        return len(self.own)

    def used(self) -> None:
        """The epoch under way is trained on: who begins again begins another one.

        One rank alone may look at a first batch before.
        """
        self.passes, self.key = self.passes + 1, ""

    def __iter__(self) -> "Iterator[Any]":
        torch: Any = sys.modules["torch"]
        # Nothing is learnt from these, or ranks need as many: as the program is written.
        if not torch.is_grad_enabled() or self.level:
            yield from self.own
            return
        many, size, world = len(self.own.dataset), self.size, self.own.num_replicas
        if self.own.drop_last:
            many -= many % world  # as torch does
        if self.drop_last:
            many -= many % size
        batches = -(-many // size)
        equal = batches // world if self.drop_last else -(-batches // world)
        key = f"{self.passes}.{self.own.epoch}"
        if key != self.key:
            self.key, self.drawn = key, []
        drawn, order, turn = self.drawn, order_of(self.own), 0
        while self.level is False or turn < equal:
            if turn == len(drawn):
                drawn.append(self._next(key))
            batch = drawn[turn]
            if batch >= batches:
                if not self.level or not batches:
                    drawn.pop()
                    return
                batch %= batches  # one that another rank has too, as torch does
            turn += 1
            begin, end = batch * size, min((batch + 1) * size, many)
            if self.norms and end - begin == 1 < size:  # batch norm cannot train on it
                begin = max(begin - 1, 0)
            yield from order[begin:end]

    def _next(self, key: str) -> int:
        """The number of the epoch's next batch; raises SystemExit where the store does not say."""
        try:
            return int(self.store.add(key, 1)) - 1
        except Exception as error:
            if of_the_program(error):
                raise
            why = first_line(error)
            raise SystemExit(
                "lotus: which batch comes next cannot be known, as the job's store does not "
                f"answer ({why}); rank {self.own.rank} stops before it"
            ) from None


def _same(own: "Any") -> "Any":
    return own


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
