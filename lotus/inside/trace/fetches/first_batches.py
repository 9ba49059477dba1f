"""Checksums of a worker's first batch and of the random generators that made it, and its sizes.

A reader compares those of all workers: equal samples or random states in two of them are a defect
of the program. This runs no code of the program and advances no generator.
"""

from __future__ import annotations

import itertools
import sys
import weakref
import zlib

from ...common.guard import ask, edge, hook
from ...common.object_attributes import attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from ..recorder import Recorder

_MOST_ITEMS = 64  # of each level of a batch, and of an object's attributes
_MOST_BYTES = 4096  # of each array
_SOME_VALUES = 4096  # of each large tensor
_DEPTH = 3
_MOST_VISITS = 2000  # objects below a data set that are looked at


def watch(timed: Any, dataset: Any, recorder: Recorder) -> None:
    """Log the checksums of a TimedFetcher's first fetch; the fetcher is then as it was."""
    fetch, reference = timed.__dict__["fetch"], weakref.ref(timed)  # no cycle: see TimedFetcher

    def first(index: Any) -> Any:
        fetcher = reference()
        if fetcher is not None:
            fetcher.__dict__["fetch"] = fetch
        if ask(watched_by_modes, default=True):
            return fetch(index)
        before = edge(recorder, ask, generator_states, dataset)
        data = fetch(index)
        edge(recorder, _log, recorder, dataset, before or {}, data)
        return data

    timed.__dict__["fetch"] = hook(first)


def watched_by_modes() -> bool:
    """Return whether a mode of the program intercepts calls of torch; it must not see ours."""
    c = sys.modules["torch"]._C
    return bool(c._len_torch_function_stack() or c._len_torch_dispatch_stack())


def _log(recorder: Recorder, dataset: Any, before: dict[str, int], data: Any) -> None:
    after = ask(generator_states, dataset) or {}
    used = [name for name, state in before.items() if after.get(name, state) != state]
    event: dict[str, object] = {"event": "first_batch", "worker": recorder.worker}
    event["content"] = ask(content_of, data)
    event["tensor_bytes"], event["storage_bytes"] = ask(sizes_of, data) or (None, None)
    event["double_bytes"], event["zero_share"] = ask(values_of, data) or (None, None)
    recorder.event({**event, "generators": used, "states": [before[name] for name in used]})


# -- random generators ------------------------------------------------------------------------


def generator_states(dataset: Any) -> dict[str, int]:
    """Return checksums of the states of generators that a data set may use, by name.

    These are the generators of Python, numpy and torch, and those among the attributes of the data
    set and of its transforms.
    """
    states: dict[str, int] = {}
    modules = {"random": _of_python, "numpy.random": _of_numpy, "torch": _of_torch}
    for name, function in modules.items():
        module = sys.modules.get(name)
        state = ask(function, module) if module is not None else None
        if state is not None:
            states[name] = state
    visits = itertools.count()
    for name, generator in _generators(dataset, "dataset", _DEPTH, visits):
        state = ask(_STATES[_kind(generator)], generator)
        if state is not None:
            states[name] = state
    return states


def _kind(thing: object) -> str:
    kind = type(thing)
    return f"{kind.__module__}.{kind.__qualname__}"


def _generators(
    thing: Any, name: str, depth: int, visits: Iterator[int]
) -> Iterator[tuple[str, Any]]:
    for key, value in itertools.islice(_members(thing), _MOST_ITEMS):
        if next(visits) >= _MOST_VISITS:
            return
        inner = f"{name}.{key}"[:200]
        if _kind(value) in _STATES:
            yield inner, value
        elif depth > 1:
            yield from _generators(value, inner, depth - 1, visits)


def _members(thing: Any) -> Iterator[tuple[str, Any]]:
    if type(thing) in (list, tuple):
        return ((str(place), item) for place, item in enumerate(thing[:_MOST_ITEMS]))
    own = attributes(thing)  # may be of a subclass of dict, whose methods may do anything
    return ((key, value) for key, value in list(dict.items(own)) if type(key) is str)


def _of_python(module: Any) -> int:
    return hash(module.getstate()[1]) & 0xFFFFFFFF


def _of_numpy(module: Any) -> int:
    return _of_random_state(module)


def _of_random_state(generator: Any) -> int:
    _, keys, position, *_ = generator.get_state()
    return zlib.crc32(keys.tobytes(), position)


def _of_torch(module: Any) -> int:
    return zlib.crc32(module.get_rng_state().numpy().tobytes())


def _of_torch_generator(generator: Any) -> int:
    return zlib.crc32(generator.get_state().numpy().tobytes())


def _of_bit_generator(generator: Any) -> int:
    return zlib.crc32(repr(generator.bit_generator.state).encode())


# Only these exact types: a method of a subclass may do anything.
_STATES: dict[str, Callable[[Any], int]] = {
    "random.Random": _of_python,
    "numpy.random.mtrand.RandomState": _of_random_state,
    "numpy.random._generator.Generator": _of_bit_generator,
    "torch._C.Generator": _of_torch_generator,
}


# -- contents ---------------------------------------------------------------------------------


def content_of(batch: Any) -> int | None:
    """Return a checksum of a batch; None if nothing in it distinguishes it from others."""
    parts = list(itertools.islice(_bytes_of(batch, _DEPTH), _MOST_ITEMS))
    return zlib.crc32(b"".join(parts)) if any(parts) else None


def sizes_of(batch: Any) -> tuple[int, int]:
    """Return the bytes of a batch's tensors, and of all storages that these are in.

    A worker that sends a tensor copies all of its storage to shared memory.
    """
    own, storages = 0, {}
    for tensor in itertools.islice(_tensors_of(batch, _DEPTH), _MOST_ITEMS):
        own += tensor.numel() * tensor.element_size()
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    return own, sum(storages.values())


def values_of(batch: Any) -> tuple[int, float | None]:
    """Return the bytes of a batch's tensors of float64, and the share of zeros in large tensors.

    The share is that of some values at even distances; None: there is no large tensor.
    """
    torch: Any = sys.modules["torch"]
    doubles, zeros, large = 0, 0.0, 0
    for tensor in itertools.islice(_tensors_of(batch, _DEPTH), _MOST_ITEMS):
        size = tensor.numel() * tensor.element_size()
        doubles += size if tensor.dtype is torch.float64 else 0
        on_cpu = tensor.device.type == "cpu"  # no other device is waited for
        if on_cpu and tensor.numel() >= _SOME_VALUES and tensor.is_contiguous():
            # An odd distance, as rows are mostly of an even length.
            some = tensor.detach().reshape(-1)[:: tensor.numel() // _SOME_VALUES | 1]
            zeros += size * float((some == 0).sum()) / some.numel()
            large += size
    return doubles, zeros / large if large else None


def _tensors_of(value: Any, depth: int) -> Iterator[Any]:
    if type(value) is sys.modules["torch"].Tensor:
        if value.layout is sys.modules["torch"].strided and not value.is_cuda:
            yield value
    elif depth and type(value) in (dict, list, tuple):
        inner = list(value.values()) if type(value) is dict else value
        for item in inner[:_MOST_ITEMS]:
            yield from _tensors_of(item, depth - 1)


def _bytes_of(value: Any, depth: int) -> Iterator[bytes]:
    """Yield the contents of arrays and texts, without arrays whose elements are all equal."""
    kind = type(value)
    if kind.__module__ == "torch" and kind.__name__ == "Tensor":
        # Arrays that are not contiguous would be copied entirely.
        strided = value.layout is sys.modules["torch"].strided
        if not value.is_cuda and strided and value.is_contiguous():
            yield _bytes_of_array(value.detach().reshape(-1)[:_MOST_BYTES].numpy())
    elif kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        if value.dtype.kind in "biufcSUmM" and value.flags.c_contiguous:
            yield _bytes_of_array(value.ravel()[:_MOST_BYTES])
    elif kind is str:
        yield value[:_MOST_BYTES].encode("utf-8", "replace")
    elif kind is bytes:
        yield value[:_MOST_BYTES]
    elif depth:
        if kind is dict:
            value = list(value.values())
        if type(value) in (list, tuple):
            for item in value[:_MOST_ITEMS]:
                yield from _bytes_of(item, depth - 1)


def _bytes_of_array(flat: Any) -> bytes:
    if not flat.size or bool((flat == flat[0]).all()):
        return b""
    content: bytes = flat.tobytes()
    return content[:_MOST_BYTES]
