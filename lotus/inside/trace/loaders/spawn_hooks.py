"""Notes when a process started by `spawn` has imported the program.

After that it unpickles its arguments, so the two parts of its start can be distinguished.
"""

from __future__ import annotations

from ...common.clocks import clock
from ...common.guard import hook
from ...common.patching import hide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# In this process or the one from which it was forked; None: not started by `spawn`.
imported_ns: int | None = None


def prepare(original: Callable[..., Any]) -> Callable[..., Any]:
    """Hook for `multiprocessing.spawn.prepare`, which imports the program's main module."""

    def prepare(*args: Any, **kwargs: Any) -> Any:
        global imported_ns
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            hide(error)
            raise
        imported_ns = clock()
        return result

    return hook(prepare)
