"""Parameters of one model on many ranks, averaged: all at once, or while each goes on.

A round is one all_reduce of everything. Ranks may take unequal numbers of steps: one that has no
more goes on taking part in rounds, with nothing of its own, until all are there, so each round has
every rank and nobody waits for one that is gone. Batch norm's running statistics are averaged with
the parameters; whole numbers are not.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


class Flat:
    """The numbers of a model in one row for each device and kind of number.

    Half precision is averaged as float32. Each row ends with two numbers for the round itself.
    """

    def __init__(self, torch: "Any", module: "Any") -> None:
        self.torch = torch
        kinds: dict[Any, list[Any]] = {}
        for one in (*module.parameters(), *module.buffers()):
            if one.is_floating_point() and one.numel():
                kind = torch.float64 if one.dtype == torch.float64 else torch.float32
                kinds.setdefault((str(one.device), kind), []).append(one)
        self.groups = [(kind, tensors) for (_, kind), tensors in kinds.items()]

    def rows(self) -> "list[Any]":
        """What the model has now, one row a group, the last two numbers 0."""
        made = []
        with self.torch.no_grad():
            for kind, tensors in self.groups:
                parts = [one.detach().reshape(-1).to(kind) for one in tensors]
                made.append(self.torch.cat([*parts, parts[0].new_zeros(2)]))
        return made

    def put(self, rows: "Iterable[Any]") -> None:
        """Give the model these numbers."""
        with self.torch.no_grad():
            for (_, tensors), row in zip(self.groups, rows, strict=True):
                place = 0
                for one in tensors:
                    many = one.numel()
                    one.detach().copy_(row[place : place + many].view_as(one))
                    place += many


class Rounds:
    """What both ways of averaging share."""

    def __init__(self, torch: "Any", module: "Any", group: "Any") -> None:
        """`group`: of all ranks, for rounds alone."""
        self.flat, self.group = Flat(torch, module), group
        self.distributed = torch.distributed
        self.world = int(self.distributed.get_world_size(group))
        self.steps = 0  # since its numbers were handed over

    def _reduce(self, rows: "list[Any]", background: bool = False) -> "list[Any]":
        reduce = self.distributed.all_reduce
        return [reduce(row, group=self.group, async_op=background) for row in rows]


class Together(Rounds):
    """Every rank waits for a round, and has the same numbers after it."""

    def average(self, ended: bool = False) -> bool:
        """One round; returns whether all ranks have ended.

        The mean is that of the ranks which have taken a step since the last round.
        """
        rows = self.flat.rows()
        weight = float(self.steps > 0)
        for row in rows:
            row *= weight
        rows[0][-2], rows[0][-1] = weight, float(ended)
        self._reduce(rows)
        weights, over = float(rows[0][-2]), float(rows[0][-1])
        if weights:
            self.flat.put(row / weights for row in rows)
        self.steps = 0
        return over == self.world

    def step(self, every: int) -> None:
        """A step was taken."""
        self.steps += 1
        if self.steps >= every:
            self.average()

    def finish(self) -> None:
        """This rank has no more batches: take part until no rank has."""
        while not self.average(ended=True):
            pass


class Apart(Rounds):
    """Each rank goes on; what it changed is averaged with the others' changes meanwhile.

    One round is under way at a time. `anchor` is what all ranks have in common, the mean of all
    changes handed over so far; a rank's own numbers are that and its changes since.
    """

    def __init__(self, torch: "Any", module: "Any", group: "Any") -> None:
        super().__init__(torch, module, group)
        self.anchor = self.flat.rows()
        self.sent: list[Any] = []  # own changes in the round that is under way
        self.shared: list[Any] = []  # what becomes the sum of all ranks' changes
        self.works: list[Any] = []

    def step(self, staleness: int) -> None:
        """A step was taken; waits where `staleness` were since this rank handed changes over."""
        self.steps += 1
        if self.works and (self.steps > staleness or self._is_over()):
            self._take()
        if not self.works:
            self._hand_over(ended=False)
            if not staleness:
                self._take()

    def finish(self) -> None:
        """This rank has no more batches: take part until no rank has."""
        over = False
        if self.works:
            self._take()
        while not over:
            self._hand_over(ended=True)
            over = self._take()
        self.flat.put(self.anchor)  # all have handed over everything

    def _is_over(self) -> bool:
        return all(work.is_completed() for work in self.works)

    def _hand_over(self, ended: bool) -> None:
        now = self.flat.rows()
        self.sent = [row - anchor for row, anchor in zip(now, self.anchor, strict=True)]
        self.shared = [row.clone() for row in self.sent]
        self.shared[0][-1] = float(ended)
        self.works = self._reduce(self.shared, background=True)
        self.steps = 0

    def _take(self) -> bool:
        """Wait for the round under way; returns whether all ranks had ended."""
        for work in self.works:
            work.wait()
        over = float(self.shared[0][-1]) == self.world
        mean = [row / self.world for row in self.shared]
        for row in mean:
            row[-2:] = 0.0
        pairs = zip(self.flat.rows(), mean, self.sent, strict=True)
        self.flat.put([now + common - own for now, common, own in pairs])
        self.anchor = [anchor + common for anchor, common in zip(self.anchor, mean, strict=True)]
        self.works = []
        return over
