"""The CPU time of a thread, and the time in which it is blocked: neither on a core nor ready to
run.
"""

from __future__ import annotations

import os
import time

from ..common.guard import quiet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def reading() -> tuple[int, int]:
    """Return (CPU time of this thread, time of the clock) in ns; takes a microsecond."""
    return time.thread_time_ns(), time.monotonic_ns()


class BusyTime:
    """Measures stretches of the thread that created it."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._begun = (0, 0)
        self._delay_ns: int | None = None
        with quiet(OSError):  # some kernels have no such file
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def start(self) -> None:
        self._delay_ns = self._read_delay_ns()
        self._begun = reading()

    def stop(self, readings: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return (CPU time, time blocked) in ns from `start` to each reading; the last is now.

        It is unknown when the thread was ready without a core, so as much as possible of the
        blocked time is attributed to the earlier readings. If the kernel does not count run-queue
        delay, no time counts as blocked.
        """
        delay_ns = self._read_delay_ns()
        spans = [(cpu - self._begun[0], now - self._begun[1]) for cpu, now in readings]
        blocked_ns = 0
        if delay_ns is not None and self._delay_ns is not None:
            cpu_ns, whole_ns = spans[-1]
            blocked_ns = max(0, whole_ns - cpu_ns - (delay_ns - self._delay_ns))
        return [(cpu, min(blocked_ns, max(0, whole - cpu))) for cpu, whole in spans]

    def waiting(self) -> int | None:
        """Return the ns that the thread has been ready without a core, of all its life."""
        return self._read_delay_ns()

    def _read_delay_ns(self) -> int | None:
        if self._file is not None:
            with quiet(OSError, ValueError, IndexError):
                return int(os.pread(self._file, 128, 0).split()[1])
        return None

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
