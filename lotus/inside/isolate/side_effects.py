"""Notes side effects of an operation: writing files, network, other processes.

A Python audit hook sees what Python code and Python's own modules do, but not what C libraries do
by themselves.
"""

from __future__ import annotations

import os
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CHANGES = (
    *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink"),
    *("os.truncate", "os.chmod", "os.chown", "shutil.move", "shutil.rmtree"),
)
_NETWORK = ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.getaddrinfo")
_PROCESSES = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.kill")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_TRUNC
_ELSEWHERE = ("/proc/", "/dev/", "/sys/")
_CODE = "__pycache__"
_MOST = 100  # characters of a path

_here = threading.local()  # `frames`: lists of what was seen, the innermost one last
_hooked = False


def begin() -> None:
    """Start noting what this thread does; calls may be nested."""
    global _hooked
    if not _hooked:
        _hooked = True
        sys.addaudithook(_audit)
    if not hasattr(_here, "frames"):
        _here.frames = []
    _here.frames.append([])


def end() -> list[str]:
    """Return what was done since the matching `begin`, as clauses, including nested calls."""
    seen: list[str] = _here.frames.pop()
    return seen


def pass_on(seen: list[str]) -> None:
    """Add the effects to those of the enclosing operation."""
    if _here.frames:
        _here.frames[-1] += seen


def _audit(event: str, args: tuple[Any, ...]) -> None:
    frames = getattr(_here, "frames", None)
    if frames:
        what = _words(event, args)
        if what and len(frames[-1]) < _MOST:
            frames[-1].append(what)


def _words(event: str, args: tuple[Any, ...]) -> str:
    if event == "open" or event in _CHANGES:
        path = args[0] if args else None
        if event == "open" and not (isinstance(args[2], int) and args[2] & _WRITES):
            return ""
        if not isinstance(path, (str, bytes)):  # a descriptor
            return "it writes to a file"
        name = os.fsdecode(path)
        if name.startswith(_ELSEWHERE) or _CODE in name:
            return ""
        return f"it writes to {name[-_MOST:]}" if event == "open" else f"it changes {name[-_MOST:]}"
    if event in _NETWORK:
        return "it uses the network"
    return "it starts or signals another process" if event in _PROCESSES else ""
