"""Finds the number of samples in a batch that a data set yields whole, as with `batch_size=None`.

The shape tells it, unless the batch may be a single sample. Nothing of the data is read, and no
code of the program runs.
"""

from __future__ import annotations

import collections
import sys

from ...common.object_attributes import attributes
from .first_batches import watched_by_modes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST_PARTS = 64
_PLAIN = (str, bytes, int, float, bool)
_CHANNELS = (1, 3, 4)  # an array of three dimensions may be an image


def samples_of(batch: Any) -> int | None:
    """Return the first dimension on which all parts of a batch agree; None if that is uncertain.

    The parts are tensors, arrays, and lists of texts or numbers, alone or in a tuple, list or
    dictionary. They may be a single sample if none has a second dimension, if one has no first, or
    if the only one has the shape of an image.
    """
    if watched_by_modes():
        return None  # the program would see that a shape is read
    parts = _parts(batch)
    shapes = [_shape(part) for part in parts[:_MOST_PARTS]]
    if not shapes or not all(shapes) or len({shape[0] for shape in shapes}) > 1:
        return None
    if max(map(len, shapes)) < 2:
        return None
    if len(shapes) == 1 and len(shapes[0]) == 3 and shapes[0][0] in _CHANNELS:
        return None
    return int(shapes[0][0])


def _parts(batch: Any) -> list[Any]:
    kind = type(batch)
    if issubclass(kind, collections.UserDict):  # as Hugging Face's BatchEncoding
        batch = attributes(batch).get("data")
        kind = type(batch)
    # With the methods of the built-in type: those of a subclass may do anything.
    if issubclass(kind, dict):
        return list(dict.values(batch))
    if issubclass(kind, tuple):
        return list(tuple.__iter__(batch))
    if issubclass(kind, list) and not _is_column(batch):
        return list(list.__iter__(batch))
    return [batch]


def _is_column(value: Any) -> bool:
    return type(value) is list and bool(value) and type(value[0]) in _PLAIN


def _shape(part: Any) -> tuple[int, ...]:
    """Return the shape of a part; () if it has none, or its class is of the program."""
    kind = type(part)
    if _is_column(part):
        return (len(part),)
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    if kind is torch.Tensor or (numpy is not None and kind is numpy.ndarray):
        return tuple(part.shape)
    return ()
