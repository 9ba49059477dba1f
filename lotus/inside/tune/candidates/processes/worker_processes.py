"""Reads statistics of workers from the kernel: CPU time, run-queue delay, reads, memory."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

from ....common import process_stat, resident_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_OFTEN_S = 0.02
# torch's process that removes shared memory when all its users have exited, and then exits.
_MANAGER = "torch_shm_manag"
_Counts = tuple[int, int, int]  # CPU ns, run-queue delay of the threads (ns), bytes read


class Usage:
    """Sums over processes, for the time between `start` and the last `add`."""

    def __init__(self) -> None:
        self._last: dict[int, _Counts] = {}
        self._added = 0.0
        self.reset()

    def reset(self) -> None:
        self.cpu_s = self.queued_s = 0.0
        self.read_bytes = 0

    def start(self, pids: Iterable[int]) -> None:
        """Start counting, in addition to what was counted before."""
        self._last = {pid: counts(pid) for pid in pids}

    def add(self, often: bool = False) -> None:
        """Add what the processes have used since the last call.

        `often`: the caller calls so often that most calls may do nothing. Nothing is added for a
        process that has ended since.
        """
        if often and time.monotonic() < self._added + _OFTEN_S:
            return
        self._added = time.monotonic()
        for pid, before in self._last.items():
            now = counts(pid)
            if now[0] < before[0]:
                continue
            self.cpu_s += (now[0] - before[0]) / 1e9
            self.queued_s += max(now[1] - before[1], 0) / 1e9
            self.read_bytes += max(now[2] - before[2], 0)
            self._last[pid] = now


class OwnUsage(Usage):
    """The usage of this process while it fetches, between `begin` and `finish`."""

    _file: int | None = None  # opened in the process that fetches, and never closed

    def begin(self) -> None:
        if self._file is None:
            with suppress(OSError):
                task = f"/proc/self/task/{threading.get_native_id()}/schedstat"
                self._file = os.open(task, os.O_RDONLY | os.O_CLOEXEC)
        self._queued, self._cpu = self._now(), time.process_time()

    def finish(self) -> None:
        self.cpu_s += time.process_time() - self._cpu
        self.queued_s += self._now() - self._queued

    def _now(self) -> float:
        if self._file is None:
            return 0.0
        return int(os.pread(self._file, 100, 0).split()[1]) / 1e9

    def start(self, pids: Iterable[int]) -> None:
        self._read = counts(os.getpid())[2]

    def add(self, often: bool = False) -> None:
        self.read_bytes += max(counts(os.getpid())[2] - self._read, 0)
        self.start(())


def counts(pid: int) -> _Counts:
    """Return the counts of a process with all its threads; 0 if unknown."""
    cpu = queued = read = 0
    with suppress(OSError):
        # Linux include/linux/posix-timers_types.h: the CPU-time clock of a process.
        cpu = time.clock_gettime_ns((~pid << 3) | 2)
    with suppress(OSError, ValueError, IndexError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{task}/schedstat", "rb") as file:
                queued += int(file.read().split()[1])
    with suppress(OSError, ValueError), open(f"/proc/{pid}/io", "rb") as file:
        for line in file:
            if line.startswith(b"read_bytes:"):
                read = int(line.split()[1])
    return cpu, queued, read


def tells_queueing() -> bool:
    """Return whether this kernel reports run-queue delays."""
    try:
        with open("/proc/self/schedstat", "rb") as file:
            return len(file.read().split()) >= 2
    except OSError:
        return False


def private_bytes(pid: int) -> int:
    """Return the memory that no other process has mapped; 0 if unknown.

    Clean pages of files do not count: those of a library are private only until another process
    loads it.
    """
    total = 0
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith((b"Private_Dirty:", b"Private_Hugetlb:")):
                total += int(line.split()[1]) * 1024
    return total


def resident_bytes(pid: int) -> int:
    """Return the memory that is in RAM; 0 if unknown."""
    with suppress(OSError, ValueError):
        return resident_memory.resident_bytes(pid)
    return 0


def descendants(pids: Iterable[int]) -> list[tuple[int, str]]:
    """Return (process id, start time) of all descendants of these processes."""
    processes: list[tuple[int, str]] = []
    waiting = list(pids)
    while waiting:
        pid = waiting.pop()
        for task in _names(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                children = [int(child) for child in file.read().split()]
                waiting += children
                processes += [(child, started(child)) for child in children]
    return processes


def kill_remaining(those: Iterable[tuple[int, str]]) -> None:
    """Kill processes that `descendants` returned and that still exist."""
    for pid, start in those:
        if start and started(pid) == start:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def started(pid: int) -> str:
    """Return the start time, which identifies a process; "" if it must not be killed."""
    with suppress(OSError):
        stat = process_stat.read(pid)
        if not stat.name.startswith(_MANAGER):
            return str(stat.start_ticks)
    return ""


def _names(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []
