"""Ends a program that was tuned and must not continue, together with its child processes.

No more code of the program runs: `finally` blocks and `atexit` functions could save a model that
was not trained, or end other ranks. Its child processes would be orphaned, so they get a signal.
A worker that a signal ends leaves the folder of its sockets; so its workers share one, which is
removed here.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import suppress

from ...common.control.ending import end_at_once as end_at_once
from ..candidates.processes.worker_processes import descendants, started

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_ENDING_S, _PAUSE_S = 1.0, 0.01  # for them to exit; after that they are left alone

_shared = (0, "")  # the process that made a folder for the sockets of its workers, and the folder


def share_folder() -> None:
    """Make multiprocessing's folder here before workers start, which then use it.

    Each would otherwise make one of its own. multiprocessing removes it when the program ends by
    itself.
    """
    global _shared
    from multiprocessing import process, util

    config: Any = vars(process.current_process())["_config"]
    if config.get("tempdir") is None:
        with suppress(OSError):  # then they cannot either, or need none
            _shared = os.getpid(), util.get_temp_dir()


def end(code: int) -> NoReturn:
    """End this process; send SIGTERM to its descendants in the same process group.

    A descendant with a group of its own, such as a daemon, is meant to outlive it.
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
            with suppress(OSError):  # reap children that have exited
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
            signalled = [
                (pid, start) for pid, start in signalled if start and started(pid) == start
            ]
            time.sleep(_PAUSE_S)
        owner, folder = _shared
        if owner == os.getpid():
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        end_at_once(code)
