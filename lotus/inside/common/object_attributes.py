"""Reads objects of the program without running any of their code."""

from __future__ import annotations

import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def attributes(thing: object) -> dict[str, Any]:
    """Return the `__dict__` of an object without running its code; {} if it has none."""
    for kind in type(thing).__mro__:
        descriptor = vars(kind).get("__dict__")
        if descriptor is not None:
            return (
                descriptor.__get__(thing) if type(descriptor) is types.GetSetDescriptorType else {}
            )
    return {}


def original_of(thing: Any) -> Any:
    """Return what a trace's stand-in times, or the thing itself if it is none."""
    for kind in type(thing).__mro__:
        slot = vars(kind).get("_lotus_original")
        if slot is not None:
            return slot.__get__(thing)
    return thing
