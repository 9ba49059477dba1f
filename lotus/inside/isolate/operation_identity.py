"""The known dependencies of an operation's CPU time: its code, parameters and input.

By these `lotus plan` finds what earlier plans have measured, of other programs too.
"""

from __future__ import annotations

import os

from ..cache.cached_samples import inner_of
from ..cache.fingerprints import FingerprintError, fingerprint
from ..common.guard import quiet
from ..common.object_attributes import attributes
from ..common.sample_paths import path_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LONGEST = 200  # characters of what describes an operation
_DEEPEST = 4
_NUMBERS = (bool, int, float, type(None))
_FILE = "file"


def qualified_name(operation: Any) -> str:
    """Return the module and name of a function, or of an object's class."""
    named = operation if hasattr(operation, "__qualname__") else type(operation)
    module = str(getattr(named, "__module__", ""))
    return f"{'__main__' if module == '__mp_main__' else module}.{named.__qualname__}"


def key_of_operation(operation: Any) -> str | None:
    """Return a hash of an operation's parameters and code; None: it has none."""
    try:
        return fingerprint(operation)
    except FingerprintError:
        return None


def key_of_own_code(dataset: Any, transform: Any) -> str | None:
    """Return a hash of what a data set does before its transform; None: it has none.

    Where samples are files in a list, these are the input, and only the data set's code and its
    numbers and functions count. Otherwise all its state does.
    """
    inner, _ = inner_of(dataset, 0)
    try:
        if _file_of(inner, 0) is None:
            return fingerprint(inner, without=[transform])
        held = {
            name: value
            for name, value in attributes(inner).items()
            if isinstance(value, _NUMBERS) or (callable(value) and value is not transform)
        }
        # What holds the transform as well, as torchvision's StandardTransform does.
        return fingerprint(type(inner), held, without=[transform])
    except FingerprintError:
        return None


def input_of_own_code(dataset: Any, index: int) -> tuple[str, int]:
    """Return the kind and bytes of the file from which a sample is made."""
    path = _file_of(dataset, index)
    with quiet(OSError, ValueError):
        if path is not None:
            ending = os.path.splitext(path)[1].lower()
            return f"{_FILE} {ending}".strip(), os.stat(path).st_size
    return "index", 0


def kind_and_bytes(value: Any, depth: int = 0) -> tuple[str, int]:
    """Return the kind of a value, as `picture RGB` or `Tensor uint8`, and the bytes of its data."""
    name = type(value).__name__
    if hasattr(value, "getbands"):  # a picture of Pillow's
        width, height = value.size
        return f"picture {value.mode}", width * height * len(value.getbands())
    if hasattr(value, "dtype") and hasattr(value, "nbytes"):
        return f"{name} {str(value.dtype).removeprefix('torch.')}", int(value.nbytes)
    if isinstance(value, (str, bytes)):
        return name, len(value)
    if isinstance(value, (tuple, list, dict)) and depth < _DEEPEST:
        parts = list(value.values() if isinstance(value, dict) else value)
        found = [kind_and_bytes(part, depth + 1) for part in parts[:1000]]
        kinds = ", ".join(dict.fromkeys(kind for kind, _ in found))
        return f"{name} of {kinds}"[:_LONGEST], sum(size for _, size in found)
    return name, 0


def described(operation: Any) -> str:
    """Return an operation with its parameters, for people."""
    text = ""
    with quiet(Exception):  # a `__repr__` of the program
        text = " ".join(repr(operation).split())
    return text[:_LONGEST]


def _file_of(dataset: Any, index: int) -> str | None:
    with quiet(Exception):
        return path_of(dataset, index)
    return None
