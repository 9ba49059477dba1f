"""The fields of /proc/PID/stat: a process's state, parent, CPU time and start."""

from __future__ import annotations

import errno
import os

# The kernel counts these times in ticks.
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
STOPPED = ("T", "t")  # by a signal, by a debugger
ENDED = ("Z", "X")  # its parent has not been told yet, and has just been told
_FORKED = 0x40  # PF_FORKNOEXEC of Linux
# Places of fields after the name: field 3 of proc_pid_stat(5) is the first.
_STATE, _PARENT, _SESSION, _FLAGS, _MINOR_FAULTS = 0, 1, 3, 6, 7
_USER_TIME, _SYSTEM_TIME, _USER_TIME_OF_CHILDREN, _SYSTEM_TIME_OF_CHILDREN = 11, 12, 13, 14
_START_TIME = 19


class ProcessStat:
    """The fields of one file; each is converted when it is asked for, since callers need few.

    They raise IndexError or ValueError where the text is incomplete.
    """

    __slots__ = ("_fields", "_text")

    def __init__(self, text: bytes) -> None:
        self._text = text
        # A name may contain blanks and parentheses; nothing after it does.
        self._fields = text.rpartition(b") ")[2].split(None, _START_TIME + 1)

    @property
    def is_complete(self) -> bool:
        return len(self._fields) > _START_TIME

    @property
    def name(self) -> str:
        """The first 15 bytes of the program's name, or what the process called itself."""
        return self._text.rpartition(b") ")[0].partition(b"(")[2].decode("utf-8", "replace")

    @property
    def state(self) -> str:
        """The main thread's: R running, S sleeping, D waiting for storage; STOPPED, ENDED."""
        return self._fields[_STATE].decode()

    @property
    def parent(self) -> int:
        return int(self._fields[_PARENT])

    @property
    def session(self) -> int:
        return int(self._fields[_SESSION])

    @property
    def is_forked(self) -> bool:
        """Whether it has executed no program since it was forked."""
        return bool(int(self._fields[_FLAGS]) & _FORKED)

    @property
    def minor_faults(self) -> int:
        """Page faults that read from no storage, of all threads since the start."""
        return int(self._fields[_MINOR_FAULTS])

    @property
    def user_ns(self) -> int:
        """CPU time in user space of all threads since the start."""
        return int(self._fields[_USER_TIME]) * TICK_NS

    @property
    def system_ns(self) -> int:
        """CPU time in the kernel of all threads since the start."""
        return int(self._fields[_SYSTEM_TIME]) * TICK_NS

    @property
    def children_ns(self) -> int:
        """CPU time of the children that have ended and for which the process has waited."""
        fields = self._fields
        ticks = int(fields[_USER_TIME_OF_CHILDREN]) + int(fields[_SYSTEM_TIME_OF_CHILDREN])
        return ticks * TICK_NS

    @property
    def start_ticks(self) -> int:
        """When it started, in ticks since the machine did: CLOCK_BOOTTIME."""
        return int(self._fields[_START_TIME])


def read(pid: int | str, proc: str = "/proc") -> ProcessStat:
    """Return the fields of a process; `pid` may be "self".

    Raises FileNotFoundError or ProcessLookupError where it is gone, another OSError where the file
    cannot be read.
    """
    path = f"{proc}/{pid}/stat"
    with open(path, "rb", buffering=0) as file:
        stat = ProcessStat(file.read(1024))
    if not stat.is_complete:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH), path)
    return stat
