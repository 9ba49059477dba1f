"""The types of the file systems that this process sees mounted."""

import os
import re
from functools import cached_property

_ESCAPED = re.compile(r"\\([0-7]{3})")
_MOST_BYTES = 4 << 20


class Mounts:
    """Mount points as mountinfo tells them when they are first asked for.

    No path is looked up: at a file server that does not answer, that would never return.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._shared: dict[int, bool] = {}
        self._own = self._namespace("self")

    def note(self, pid: int) -> None:
        """Note, as long as a process runs, whether it sees what this process sees mounted."""
        if pid not in self._shared:
            self._shared[pid] = self._namespace(str(pid)) == self._own

    def type_of(self, pid: int, path: str) -> str:
        """Return the type of the file system of a process's path; "": not known."""
        if not path.startswith("/") or not self._shared.get(pid, False):
            return ""
        path = path.rstrip("/")
        while path and path not in self._types:
            path = path.rpartition("/")[0]
        return self._types.get(path, "")

    def _namespace(self, process: str) -> str:
        try:
            return os.readlink(f"{self._proc}/{process}/ns/mnt")
        except OSError:
            return process  # as no other

    @cached_property
    def _types(self) -> dict[str, str]:
        """Types by mount point, without "/" at the end; empty if they cannot be read."""
        path = f"{self._proc}/self/mountinfo"
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                lines = file.read(_MOST_BYTES).split("\n")
        except OSError:
            return {}
        types = {}
        for line in lines:
            fields, _, rest = (part.split() for part in line.partition(" - "))
            if len(fields) > 4 and rest:  # the last one at a place hides those before it
                types[_plain(fields[4]).rstrip("/")] = rest[0]
        return types


def _plain(text: str) -> str:
    """Return a path whose unusual characters are written as a backslash and octal digits."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)
