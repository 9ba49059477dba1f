"""Runs a recorder that ends when lotus ends, even if lotus is killed."""

import os
import re
import sys
from collections.abc import Sequence

from lotus.recording.child_process import Child

# The kernel kills it if lotus is killed; if lotus has gone already, it does not begin. The time is
# that of its start, except for the few milliseconds in which its program is loaded.
_TIED = """\
import os, sys, time
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
except Exception:
    pass
os.write(1, b"lotus starts it at %d ns\\n" % time.monotonic_ns())
os.getppid() == int(sys.argv[1]) and os.execv(sys.argv[2], sys.argv[2:])
"""
_MARK = re.compile(r"^lotus starts it at (\d+) ns\n", re.MULTILINE)


class TiedProcess(Child):
    """A recorder in its own session. `words` begin with the path of its program."""

    def __init__(self, words: Sequence[str]) -> None:
        """Start it. Raises OSError."""
        super().__init__([sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), *words])

    @property
    def exec_ns(self) -> int | None:
        """The time at which its program was started, ns of CLOCK_MONOTONIC; None: unknown."""
        mark = _MARK.search(super().text())
        return None if mark is None else int(mark[1])

    def text(self, most: int = 1 << 16) -> str:
        """Return the last `most` bytes of what the recorder itself has written."""
        return _MARK.sub("", super().text(most))
