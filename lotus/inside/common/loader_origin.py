"""Determines where a loader is built, and its name there."""

from .code_origin import is_program, nearest, place
from .guard import ours
from .variable_names import name_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType
    from typing import Any


class Built:
    """The place where a loader was built; `by_program`: by a line of the program itself."""

    __slots__ = ("by_program", "name", "site")

    def __init__(self, site: str, name: str, by_program: bool) -> None:
        self.site, self.name, self.by_program = site, name, by_program


def look(loader: "Any", frame: "FrameType | None") -> Built:
    """Determine the origin of a loader from the frames around its `__init__`."""
    own = set(_inits(type(loader)))
    while frame is not None and (ours(frame) or frame.f_code in own):
        frame = frame.f_back
    nearest_frame = nearest(frame)
    by_program = nearest_frame is not None and nearest_frame is frame and is_program(nearest_frame)
    return Built(place(nearest_frame), name_of(loader, frame), by_program)


def _inits(kind: type) -> "Iterator[CodeType]":
    for cls in kind.__mro__:
        function: Any = vars(cls).get("__init__")
        for _ in range(8):
            code = getattr(function, "__code__", None)
            if code is None:
                break
            yield code
            function = vars(function).get("__wrapped__")
