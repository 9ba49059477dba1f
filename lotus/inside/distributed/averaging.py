"""Parameters of one model on many ranks, averaged: all at once, or while each goes on.

A round is one all_reduce of everything. Ranks may take unequal numbers of steps: one that has no
more goes on taking part in rounds, with nothing of its own, until all are there, so each round has
every rank and nobody waits for one that is gone. Batch norm's running statistics are averaged with
the parameters; whole numbers are not.
"""

import hashlib
import time
import weakref
from math import prod
from typing import NamedTuple

from ..common.guard import quiet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

_LONGEST_NAP_S = 0.02
_MORE = 3  # numbers at the end of each row, for the round itself


class Place(NamedTuple):
    """What a tensor of a model is in the rows: the same for one that takes its place."""

    name: str
    device: str
    kind: "Any"  # the torch.dtype in which it is averaged
    shape: "tuple[int, ...]"


class Flat:
    """The numbers of a model in one row for each device and kind of number.

    Half precision is averaged as float32. Each row ends with numbers for the round itself. The
    model's tensors are looked up by name each time, as a program may put others in their place;
    what rows look like stays until all ranks change it.
    """

    def __init__(self, torch: "Any", model: "Any") -> None:
        """`model`: a DistributedDataParallel; what it leaves to its rank is left here too. It is
        held weakly."""
        self.torch = torch
        self._model: Any = weakref.ref(model)
        self.refused: list[Place] = []  # what is not so on all ranks
        self.take(self.look())

    def tensors(self) -> "Iterator[tuple[Place, Any]]":
        """What of the model is averaged now, as it is now."""
        torch, model = self.torch, self._model()
        if model is None:
            return
        for named in (model.module.named_parameters(), model.module.named_buffers()):
            for name, one in named:
                if name in model.parameters_to_ignore or torch.nn.parameter.is_lazy(one):
                    continue
                if one.is_floating_point() and one.numel():
                    kind = torch.float64 if one.dtype == torch.float64 else torch.float32
                    yield Place(name, str(one.device), kind, tuple(one.shape)), one

    def look(self) -> "list[Place]":
        """What rows would look like now."""
        return [place for place, _ in self.tensors()]

    def take(self, places: "list[Place]") -> None:
        """Have rows look so."""
        self.layout = places
        self.places = {place.name: place for place in places}
        self.groups: dict[tuple[str, Any], list[Place]] = {}
        for place in places:
            self.groups.setdefault((place.device, place.kind), []).append(place)

    def changed(self) -> bool:
        """Whether the model has other tensors than rows have, of which the ranks do not know."""
        return self.look() not in (self.layout, self.refused)

    def rows(self, instead: "Sequence[Any] | None" = None) -> "list[Any]":
        """What the model has now, one row a group, the last numbers 0; of a tensor that is not
        there any more what `instead` has, or 0."""
        with self.torch.no_grad():
            known = {} if instead is None else dict(self.parts(instead))
            known |= {
                place.name: one.detach().reshape(-1).to(place.kind)
                for place, one in self.tensors()
                if self.places.get(place.name) == place
            }
            return self.pack(known)

    def pack(self, parts: "dict[str, Any]") -> "list[Any]":
        """Rows of these numbers, by name; 0 where there are none."""
        zeros, rows = self.torch.zeros, []
        for (device, kind), places in self.groups.items():
            made = [
                zeros(prod(place.shape), device=device, dtype=kind)
                if place.name not in parts
                else parts[place.name]
                for place in places
            ]
            rows.append(self.torch.cat([*made, zeros(_MORE, device=device, dtype=kind)]))
        return rows

    def parts(self, rows: "Iterable[Any]") -> "Iterator[tuple[str, Any]]":
        """(name of a tensor, its numbers in the rows)."""
        for places, row in zip(self.groups.values(), rows, strict=True):
            begin = 0
            for place in places:
                end = begin + prod(place.shape)
                yield place.name, row[begin:end]
                begin = end

    def put(self, rows: "Iterable[Any]") -> None:
        """Give the model these numbers, as far as it has what rows have."""
        with self.torch.no_grad():
            known = dict(self.parts(rows))
            for place, one in self.tensors():
                if self.places.get(place.name) == place:
                    one.detach().copy_(known[place.name].view(place.shape))


def digest(places: "Iterable[Place]") -> int:
    """A number of 60 bits that is the same for places that are the same."""
    lines = [f"{tuple(place)}\n" for place in places]
    return int(hashlib.sha256("".join(lines).encode()).hexdigest()[:15], 16)


class Rounds:
    """What both ways of averaging share."""

    def __init__(self, torch: "Any", model: "Any", group: "Any") -> None:
        """`group`: of all ranks, for rounds alone."""
        self.flat, self.group = Flat(torch, model), group
        self.distributed = torch.distributed
        self.world = int(self.distributed.get_world_size(group))
        self.steps = 0  # since its numbers were handed over
        self.differ = False  # ranks have models of other tensors

    def _reduce(self, rows: "list[Any]", background: bool = False) -> "list[Any]":
        reduce = self.distributed.all_reduce
        return [reduce(row, group=self.group, async_op=background) for row in rows]

    def _ask(self, device: "Any", background: bool = False) -> "tuple[list[Place], Any, list[Any]]":
        """(what rows would look like here, what tells whether they would on all ranks, what to wait
        for): a round of its own, where a rank has seen that its model changed."""
        places = self.flat.look()
        mine = digest(places)
        asked = self.flat.torch.tensor([mine, -mine], device=device)
        work = self.distributed.all_reduce(
            asked, self.distributed.ReduceOp.MAX, group=self.group, async_op=background
        )
        return places, asked, [work]

    def _is_same(self, places: "list[Place]", asked: "Any") -> bool:
        """Whether rows shall look so from now on."""
        same = int(asked[0]) == -int(asked[1])
        self.flat.refused = [] if same else places
        self.differ = self.differ or not same
        return same


class Together(Rounds):
    """Every rank waits for a round, and has the same numbers after it."""

    def average(self, ended: bool = False) -> bool:
        """One round; returns whether all ranks have ended.

        The mean is that of the ranks which have taken a step since the last round.
        """
        rows = self.flat.rows()
        fits = self.flat.places.items() <= {place.name: place for place in self.flat.look()}.items()
        weight = float(self.steps > 0 and fits)
        for row in rows:
            row *= weight
        numbers = (weight, float(ended), float(self.flat.changed()))
        rows[0][-_MORE:] = rows[0].new_tensor(numbers)
        self._reduce(rows)
        weights, over, changed = rows[0][-_MORE:].tolist()
        if changed:
            places, asked, _ = self._ask(rows[0].device)
            if self._is_same(places, asked):
                self.flat.take(places)
                return self.average(ended)
        if weights:
            self.flat.put(row / weights for row in rows)
        self.steps = 0
        return bool(over == self.world)

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
        # Whether the next round asks if rows shall look otherwise; what the one under way asks.
        self.asks = False
        self.asked: tuple[list[Place], Any] | None = None

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
        if self.asks:
            places, asked, self.works = self._ask(self.anchor[0].device, background=True)
            self.asks, self.asked = False, (places, asked)
            return
        now = self.flat.rows(self.anchor)
        self.sent = [row - anchor for row, anchor in zip(now, self.anchor, strict=True)]
        self.shared = [row.clone() for row in self.sent]
        self.shared[0][-2] = float(self.flat.changed())
        self.shared[0][-1] = float(ended)
        self.works = self._reduce(self.shared, background=True)
        self.steps = 0

    def _take(self) -> bool:
        """End the round under way; returns whether all ranks had ended."""
        for work in self.works:
            work.wait()
        self.works = []
        if self.asked is not None:
            (places, asked), self.asked = self.asked, None
            if self._is_same(places, asked):
                # What is new begins at 0: what the ranks hand over next is all of it.
                known, before = dict(self.flat.parts(self.anchor)), self.flat.places
                self.flat.take(places)
                same = [place.name for place in places if before.get(place.name) == place]
                self.anchor = self.flat.pack({name: known[name] for name in same})
            return False
        self.asks, over = (bool(number) for number in self._told())
        mean = [row / self.world for row in self.shared]
        for row in mean:
            row[-_MORE:] = 0.0
        pairs = zip(self.flat.rows(self.anchor), mean, self.sent, strict=True)
        self.flat.put([now + common - own for now, common, own in pairs])
        self.anchor = [anchor + common for anchor, common in zip(self.anchor, mean, strict=True)]
        return over and not self.asks

    def _told(self) -> "tuple[bool, bool]":
        """Whether a rank's model has changed, whether all ranks had ended."""
        changed, ended = self.shared[0][-2:].tolist()
        return changed > 0, ended == self.world
