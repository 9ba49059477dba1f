"""Waiting for a state that a started process has to bring about."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any


def wait_until(
    holds: Callable[[], object],
    *processes: subprocess.Popen[Any] | BaseProcess | int,
    pause_s: float = 0.05,
) -> None:
    """Wait for as long as it takes, but not for a child that has ended without it."""
    while not holds():
        for process in processes:
            if _has_ended(process) and not holds():
                raise AssertionError(f"{process} ended before what the test waits for")
        time.sleep(pause_s)


def has_content(path: Path) -> bool:
    """Whether a file is there that something has been written to."""
    try:
        return path.stat().st_size > 0
    except FileNotFoundError:
        return False


def _has_ended(process: subprocess.Popen[Any] | BaseProcess | int) -> bool:
    if isinstance(process, int):
        return bool(os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT))
    if isinstance(process, BaseProcess):
        return process.exitcode is not None
    return process.poll() is not None
