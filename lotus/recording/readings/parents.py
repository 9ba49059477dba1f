"""The parents of processes."""

import os

from lotus.common.kernel_files import beginning

_MOST = 64  # generations
_PARENT, _SESSION = 1, 3  # places in /proc/PID/stat after the name


def parent_and_session(pid: int) -> tuple[int, int]:
    """Return a process's parent and session. Raises OSError, ValueError, IndexError."""
    fields = beginning(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
    return int(fields[_PARENT]), int(fields[_SESSION])


def descends(pid: int) -> bool:
    """Return True if this process started that one, or one of its ancestors."""
    me = os.getpid()
    for _ in range(_MOST):
        if pid == me:
            return True
        if pid <= 1:
            return False
        try:
            pid, _ = parent_and_session(pid)
        except (OSError, ValueError, IndexError):
            return False
    return False
