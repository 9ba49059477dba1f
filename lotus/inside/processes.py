"""What the kernel tells of a candidate's workers: CPU time, time without a core, reads, memory."""

from __future__ import annotations

import os
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_Counts = tuple[int, int, int]  # CPU ns, ns that threads were ready and had no core, bytes read


class Usage:
    """Sums over processes between `start` and `stop`, in pieces."""

    def __init__(self) -> None:
        self.cpu_s = self.queued_s = 0.0
        self.read_bytes = 0
        self._last: dict[int, _Counts] = {}

    def start(self, pids: Iterable[int]) -> None:
        self._last = {pid: counts(pid) for pid in pids}

    def add(self) -> None:
        """What they used since; of one that has ended meanwhile, up to the time before."""
        for pid, before in self._last.items():
            now = counts(pid)
            if now[0] < before[0]:
                continue
            self.cpu_s += (now[0] - before[0]) / 1e9
            self.queued_s += max(now[1] - before[1], 0) / 1e9
            self.read_bytes += max(now[2] - before[2], 0)
            self._last[pid] = now


def counts(pid: int) -> _Counts:
    """Of one process with all its threads; zeros where the kernel does not tell."""
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
    """Whether this kernel counts the time without a core."""
    try:
        with open("/proc/self/schedstat", "rb") as file:
            return len(file.read().split()) >= 2
    except OSError:
        return False


def private_bytes(pid: int) -> int:
    """Memory that no other process has mapped; 0 where the kernel does not tell."""
    total = 0
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/smaps_rollup", "rb") as file:
        for line in file:
            if line.startswith(b"Private_"):
                total += int(line.split()[1]) * 1024
    return total


def resident_bytes(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
