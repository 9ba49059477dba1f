"""Hands out the batches of an epoch on demand, so that faster ranks take more of them.

The order of samples is that of the program's `DistributedSampler`, cut into batches of the
program's batch size; the job's store counts the batches that were taken. Each sample is used once:
the padding by which torch gives all ranks the same number of samples is not needed. If the program
itself synchronizes ranks within a step (to average a loss, say), all ranks take the same number of
batches, because a rank with more would wait forever.
"""

import sys

from ..common.guard import first_line, of_the_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class SharedQueueSampler:
    """Replaces a `DistributedSampler` inside a loader's `BatchSampler`.

    The program keeps its own sampler, and that determines epoch, seed, order and length.
    """

    def __init__(
        self, own: "Any", size: int, drop_last: bool, store: "Any", norms: bool = False
    ) -> None:
        """`size` is the batch size; `store` is used for this loader only.

        `norms`: the model has batch norms, which cannot train on a batch of one sample.
        """
        self.own, self.size, self.drop_last, self.store = own, size, drop_last, store
        self.norms = norms
        self.passes = 0  # epochs that were trained on, the same number on every rank
        # Whether all ranks need the same number of batches; None: not known before a first step.
        self.equal_counts: bool | None = None
        self.key, self.drawn = "", list[int]()  # the current epoch, and the batches taken in it

    def __getattr__(self, name: str) -> "Any":
        if name == "own":  # a copy that is being made
            raise AttributeError(name)
        return getattr(self.own, name)

    def __reduce__(self) -> "Any":
        return _same, (self.own,)  # a copy of the loader has the program's own sampler

    def __len__(self) -> int:
        return len(self.own)

    def used(self) -> None:
        """Note that the current epoch is trained on; the next iteration starts a new epoch.

        Before that, a single rank may iterate to look at a first batch.
        """
        self.passes, self.key = self.passes + 1, ""

    def __iter__(self) -> "Iterator[Any]":
        torch: Any = sys.modules["torch"]
        # Nothing is trained on these, or ranks need equal counts: use the program's own sampler.
        if not torch.is_grad_enabled() or self.equal_counts:
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
        while self.equal_counts is False or turn < equal:
            if turn == len(drawn):
                drawn.append(self._next(key))
            batch = drawn[turn]
            if batch >= batches:
                if not self.equal_counts or not batches:
                    drawn.pop()
                    return
                batch %= batches  # repeat a batch of another rank, as torch does
            turn += 1
            begin, end = batch * size, min((batch + 1) * size, many)
            if self.norms and end - begin == 1 < size:  # batch norm cannot train on it
                begin = max(begin - 1, 0)
            yield from order[begin:end]

    def _next(self, key: str) -> int:
        """Return the number of the epoch's next batch; raise SystemExit if the store fails."""
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
    """Return all samples of an epoch in the order in which a `DistributedSampler` uses them.

    torch's own code for a job of one rank determines it, whatever its version.
    """
    import copy

    everything = copy.copy(own)
    many = len(everything.dataset)
    everything.num_replicas, everything.rank = 1, 0
    everything.num_samples = everything.total_size = many
    return list(everything)
