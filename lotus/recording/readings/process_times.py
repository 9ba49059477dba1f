"""CPU time of the program's processes, all threads of each, between two readings from outside."""

import contextlib
import os
import time
from dataclasses import dataclass

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_USER_TIME = 11  # its place in /proc/PID/stat after the name; after it, system time
_PERIOD_NS = 500_000_000


@dataclass
class _Readings:
    first_ns: int
    first_cpu_ns: int
    last_ns: int
    last_cpu_ns: int


class ProcessTimes:
    """Reads each process (pid, worker) twice a second at most."""

    def __init__(self) -> None:
        self.processes: dict[tuple[int, int], _Readings] = {}

    def read(self, process: tuple[int, int]) -> bool:
        """Read how much the process has used by now; whether it was due, and has not ended."""
        now, known = time.monotonic_ns(), self.processes.get(process)
        if known is not None and now - known.last_ns < _PERIOD_NS:
            return False
        with contextlib.suppress(OSError, ValueError, IndexError):
            used = cpu_ns(process[0])
            if known is None:
                self.processes[process] = _Readings(now, used, now, used)
            else:
                known.last_ns, known.last_cpu_ns = now, used
            return True
        return False

    def between(self, process: tuple[int, int]) -> tuple[int, int]:
        """Return (CPU time, wall time) from first to last reading, ns; (-1, -1): not read twice."""
        known = self.processes.get(process)
        if known is None or known.last_ns == known.first_ns:
            return -1, -1
        return known.last_cpu_ns - known.first_cpu_ns, known.last_ns - known.first_ns


def cpu_ns(pid: int) -> int:
    """Return the CPU time of a process's threads, ns. Raises OSError, ValueError, IndexError."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        fields = file.read().rpartition(b") ")[2].split()
    return (int(fields[_USER_TIME]) + int(fields[_USER_TIME + 1])) * _TICK_NS
