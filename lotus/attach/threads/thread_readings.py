"""Looks at the main thread of each process: blocked in what, on a core, ready without one."""

import contextlib
import errno
import os
import time
from collections.abc import Iterable

from lotus.attach.processes.stopped_time import StoppedTime
from lotus.recording.blocked_reason import STOPPED, BlockedReasons, read

ASLEEP = "asleep"  # the kernel does not tell in what
COLUMNS = ("time_ns", "pid", "reason", "wall_ns", "cpu_ns", "delay_ns", "process_ns")
# What a call says of a thread that is gone, and of its files; others say that it is not known.
ENDED = (errno.ENOENT, errno.ESRCH)
_PERIOD_S, _SHARE = 0.02, 0.02
_STATES = {b"R": "computing", b"D": "storage", b"T": STOPPED, b"t": STOPPED}
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_MOST = 400_000  # looks
Row = tuple[int, int, str, int, int, int, int]


class ThreadReadings:
    """`rows` as COLUMNS. `refused`: the kernel does not tell us in which system calls they are.

    `stopped`: when a process was stopped; `rows` holds those looks too.
    """

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.stopped = StoppedTime()
        self.refused = False
        self.cost_ns = 0
        self.period_s = _PERIOD_S
        self._last: dict[int, tuple[int, int, int, int]] = {}
        self._reasons = BlockedReasons()

    def last_ns(self, pid: int) -> int | None:
        """When a process was looked at for the last time; None: never."""
        last = self._last.get(pid)
        return None if last is None else last[0]

    @property
    def moving_rows(self) -> list[Row]:
        """The rows without the time in which a process was stopped."""
        import numpy as np  # not before the first look

        ends, lengths = (np.array([row[k] for row in self.rows], np.int64) for k in (0, 3))
        still = self.stopped.overlaps(ends - lengths, ends)
        return [row for row, left_out in zip(self.rows, still, strict=True) if not left_out]

    @property
    def problem(self) -> str:
        """Why no system calls are known; "" where they are."""
        return self._reasons.problem

    def look(self, pids: Iterable[int]) -> None:
        """Look once at each of these processes, and decide after how long to look again."""
        began = time.thread_time_ns()
        for pid in pids:
            with contextlib.suppress(OSError, ValueError, IndexError):
                self._look(pid)
        cost = time.thread_time_ns() - began
        self.cost_ns += cost
        self.period_s = max(_PERIOD_S, cost / 1e9 / _SHARE)

    def _look(self, pid: int) -> None:
        now = time.monotonic_ns()
        cpu, delay = map(int, read(f"/proc/{pid}/schedstat").split()[:2])
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
        state = read(f"/proc/{pid}/stat").rpartition(b") ")[2][:1]
        return _STATES.get(state, ASLEEP)


def has_ended(pid: int) -> bool:
    """Whether a process is gone or a zombie; False where that cannot be read."""
    try:
        return read(f"/proc/{pid}/stat").rpartition(b") ")[2][:1] in (b"Z", b"X")
    except OSError as error:
        return error.errno in ENDED


def bytes_read(pid: int) -> int:
    """Bytes that a process has read from storage since its start; -1: not known."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in read(f"/proc/{pid}/io").splitlines():
            if line.startswith(b"read_bytes:"):
                return int(line.split()[1])
    return -1


def cpu_of_children(pid: int) -> int:
    """CPU time of the processes that a process started and that have ended, nanoseconds; -1."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
        return (int(fields[13]) + int(fields[14])) * _TICK_NS
    return -1


def open_descriptors(pid: int) -> int:
    """How many descriptors a process has open; -1: not known."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return -1


def children_of(pid: int) -> list[int]:
    """Processes that a process's threads have started, where the kernel lists them."""
    result: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError, ValueError):
                result += map(int, read(f"/proc/{pid}/task/{thread}/children").split())
    return sorted(result)
