"""Hides our frames in the traceback that a worker sends to the main process."""

from __future__ import annotations

from .guard import hook, strip

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def exception_wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hook for torch's `ExceptionWrapper`, which formats the traceback."""

    def ExceptionWrapper(exc_info: Any = None, where: str = "in background") -> Any:
        import sys

        if exc_info is None:
            kind, error, traceback = sys.exc_info()
            exc_info = (kind, error, strip(traceback))
        return original(exc_info, where=where)

    return hook(ExceptionWrapper)
