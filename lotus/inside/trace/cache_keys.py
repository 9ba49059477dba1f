"""Keeps stand-ins out of the hashes under which other libraries cache what they computed."""

from __future__ import annotations

from ..common.guard import hook
from .stand_ins import is_stand_in, original_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def save(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hook for `save` of Hugging Face's pickler, whose bytes are a data set's fingerprint."""

    def save(self: Any, obj: Any, *args: Any, **kwargs: Any) -> Any:
        if is_stand_in(obj):
            obj = original_of(obj)
        elif type(obj) is dict and is_stand_in(obj.get("forward")):  # attributes of a module
            obj = {name: value for name, value in obj.items() if name != "forward"}
        return original(self, obj, *args, **kwargs)

    return hook(save)
