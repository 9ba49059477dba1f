"""Parameters of one model on many ranks, averaged: all at once, or while each goes on.

A round is one all_reduce of everything. Ranks may take unequal numbers of steps: one that has no
more goes on taking part in rounds, with nothing of its own, until all are there, so each round has
every rank and nobody waits for one that is gone. Batch norm's running statistics are averaged with
the parameters; whole numbers are not.
"""

import time

from .guard import quiet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_LONGEST_NAP_S = 0.02


class Flat:
    """The numbers of a model in one row for each device and kind of number.

    Half precision is averaged as float32. Each row ends with two numbers for the round itself.
    """

    def __init__(self, torch: "Any", model: "Any") -> None:
        """`model`: a DistributedDataParallel; what it leaves to its rank is left here too."""
        self.torch = torch
        kinds: dict[Any, list[Any]] = {}
        named = (*model.module.named_parameters(), *model.module.named_buffers())
        for name, one in named:
            if name in model.parameters_to_ignore:
                continue
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

    def __init__(self, torch: "Any", model: "Any", group: "Any") -> None:
        """`group`: of all ranks, for rounds alone."""
        self.flat, self.group = Flat(torch, model), group
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

    A rank may leave its loop before the end of an epoch and wait elsewhere for the others. Who
    waits for it here goes on without it, and the round stays under way. If it ends, the round
    fails, and is the last. Where a rank ends that did not leave its loop, the others fail with it.
    """

    STEP_S, END_S = 30.0, 600.0  # the longest wait for a rank that is not known to have left
    GRACE_S = 2.0  # an exception on its way out of a loop looks as if its rank had left that

    def __init__(self, torch: "Any", model: "Any", group: "Any", store: "Any") -> None:
        """`store`: for this alone; its "away" counts the ranks that left their loop."""
        super().__init__(torch, model, group)
        self.store, self.away = store, False
        self.alone = False  # a round failed after a rank had left
        self.longest_s = 0.0  # that a round took
        self.anchor = self.flat.rows()
        self.sent: list[Any] = []  # own changes in the round that is under way
        self.shared: list[Any] = []  # what becomes the sum of all ranks' changes
        self.works: list[Any] = []

    def go_away(self) -> None:
        """This rank left its loop."""
        if not self.away:
            self.away = True
            with quiet(Exception):  # the job may be over
                self.store.add("away", 1)

    def come_back(self) -> None:
        if self.away:
            self.away = False
            self.store.add("away", -1)

    def fail(self) -> None:
        """An exception ends this rank, which is no leaving of a loop: the others shall fail too."""
        with quiet(Exception):  # the job may be over
            self.come_back()
        self.away = True  # and nothing tells so

    def step(self, staleness: int) -> None:
        """A step was taken; waits where `staleness` were since this rank handed changes over."""
        try:
            if not self.alone:
                self._step(staleness)
        except RuntimeError:
            if not self._goes_on():
                raise

    def _step(self, staleness: int) -> None:
        self.steps += 1
        if self.works and (self._is_over() or (self.steps > staleness and self._wait(self.STEP_S))):
            self._take()
        if not self.works:
            self._hand_over(ended=False)
            if not staleness and self._wait(self.STEP_S):
                self._take()

    def finish(self) -> bool:
        """This rank has no more batches: take part until no rank has.

        Returns whether all came to one model.
        """
        try:
            return not self.alone and self._finish()
        except RuntimeError:
            if not self._goes_on():
                raise
            return False

    def _finish(self) -> bool:
        if self.works:
            if not self._wait(self.END_S, self.GRACE_S):
                return False
            self._take()
        over = False
        while not over:
            self._hand_over(ended=True)
            if not self._wait(self.END_S, self.GRACE_S):
                return False
            over = self._take()
        self.flat.put(self.anchor)  # all have handed over everything
        return True

    def _goes_on(self) -> bool:
        """Whether this rank goes on without the others, as a round failed."""
        self.alone = self._left()
        return self.alone

    def _left(self) -> bool:
        """Whether a rank is known to have left its loop."""
        with quiet(Exception):  # the store may be gone, which is none of a round's business
            return bool(self.store.add("away", 0))
        return False

    def _is_over(self) -> bool:
        return all(work.is_completed() for work in self.works)

    def _wait(self, most_s: float, grace_s: float = 0.0) -> bool:
        """Whether the round under way came to its end before a rank was seen to be away so long."""
        begin, nap = time.monotonic(), 0.0002
        away: float | None = None  # since when
        while not self._is_over():
            now = time.monotonic()
            if now - begin > max(most_s, 10 * self.longest_s):
                return False
            if nap == _LONGEST_NAP_S:
                away = (now if away is None else away) if self._left() else None
                if away is not None and now - away >= grace_s:
                    return self._is_over()
            time.sleep(nap)
            nap = min(2 * nap, _LONGEST_NAP_S)
        self.longest_s = max(self.longest_s, time.monotonic() - begin)
        return True

    def _hand_over(self, ended: bool) -> None:
        now = self.flat.rows()
        self.sent = [row - anchor for row, anchor in zip(now, self.anchor, strict=True)]
        self.shared = [row.clone() for row in self.sent]
        self.shared[0][-1] = float(ended)
        self.works = self._reduce(self.shared, background=True)
        self.steps = 0

    def _take(self) -> bool:
        """End the round under way; returns whether all ranks had ended."""
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
