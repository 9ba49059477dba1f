"""Averages the parameters of a model over all ranks, which wait for each other.

A round is one all_reduce of all parameters. Ranks may take different numbers of steps. A rank that
has finished keeps joining rounds, without a contribution of its own, until all ranks have finished:
every round includes every rank. The running statistics of batch norm are averaged with the
parameters; integer buffers are not. docs/architecture.md says why torch's own averagers
(torch.distributed.algorithms.model_averaging) do not do that. background_averaging.py does not
wait.
"""

import hashlib
import weakref
from math import prod
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

TRAILER = 3  # numbers at the end of each row that control the round


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
            rows.append(self.torch.cat([*pieces, zeros(TRAILER, device=device, dtype=dtype)]))
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
    """Base class of both kinds of averaging: the other is in background_averaging.py."""

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
        rows[0][-TRAILER:] = rows[0].new_tensor(numbers)
        self._reduce(rows)
        weights, over, changed = rows[0][-TRAILER:].tolist()
        if changed:
            slots, extremes, _ = self._compare_layouts(rows[0].device)
            if self._is_same(slots, extremes):
                self.flat.set_layout(slots)
                return self.average(ended)
        if weights:
            for row in rows:  # in place, as a row is as large as the model
                row /= weights
            self.flat.copy_to_model(rows)
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
