"""Keeps some batches of the program, and gives them to it again and again."""

from __future__ import annotations

import copy
import sys

from ..candidates.loading import batch_contents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST, _MOST_BYTES = 8, 256 << 20  # batches that are kept, and their bytes; one is kept always


class RepeatedBatches:
    """The first batches of a loader, which are given in turn as the loader gave them.

    A step may change the batch that it gets. Each time it gets other containers, and tensors that
    share the memory of those that are kept. torch counts changes of that memory; what was changed
    is put back before it is given again. Of objects that are no containers of torch's or Python's
    own only the first level is copied.
    """

    def __init__(self) -> None:
        self._batches: list[_Kept] = []
        self._bytes, self._next = 0, 0

    def __len__(self) -> int:
        return len(self._batches)

    def full(self) -> bool:
        """Return whether no further batch is kept."""
        return len(self._batches) >= _MOST or self._bytes >= _MOST_BYTES

    def keep(self, batch: Any) -> None:
        """Keep a batch before the program gets it, with a copy of its memory."""
        self._bytes += 2 * batch_contents.measures(batch)["batch_bytes"]
        if not self._batches or self._bytes <= _MOST_BYTES:
            self._batches.append(_Kept(batch))

    def give(self) -> Any:
        """Return the next one. Raises IndexError if none was kept."""
        if not self._batches:
            raise IndexError("no batch was kept")
        kept = self._batches[self._next % len(self._batches)]
        self._next += 1
        return kept.again()


class _Kept:
    """A batch with copies of its tensors and arrays."""

    def __init__(self, batch: Any) -> None:
        self._batch = _renewed(batch)
        self._tensors: list[tuple[Any, Any, int | None]] = []
        self._arrays: list[tuple[Any, Any]] = []
        for leaf in batch_contents.leaves(self._batch):
            if isinstance(leaf, sys.modules["torch"].Tensor):
                self._tensors.append((leaf, leaf.detach().clone(), _version(leaf)))
            elif _is_array(leaf):
                self._arrays.append((leaf, leaf.copy()))

    def again(self) -> Any:
        """Put back what was changed; return the batch."""
        for number, (tensor, before, version) in enumerate(self._tensors):
            if version is None or _version(tensor) != version:
                with sys.modules["torch"].no_grad():
                    tensor.detach().copy_(before)
                self._tensors[number] = (tensor, before, _version(tensor))
        for array, before in self._arrays:  # nobody counts their changes
            array[...] = before
        return _renewed(self._batch)


def _is_array(value: Any) -> bool:
    """Return True if it is a writable array, unlike numpy's scalars and views of bytes."""
    numpy: Any = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray) and bool(value.flags.writeable)


def _version(tensor: Any) -> int | None:
    """Return how often a tensor's memory was changed; None if torch does not count that."""
    try:
        return int(tensor._version)
    except RuntimeError:  # a tensor of inference mode
        return None


def _renewed(value: Any) -> Any:
    """Copy containers and tensor objects of a batch; the tensors share their memory."""
    if isinstance(value, sys.modules["torch"].Tensor):
        return value.detach().requires_grad_(value.requires_grad)
    if type(value) in (list, tuple):
        return type(value)(map(_renewed, value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_renewed, value))
    if type(value) is dict:
        return {key: _renewed(item) for key, item in value.items()}
    if isinstance(value, (dict, list)):  # of a class of their own
        try:
            made = copy.copy(value)
            items = list(value.items() if isinstance(value, dict) else enumerate(value))
            for key, item in items:
                made[key] = _renewed(item)
        except Exception:  # as below
            return value
        return made
    if hasattr(value, "__dict__") and not callable(value) and not hasattr(value, "dtype"):
        try:
            made = copy.copy(value)
            made.__dict__.update({key: _renewed(item) for key, item in vars(value).items()})
        except Exception:  # the program's class refuses; it gets the same object again
            return value
        return made
    return value
