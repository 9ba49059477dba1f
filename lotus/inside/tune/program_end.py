"""The end of a program that was tuned and is not to go on: at once, with what it has started.

Nothing of the program runs any more: neither `finally` nor `atexit`, which may save a model that
was not trained, or end other ranks. What it has started would be left without it, so that is told.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from ..common.ending import end_at_once as end_at_once
from .candidates.worker_processes import descendants, started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_ENDING_S, _PAUSE_S = 1.0, 0.01  # for them to end; then they are left to it


def end(code: int) -> NoReturn:
    """End this process; SIGTERM for its descendants that are still in its process group.

    One with a group of its own is meant to outlive it, as a daemon, or a server in a session.
    """
    try:
        signalled = []
        group = os.getpgrp()
        for pid, start in descendants([os.getpid()]):
            with suppress(OSError):
                if os.getpgid(pid) == group:
                    os.kill(pid, signal.SIGTERM)
                    signalled.append((pid, start))
        until = time.monotonic() + _ENDING_S
        while signalled and time.monotonic() < until:
            with suppress(OSError):  # those of ours that have ended
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
            signalled = [
                (pid, start) for pid, start in signalled if start and started(pid) == start
            ]
            time.sleep(_PAUSE_S)
    finally:
        end_at_once(code)
