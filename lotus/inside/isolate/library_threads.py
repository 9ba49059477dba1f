"""Measures the CPU time of threads that libraries have started, as those of OpenCV and OpenBLAS.

Python does not know these threads. Each worker has its own, and all compete for the same cores.
"""

from __future__ import annotations

import os
import threading
import time

from ..common.guard import quiet

_TASKS = "/proc/self/task"


class LibraryThreads:
    """Counts from the moment at which it is made; of the thread that makes it, too."""

    def __init__(self) -> None:
        self._own_ns, self._others_ns = time.thread_time_ns(), _cpu_ns()

    def used_ns(self) -> tuple[int, int] | None:
        """Return the CPU time since then of this thread, and of threads that are not Python's.

        A thread that has ended by now is not counted. None if the kernel does not tell.
        """
        own_ns, others_ns = time.thread_time_ns() - self._own_ns, _cpu_ns()
        if not others_ns:
            return None
        known = {thread.native_id for thread in threading.enumerate()}
        used = (
            ns - self._others_ns.get(task, 0) for task, ns in others_ns.items() if task not in known
        )
        return own_ns, sum(used)


def _cpu_ns() -> dict[int, int]:
    """Return the CPU time of each thread of this process, by its number."""
    times: dict[int, int] = {}
    with quiet(OSError):
        for task in os.listdir(_TASKS):
            # It may have ended, and some kernels have no such file.
            with (
                quiet(OSError, ValueError, IndexError),
                open(f"{_TASKS}/{task}/schedstat", "rb") as file,
            ):
                times[int(task)] = int(file.read().split()[0])
    return times
