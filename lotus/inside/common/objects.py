"""Looking at objects of the program without running code of theirs."""

from __future__ import annotations

import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def attributes(thing: object) -> dict[str, Any]:
    """The dictionary of an object, found by no code of its own; an empty one if it has none."""
    for kind in type(thing).__mro__:
        found = vars(kind).get("__dict__")
        if found is not None:
            return found.__get__(thing) if type(found) is types.GetSetDescriptorType else {}
    return {}
