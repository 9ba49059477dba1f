"""Averages the parameters of a model over all ranks, synchronously or in the background.

A round is one all_reduce of all parameters. Ranks may take different numbers of steps. A rank that
has finished keeps joining rounds, without a contribution of its own, until all ranks have finished:
every round includes every rank. The running statistics of batch norm are averaged with the
parameters; integer buffers are not.
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
_TRAILER = 3  # numbers at the end of each row that control the round


class TensorSlot(NamedTuple):
    """Describes one tensor of a model in the flat rows. A replacement tensor has an equal slot."""

    name: str
    device: str
    dtype: "Any"  # the torch.dtype in which it is averaged
    shape: "tuple[int, ...]"


class FlatTensors:
    """The tensors of a model, flattened into one row for each device and dtype.

    Half precision is averaged as float32. Each row ends with numbers that control the round.
    Tensors are looked up by name every time, because a program may replace them. The layout of the
    rows stays the same until all ranks change it together.
    """

    def __init__(self, torch: "Any", model: "Any") -> None:
        """Hold a weak reference to `model`, a DistributedDataParallel.

        Parameters that DistributedDataParallel ignores are ignored here too.
        """
        self.torch = torch
        self._model: Any = weakref.ref(model)
        self.refused: list[TensorSlot] = []  # a layout that other ranks do not share
        self.set_layout(self.current_layout())

    def tensors(self) -> "Iterator[tuple[TensorSlot, Any]]":
        """Yield the tensors that are averaged, as the model has them now."""
        torch, model = self.torch, self._model()
        if model is None:
            return
        for named in (model.module.named_parameters(), model.module.named_buffers()):
            for name, tensor in named:
                if name in model.parameters_to_ignore or torch.nn.parameter.is_lazy(tensor):
                    continue
                if tensor.is_floating_point() and tensor.numel():
                    dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
                    yield TensorSlot(name, str(tensor.device), dtype, tuple(tensor.shape)), tensor

    def current_layout(self) -> "list[TensorSlot]":
        """Return the layout that the model's tensors would have now."""
        return [slot for slot, _ in self.tensors()]

    def set_layout(self, slots: "list[TensorSlot]") -> None:
        """Use this layout for rows from now on."""
        self.layout = slots
        self.slots = {slot.name: slot for slot in slots}
        self.groups: dict[tuple[str, Any], list[TensorSlot]] = {}
        for slot in slots:
            self.groups.setdefault((slot.device, slot.dtype), []).append(slot)

    def changed(self) -> bool:
        """Return whether the model's tensors have changed and other ranks do not know that yet."""
        return self.current_layout() not in (self.layout, self.refused)

    def rows(self, fallback: "Sequence[Any] | None" = None) -> "list[Any]":
        """Return the model's values, one row per group, with a trailer of zeros.

        For a tensor that the model no longer has, use its values in `fallback`, or 0.
        """
        with self.torch.no_grad():
            values = {} if fallback is None else dict(self.parts(fallback))
            values |= {
                slot.name: tensor.detach().reshape(-1).to(slot.dtype)
                for slot, tensor in self.tensors()
                if self.slots.get(slot.name) == slot
            }
            return self.pack(values)

    def pack(self, parts: "dict[str, Any]") -> "list[Any]":
        """Return rows of the values in `parts`, by tensor name; 0 for missing tensors."""
        zeros, rows = self.torch.zeros, []
        for (device, dtype), slots in self.groups.items():
            pieces = [
                zeros(prod(slot.shape), device=device, dtype=dtype)
                if slot.name not in parts
                else parts[slot.name]
                for slot in slots
            ]
            rows.append(self.torch.cat([*pieces, zeros(_TRAILER, device=device, dtype=dtype)]))
        return rows

    def parts(self, rows: "Iterable[Any]") -> "Iterator[tuple[str, Any]]":
        """Yield (name, values) of each tensor in the rows."""
        for slots, row in zip(self.groups.values(), rows, strict=True):
            begin = 0
            for slot in slots:
                end = begin + prod(slot.shape)
                yield slot.name, row[begin:end]
                begin = end

    def copy_to_model(self, rows: "Iterable[Any]") -> None:
        """Copy the rows to those of the model's tensors that still match the layout."""
        with self.torch.no_grad():
            values = dict(self.parts(rows))
            for slot, tensor in self.tensors():
                if self.slots.get(slot.name) == slot:
                    tensor.detach().copy_(values[slot.name].view(slot.shape))


def digest(slots: "Iterable[TensorSlot]") -> int:
    """Return a 60-bit hash of a layout."""
    lines = [f"{tuple(slot)}\n" for slot in slots]
    return int(hashlib.sha256("".join(lines).encode()).hexdigest()[:15], 16)


class Averaging:
    """Base class of both kinds of averaging."""

    def __init__(self, torch: "Any", model: "Any", group: "Any") -> None:
        """`group` is a process group of all ranks that is used for nothing else."""
        self.flat, self.group = FlatTensors(torch, model), group
        self.distributed = torch.distributed
        self.world = int(self.distributed.get_world_size(group))
        self.steps = 0  # taken since this rank last contributed
        self.differ = False  # whether the ranks' models have different tensors

    def _reduce(self, rows: "list[Any]", background: bool = False) -> "list[Any]":
        reduce = self.distributed.all_reduce
        return [reduce(row, group=self.group, async_op=background) for row in rows]

    def _compare_layouts(
        self, device: "Any", background: bool = False
    ) -> "tuple[list[TensorSlot], Any, list[Any]]":
        """Start a round that compares the layouts of all ranks, after one rank's model changed.

        Return (the layout of this rank, a tensor for `_is_same`, the work to wait for).
        """
        slots = self.flat.current_layout()
        mine = digest(slots)
        # Afterwards the largest and, negated, the smallest digest of all ranks.
        extremes = self.flat.torch.tensor([mine, -mine], device=device)
        work = self.distributed.all_reduce(
            extremes, self.distributed.ReduceOp.MAX, group=self.group, async_op=background
        )
        return slots, extremes, [work]

    def _is_same(self, slots: "list[TensorSlot]", extremes: "Any") -> bool:
        """Return whether all ranks have the layout `slots`, which they then adopt."""
        same = int(extremes[0]) == -int(extremes[1])
        self.flat.refused = [] if same else slots
        self.differ = self.differ or not same
        return same


class SynchronousAveraging(Averaging):
    """All ranks wait for each round and then have the same parameters."""

    def average(self, ended: bool = False) -> bool:
        """Run one round and return whether all ranks have finished.

        The mean is taken over the ranks that have taken a step since the last round.
        """
        rows = self.flat.rows()
        layout = {slot.name: slot for slot in self.flat.current_layout()}
        fits = self.flat.slots.items() <= layout.items()
        weight = float(self.steps > 0 and fits)
        for row in rows:
            row *= weight
        numbers = (weight, float(ended), float(self.flat.changed()))
        rows[0][-_TRAILER:] = rows[0].new_tensor(numbers)
        self._reduce(rows)
        weights, over, changed = rows[0][-_TRAILER:].tolist()
        if changed:
            slots, extremes, _ = self._compare_layouts(rows[0].device)
            if self._is_same(slots, extremes):
                self.flat.set_layout(slots)
                return self.average(ended)
        if weights:
            self.flat.copy_to_model(row / weights for row in rows)
        self.steps = 0
        return bool(over == self.world)

    def step(self, every: int) -> None:
        """Count a training step; average after every `every` steps."""
        self.steps += 1
        if self.steps >= every:
            self.average()

    def finish(self) -> None:
        """Take part in rounds until no rank has batches left; this rank has none."""
        while not self.average(ended=True):
            pass


class BackgroundAveraging(Averaging):
    """Each rank keeps training while its changes are averaged with those of the other ranks.

    One round is in flight at a time. `anchor` is the state that all ranks have in common: the sum
    of the means of all rounds so far. The parameters of a rank are `anchor` plus its own changes
    since then.

    A rank may leave its training loop before the end of an epoch and wait elsewhere for the others.
    Ranks that wait for it here then continue without it, and the round stays in flight. When that
    rank exits, the round fails, and there are no more rounds. When a rank exits that has not left
    its loop, the other ranks fail as well.
    """

    STEP_S, END_S = 30.0, 600.0  # the longest wait for a rank that is not known to have left
    GRACE_S = 2.0  # a rank whose loop is being left by an exception looks as if it had left

    def __init__(self, torch: "Any", model: "Any", group: "Any", store: "Any") -> None:
        """`store` is used for nothing else; its key "away" counts ranks that left their loop."""
        super().__init__(torch, model, group)
        self.store, self.away = store, False
        self.alone = False  # whether a round failed after a rank had left
        self.longest_s = 0.0  # duration of the longest round
        self.anchor = self.flat.rows()
        self.sent: list[Any] = []  # this rank's changes in the round in flight
        self.shared: list[Any] = []  # becomes the sum of all ranks' changes
        self.works: list[Any] = []
        self.compare_next = False  # whether the next round compares layouts
        # The layouts that the round in flight compares: arguments for `_is_same`.
        self.comparison: tuple[list[TensorSlot], Any] | None = None

    def go_away(self) -> None:
        """Tell the other ranks that this rank has left its loop."""
        if not self.away:
            self.away = True
            with quiet(Exception):  # the job may be over
                self.store.add("away", 1)

    def come_back(self) -> None:
        """Tell the other ranks that this rank is in its loop again."""
        if self.away:
            self.away = False
            self.store.add("away", -1)

    def fail(self) -> None:
        """Let the other ranks fail too, as an exception ends this rank's program."""
        with quiet(Exception):  # the job may be over
            self.come_back()
        self.away = True  # so that `go_away` no longer reports it

    def step(self, staleness: int) -> None:
        """Count a training step; wait if the round in flight is older than `staleness` steps."""
        try:
            if not self.alone:
                self._step(staleness)
        except RuntimeError:
            if not self._goes_on():
                raise

    def _step(self, staleness: int) -> None:
        self.steps += 1
        if self.works and (self._is_over() or (self.steps > staleness and self._wait(self.STEP_S))):
            self._apply()
        if not self.works:
            self._start_round(ended=False)
            if not staleness and self._wait(self.STEP_S):
                self._apply()

    def finish(self) -> bool:
        """Take part in rounds until no rank has batches left; this rank has none.

        Return whether all ranks have the same model now.
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
            self._apply()
        over = False
        while not over:
            self._start_round(ended=True)
            if not self._wait(self.END_S, self.GRACE_S):
                return False
            over = self._apply()
        self.flat.copy_to_model(self.anchor)  # it contains the changes of all ranks
        return True

    def _goes_on(self) -> bool:
        """Return whether this rank goes on without the others after a round failed."""
        self.alone = self._has_left()
        return self.alone

    def _has_left(self) -> bool:
        """Return whether some rank is known to have left its loop."""
        with quiet(Exception):  # a store that is gone is no reason to fail
            return bool(self.store.add("away", 0))
        return False

    def _is_over(self) -> bool:
        return all(work.is_completed() for work in self.works)

    def _wait(self, most_s: float, grace_s: float = 0.0) -> bool:
        """Wait for the round in flight; return whether it is complete.

        Give up after `most_s` seconds, or once a rank has been away for `grace_s` seconds.
        """
        begin, nap = time.monotonic(), 0.0002
        away_since: float | None = None
        while not self._is_over():
            now = time.monotonic()
            if now - begin > max(most_s, 10 * self.longest_s):
                return False
            if nap == _LONGEST_NAP_S:
                if not self._has_left():
                    away_since = None
                elif away_since is None:
                    away_since = now
                if away_since is not None and now - away_since >= grace_s:
                    return self._is_over()
            time.sleep(nap)
            nap = min(2 * nap, _LONGEST_NAP_S)
        self.longest_s = max(self.longest_s, time.monotonic() - begin)
        return True

    def _start_round(self, ended: bool) -> None:
        if self.compare_next:
            device = self.anchor[0].device
            slots, extremes, self.works = self._compare_layouts(device, background=True)
            self.compare_next, self.comparison = False, (slots, extremes)
            return
        now = self.flat.rows(self.anchor)
        self.sent = [row - anchor for row, anchor in zip(now, self.anchor, strict=True)]
        self.shared = [row.clone() for row in self.sent]
        self.shared[0][-2] = float(self.flat.changed())
        self.shared[0][-1] = float(ended)
        self.works = self._reduce(self.shared, background=True)
        self.steps = 0

    def _apply(self) -> bool:
        """Complete the round in flight; return whether all ranks have finished."""
        for work in self.works:
            work.wait()
        self.works = []
        if self.comparison is not None:
            (slots, extremes), self.comparison = self.comparison, None
            if self._is_same(slots, extremes):
                # New tensors start at 0 in `anchor`: the next round carries all of their values.
                values, before = dict(self.flat.parts(self.anchor)), self.flat.slots
                self.flat.set_layout(slots)
                same = [slot.name for slot in slots if before.get(slot.name) == slot]
                self.anchor = self.flat.pack({name: values[name] for name in same})
            return False
        changed, finished = self.shared[0][-2:].tolist()
        self.compare_next = changed > 0
        mean = [row / self.world for row in self.shared]
        for row in mean:
            row[-_TRAILER:] = 0.0
        pairs = zip(self.flat.rows(self.anchor), mean, self.sent, strict=True)
        self.flat.copy_to_model([now + common - own for now, common, own in pairs])
        self.anchor = [anchor + common for anchor, common in zip(self.anchor, mean, strict=True)]
        return bool(finished == self.world) and not self.compare_next
