"""CPU time of the program's processes, all threads of each, between two readings from outside."""

import contextlib
import time
from dataclasses import dataclass

from lotus.inside.common import process_stat

_PERIOD_NS = 500_000_000


@dataclass(frozen=True)
class Used:
    """What a process used between two readings; -1: it was not read twice, or is not known.

    `cpu_ns`: all threads' time on a core, `system_ns` of it in the kernel; `wall_ns`: by the clock.
    `minor_faults`: page faults that read from no storage. `copied_bytes`, `copies`: what it read
    and wrote by system calls, whether or not from a disk, and the number of these calls.
    """

    cpu_ns: int = -1
    wall_ns: int = -1
    system_ns: int = -1
    minor_faults: int = -1
    copied_bytes: int = -1
    copies: int = -1


@dataclass
class _Readings:
    first_ns: int
    first: tuple[int, ...]  # as _counted and _copied return
    last_ns: int
    last: tuple[int, ...]


class ProcessTimes:
    """Reads each process (pid, worker) twice a second at most."""

    def __init__(self) -> None:
        self.processes: dict[tuple[int, int], _Readings] = {}

    def read(self, process: tuple[int, int]) -> bool:
        """Read how much the process has used by now; whether it was due, and has not ended."""
        now, known = time.monotonic_ns(), self.processes.get(process)
        if known is not None and now - known.last_ns < _PERIOD_NS:
            return False
        with contextlib.suppress(OSError):
            used = *_counted(process[0]), *_copied(process[0])
            if known is None:
                self.processes[process] = _Readings(now, used, now, used)
            else:
                known.last_ns, known.last = now, used
            return True
        return False

    def between(self, process: tuple[int, int]) -> Used:
        """Return what the process used from its first reading to its last one."""
        known = self.processes.get(process)
        if known is None or known.last_ns == known.first_ns:
            return Used()
        user, system, faults, copied, copies = (
            last - first if min(first, last) >= 0 else -1
            for first, last in zip(known.first, known.last, strict=True)
        )
        wall = known.last_ns - known.first_ns
        return Used(user + system, wall, system, faults, copied, copies)


def cpu_ns(pid: int) -> int:
    """Return the CPU time of a process's threads, ns. Raises OSError."""
    user, system, _ = _counted(pid)
    return user + system


def _counted(pid: int) -> tuple[int, int, int]:
    """Return a process's time on a core in user space and in the kernel, ns, and minor faults."""
    stat = process_stat.read(pid)
    return stat.user_ns, stat.system_ns, stat.minor_faults


def _copied(pid: int) -> tuple[int, int]:
    """Return how many bytes a process read and wrote, and by how many calls; -1: not known."""
    try:
        with open(f"/proc/{pid}/io", "rb") as file:
            count = {name: int(value) for name, value in (line.split(b": ") for line in file)}
        return count[b"rchar"] + count[b"wchar"], count[b"syscr"] + count[b"syscw"]
    except (OSError, ValueError, KeyError):
        return -1, -1
