"""Finds costly habits of a data set that no copy of an input can show, for `lotus advise`.

These are files that it opens for each sample, small files of one sample each, and large numbers of
Python objects. lotus/advise/alternatives/known_advice.py has the advice.
"""

from __future__ import annotations

import sys
from itertools import islice

from ..cache.opened_files import status_of
from ..common.object_attributes import attributes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

_LEAST = 4  # samples
_MOST_OF = 0.75  # of the samples
_MANY = 100_000  # objects
_WEIGHED = 100  # of them
_DEPTH = 3  # data sets inside others


def event(dataset: object, opened: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return an event; `opened` has the files that were opened for each sample."""
    again = files_opened_again(opened)
    own = [path for files in opened for path in files if path not in again]
    sizes = sorted(status[0] for path in {*own} if (status := status_of(path)) is not None)
    return {
        "event": "habits",
        "samples": len(opened),
        "again": [[path, (status_of(path) or (None,))[0]] for path in again],
        # Only files that were opened for one sample each.
        "own_files": len(sizes),
        "own_bytes": sizes[len(sizes) // 2] if sizes else None,
        "objects": [*_objects(dataset, _DEPTH)],
    }


def files_opened_again(opened: Sequence[Sequence[str]]) -> list[str]:
    """Return the files that were opened anew for most samples."""
    counts: dict[str, int] = {}
    for files in opened:
        for path in files:
            counts[path] = counts.get(path, 0) + 1
    least = max(_LEAST, _MOST_OF * len(opened))
    return [path for path, count in counts.items() if count >= least]


def _objects(dataset: object, depth: int) -> Iterator[list[Any]]:
    """Yield [attribute, objects, type of the first, approximate bytes] of large containers."""
    own = attributes(dataset)
    for name, value in own.items():
        if type(value) in (list, tuple, dict) and len(value) >= _MANY:
            step = len(value) // _WEIGHED
            items = islice(value.values() if type(value) is dict else value, 0, None, step)
            weighed = [*islice(items, _WEIGHED)]
            mean = sum(map(_weight, weighed)) / len(weighed)
            yield [name, len(value), type(weighed[0]).__name__, int(mean * len(value))]
    inner = own.get("dataset")
    if depth and inner is not None and inner is not dataset:
        yield from _objects(inner, depth - 1)


def _weight(thing: object) -> int:
    size = sys.getsizeof(thing) if type(thing) in _PLAIN else object.__sizeof__(thing)
    if type(thing) in (list, tuple):
        size += sum(map(sys.getsizeof, _plain(thing)))
    elif type(thing) is dict:
        size += sum(map(sys.getsizeof, _plain(thing.values())))
    return size


_PLAIN = (str, bytes, int, float, list, tuple, dict, set)


def _plain(items: Any) -> list[Any]:
    """Return the items whose size can be determined without running code of the program."""
    return [item for item in items if type(item) in _PLAIN]
