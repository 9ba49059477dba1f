"""Reads the state of main threads: blocked (and in what), on a core, or ready without one."""

import contextlib
import errno
import os
import time
from collections.abc import Iterable

from lotus.attach.processes.stopped_time import StoppedTime
from lotus.common.machine.kernel_files import beginning
from lotus.inside.common import process_stat
from lotus.recording.looks.blocked_reason import STOPPED, BlockedReasons

ASLEEP = "asleep"  # the kernel does not tell in what
COLUMNS = ("time_ns", "pid", "reason", "wall_ns", "cpu_ns", "delay_ns", "process_ns")
# Errors of a thread that is gone, and of its files; other errors say that it is not known.
ENDED = (errno.ENOENT, errno.ESRCH)
_PERIOD_S, _SHARE = 0.02, 0.02
_STATES = {"R": "computing", "D": "storage", "T": STOPPED, "t": STOPPED}
_MOST = 400_000  # looks
Row = tuple[int, int, str, int, int, int, int]


class ThreadReadings:
    """Readings of main threads: `rows` have the COLUMNS.

    refused: whether the kernel hides the system calls from this user
    stopped: when processes were stopped; `rows` include readings of that time
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.stopped = StoppedTime()
        self.refused = False
        self.cost_ns = 0
        self.period_s = _PERIOD_S
        self._last: dict[int, tuple[int, int, int, int]] = {}
        self._reasons = BlockedReasons(with_places=False)

    def last_ns(self, pid: int) -> int | None:
        """Return when a process was read last; None: never."""
        last = self._last.get(pid)
        return None if last is None else last[0]

    @property
    def moving_rows(self) -> list[Row]:
        """Return the rows outside the time in which a process was stopped."""
        import numpy as np  # not before the first look

        ends, lengths = (np.array([row[k] for row in self.rows], np.int64) for k in (0, 3))
        still = self.stopped.overlaps(ends - lengths, ends)
        return [row for row, left_out in zip(self.rows, still, strict=True) if not left_out]

    @property
    def problem(self) -> str:
        """The reason for which no system calls are known; "" if they are."""
        return self._reasons.problem

    def look(self, pids: Iterable[int]) -> None:
        """Read each of these processes once, and decide when to read them again."""
        began = time.thread_time_ns()
        for pid in pids:
            with contextlib.suppress(OSError, ValueError, IndexError):
                self._look(pid)
        cost = time.thread_time_ns() - began
        self.cost_ns += cost
        self.period_s = max(_PERIOD_S, cost / 1e9 / _SHARE)

    def _look(self, pid: int) -> None:
        now = time.monotonic_ns()
        cpu, delay = map(int, beginning(f"/proc/{pid}/schedstat").split()[:2])
        process = time.clock_gettime_ns((~pid << 3) | 2)  # of all its threads: CPUCLOCK_SCHED
        reason = self._reason(pid)
        last = self._last.get(pid)
        self._last[pid] = (now, cpu, delay, process)
        self.stopped.look(pid, now, reason == STOPPED)
        if last is not None and len(self.rows) < _MOST:
            passed = (now - last[0], cpu - last[1], delay - last[2], process - last[3])
            self.rows.append((now, pid, reason, *passed))

    def _reason(self, pid: int) -> str:
        if not self.refused and not self.problem:
            try:
                return self._reasons.look(pid)[0]
            except PermissionError:
                self.refused = True
        return _STATES.get(process_stat.read(pid).state, ASLEEP)


def has_ended(pid: int) -> bool:
    """Return whether a process has ended or is a zombie; False if that cannot be read."""
    try:
        return process_stat.read(pid).state in process_stat.ENDED
    except OSError as error:
        return error.errno in ENDED


def bytes_read(pid: int) -> int:
    """Return the bytes that a process has read from storage since its start; -1: unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in beginning(f"/proc/{pid}/io").splitlines():
            if line.startswith(b"read_bytes:"):
                return int(line.split()[1])
    return -1


def cpu_of_children(pid: int) -> int:
    """Return the CPU time of the ended children of a process, in nanoseconds; -1: unknown."""
    try:
        return process_stat.read(pid).children_ns
    except OSError:
        return -1


def open_descriptors(pid: int) -> int:
    """Return the number of open descriptors of a process; -1: unknown."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return -1


def children_of(pid: int) -> list[int]:
    """Return the children of all threads of a process, if the kernel lists them."""
    result: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError, ValueError):
                result += map(int, beginning(f"/proc/{pid}/task/{thread}/children").split())
    return sorted(result)
