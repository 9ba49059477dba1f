"""The parents of processes."""

import os

from lotus.inside.common import process_stat

_MOST = 64  # generations


def descends(pid: int) -> bool:
    """Return True if this process started that one, or one of its ancestors."""
    me = os.getpid()
    for _ in range(_MOST):
        if pid == me:
            return True
        if pid <= 1:
            return False
        try:
            pid = process_stat.read(pid).parent
        except OSError:
            return False
    return False
