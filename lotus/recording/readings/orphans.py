"""Processes that a program started and whose parent has ended, such as jobs that a shell left in
the background.

The kernel has given them another parent. They are known by a variable of the environment that they
inherited, and looked for in the session of the program, which a daemon leaves.
"""

import contextlib
import os
import time
from collections.abc import Container

from lotus.common.machine.kernel_files import contents
from lotus.inside.common import process_stat
from lotus.recording.readings.parents import descends

_PERIOD_S = 2.0
_MOST = 64  # processes; of more, the first


class Orphans:
    """Looks for them every two seconds at most."""

    def __init__(self, variable: str) -> None:
        """`variable`: NAME=VALUE, as only processes of the program have it."""
        self._variable = os.fsencode(variable)
        self._launcher, self._session = os.getpid(), os.getsid(0)
        self._foreign: set[int] = set()  # processes of other sessions, or without the variable
        self._found: list[int] = []
        self._looked_s = -_PERIOD_S

    def find(self) -> list[int]:
        """Return the processes that were found last, after looking for others if that is due."""
        now = time.monotonic()
        if now - self._looked_s >= _PERIOD_S:
            self._looked_s = now
            with contextlib.suppress(OSError):  # /proc cannot be listed
                self._found = self._look()
        return self._found

    def _look(self) -> list[int]:
        running = {int(name) for name in os.listdir("/proc") if name.isdecimal()}
        self._foreign &= running
        parents = {}
        for pid in running - self._foreign:
            with contextlib.suppress(OSError):
                stat = process_stat.read(pid)
                if stat.session == self._session and self._has_variable(pid):
                    parents[pid] = stat.parent
                else:
                    self._foreign.add(pid)
        left = [pid for pid, parent in parents.items() if self._is_left(parent, parents)]
        return sorted(left)[:_MOST]

    def _is_left(self, parent: int, ours: Container[int]) -> bool:
        """Return True if this parent is not of the program: it is the one that adopts orphans.

        That is the launcher itself where it is the first process of a container. Its other child is
        the program, which makes batches or has processes that do.
        """
        return parent == self._launcher or not (parent in ours or descends(parent))

    def _has_variable(self, pid: int) -> bool:
        return self._variable in contents(f"/proc/{pid}/environ").split(b"\0")
