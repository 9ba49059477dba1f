"""Processes that a program started and whose parent has ended, such as jobs that a shell left in
the background.

The kernel has given them another parent. They are known by a variable of the environment that they
inherited, and looked for in the session of the program, which a daemon leaves.
"""

import contextlib
import os
import time

from lotus.common.kernel_files import beginning, contents

_PERIOD_S = 2.0
_MOST = 64  # processes; of more, the first
_PARENT, _SESSION = 1, 3  # places in /proc/PID/stat after the name


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
            self._found = self._look()
        return self._found

    def _look(self) -> list[int]:
        running = {int(name) for name in os.listdir("/proc") if name.isdecimal()}
        self._foreign &= running
        ours = {}
        for pid in running - self._foreign:
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = beginning(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
                if int(fields[_SESSION]) == self._session and self._has_variable(pid):
                    ours[pid] = int(fields[_PARENT])
                else:
                    self._foreign.add(pid)
        parents = {*ours, self._launcher}
        return [pid for pid, parent in sorted(ours.items()) if parent not in parents][:_MOST]

    def _has_variable(self, pid: int) -> bool:
        return self._variable in contents(f"/proc/{pid}/environ").split(b"\0")
