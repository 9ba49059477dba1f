"""Reports of hooks: lines on stderr, and facts for `lotus run` in a file of all processes."""

import os
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST = 1 << 16  # bytes of the file


class RunNotes:
    """Reports each fact once in all processes of the run. `path` is the file that they share."""

    def __init__(self) -> None:
        self.path: str | None = None
        self.shown: set[str] = set()
        self._stderr: tuple[int, int] | None = (
            None  # checked later, when it may be a file of the program
        )
        with suppress(OSError):
            self._stderr = _identity(2)

    def note(self, text: str) -> None:
        """Write one line to stderr, once in all processes of the run."""
        text = "".join(char if char.isprintable() else "?" for char in text)[:1000]
        if text in self.shown:
            return
        self.shown.add(text)
        # Only if descriptor 2 still is what it was: it may be a file of the program by now.
        if self.tell({"note": text}) and self._stderr is not None:
            with suppress(OSError):
                if _identity(2) == self._stderr:
                    os.write(2, f"lotus: {text}\n".encode("ascii", "backslashreplace"))

    def tell(self, fact: "dict[str, Any]") -> bool:
        """Record a fact for `lotus run`; return whether it is new."""
        import fcntl
        import json

        if self.path is None:
            return True
        line = json.dumps(fact).encode() + b"\n"
        try:
            flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(self.path, flags)
        except OSError:  # `lotus run` has ended, or another machine
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            before = os.pread(fd, _MOST, 0)
            if line in before.splitlines(keepends=True):
                return False
            if len(before) + len(line) <= _MOST:
                os.write(fd, line)
            return True
        except OSError:
            return True
        finally:
            os.close(fd)


def _identity(descriptor: int) -> "tuple[int, int]":
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino
