"""Ends a program without running any more of its code."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


def end_at_once(code: int) -> NoReturn:
    """End the program at once; its own processes with it."""
    for stream in (sys.stdout, sys.stderr):
        try:  # noqa: SIM105 - closed, or whatever the program put there
            stream.flush()
        except Exception:
            pass
    multiprocessing: Any = sys.modules.get("multiprocessing")
    if multiprocessing is not None:
        for child in multiprocessing.active_children():
            child.terminate()
    os._exit(code)
