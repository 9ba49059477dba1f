"""Examines a batch: its size in samples and bytes, and hashes of its samples."""

from __future__ import annotations

import ctypes
import hashlib
import pickle
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# Bytes of the handle of a shared tensor in a message (torch 2.2, 2.14): first one, others.
_FIRST_HANDLE, _HANDLE = 330, 65
_DEPTH = 64


def leaves(batch: Any) -> Iterator[Any]:
    """Yield the leaves of nested lists, tuples, dicts and objects, each once."""
    waiting, seen = [batch], set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            inner: Any = value.values()
        elif isinstance(value, (list, tuple, set, frozenset)):
            inner = value
        elif hasattr(value, "__dict__") and not _is_array(value) and not callable(value):
            inner = vars(value).values()  # a batch class of the program, a dataclass
        else:
            yield value
            continue
        if id(value) not in seen:
            seen.add(id(value))
            waiting.extend(reversed(list(inner)))


def _is_tensor(value: Any) -> bool:
    return isinstance(value, sys.modules["torch"].Tensor)


def _is_array(value: Any) -> bool:
    return _is_tensor(value) or (hasattr(value, "nbytes") and hasattr(value, "dtype"))


def measures(batch: Any) -> dict[str, int]:
    """Return `batch_bytes`, `shared_bytes`, `pipe_bytes` and `tensors` of a batch.

    See lotus.tune.search.limits.resource_costs.
    """
    total = piped = 0
    storages: dict[int, int] = {}
    for leaf in leaves(batch):
        if _is_tensor(leaf):
            key, size = _storage(leaf)
            total += leaf.numel() * leaf.element_size()
            storages[key] = size  # a storage is shared once and as a whole
        elif _is_array(leaf):
            total += int(leaf.nbytes)
            piped += int(leaf.nbytes)
        elif isinstance(leaf, (bytes, bytearray, str)):
            total += len(leaf)
            piped += len(leaf)
        else:
            piped += 9  # a number, pickled
    handles = _FIRST_HANDLE + _HANDLE * (len(storages) - 1) if storages else 0
    return {
        "batch_bytes": total,
        "shared_bytes": sum(storages.values()),
        "pipe_bytes": piped + handles,
        "tensors": len(storages),
    }


def _storage(tensor: Any) -> tuple[int, int]:
    """Return (a key of its storage, bytes of the storage)."""
    try:
        storage = tensor.untyped_storage()
        return int(storage.data_ptr()) or id(tensor), int(storage.nbytes())
    except (RuntimeError, NotImplementedError):  # a sparse one has several
        return id(tensor), int(tensor.numel() * tensor.element_size())


def samples(batch: Any, size: int | None) -> int:
    """Return the number of samples of a batch: the first length in it, at most `size`."""
    for leaf in leaves(batch):
        if _is_array(leaf) and len(getattr(leaf, "shape", ())):
            first = int(leaf.shape[0])
            return first if size is None else min(first, size)
    return size or 1


def hashes(batch: Any) -> Iterator[bytes]:
    """Yield a hash of each sample: the batch is split along the first dimension of its parts.

    If the parts have no common length, the whole batch counts as one sample.
    """
    count = _length(batch)
    for number in range(count if count is not None else 1):
        digest = hashlib.blake2b(digest_size=16)
        _feed(digest, batch, number if count is not None else None)
        yield digest.digest()


def _length(part: Any) -> int | None:
    """Return the length of the first dimension that all parts share, else None."""
    if _is_array(part):
        return int(part.shape[0]) if len(part.shape) else None
    if isinstance(part, dict):
        lengths = {_length(item) for item in part.values()}
    elif isinstance(part, (list, tuple)):
        lengths = {_length(item) for item in part}
        if None in lengths and not any(_is_array(item) for item in leaves(part)):
            return len(part)  # names or numbers, one per sample
    else:
        return None
    return lengths.pop() if len(lengths) == 1 else None


def _feed(digest: Any, part: Any, number: int | None, depth: int = 0) -> None:
    """Add a part of a batch to a hash; of arrays and flat lists only element `number`."""
    digest.update(type(part).__name__.encode() + b"(")
    if _is_tensor(part):
        element = part if number is None else part[number]
        element = element.detach().cpu().contiguous()
        digest.update(f"{element.dtype}{tuple(element.shape)}".encode())
        digest.update(
            ctypes.string_at(element.data_ptr(), element.numel() * element.element_size())
        )
    elif _is_array(part):
        element = part if number is None else part[number]
        digest.update(f"{element.dtype}{element.shape}".encode() + element.tobytes())
    elif depth > _DEPTH:
        pass
    elif isinstance(part, dict):
        for key, value in part.items():
            digest.update(repr(key).encode())
            _feed(digest, value, number, depth + 1)
    elif isinstance(part, (list, tuple)):
        flat = number is not None and not any(_is_array(element) for element in leaves(part))
        nested = any(isinstance(element, (list, tuple, dict)) for element in part)
        for element in [part[number]] if flat and not nested and number is not None else part:
            _feed(digest, element, number, depth + 1)
    elif part is None or isinstance(part, (str, bytes, int, float, complex, bool)):
        digest.update(repr(part).encode())
    else:
        try:
            digest.update(pickle.dumps(part))
        except Exception:  # the program's code failed: treat all values as different
            digest.update(repr(id(part)).encode())
    digest.update(b")")
