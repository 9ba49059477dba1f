"""The files that are opened while a sample is made, by an audit hook of Python.

It sees `open` of Python, Pillow and `os`, and databases of `sqlite3`, but not what libraries in C
open by themselves, such as `torchvision.io`, HDF5 or soundfile. For these the paths that a data set
has in a list count too.
"""

from __future__ import annotations

import os
import sys
import threading

from ..common.guard import quiet
from ..common.sample_paths import path_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST = 16  # files of a sample
_ELSEWHERE = ("/proc/", "/dev/", "/sys/")
_EVENTS = ("open", "sqlite3.connect")
_CODE = (".py", ".pyc", ".so")

_here = threading.local()  # `opened`: a list while a sample is made in this thread
_hooked = False


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event in _EVENTS:
        opened = getattr(_here, "opened", None)
        if opened is not None and isinstance(args[0], (str, bytes, os.PathLike)):
            opened.append((args[0], args[2] if event == "open" else os.O_RDONLY))


def start() -> None:
    """Begin to note the files that this thread opens."""
    global _hooked
    if not _hooked:
        _hooked = True
        sys.addaudithook(_audit)
    _here.opened = []


def stop() -> tuple[list[str], bool]:
    """Return the absolute paths of the files since `start`, and whether any may be written to."""
    opened, _here.opened = _here.opened, None
    own = (*_ELSEWHERE, os.path.abspath(sys.prefix) + os.sep, os.path.dirname(os.__file__) + os.sep)
    paths: dict[str, None] = {}
    writes = False
    for name, flags in opened:
        path = os.path.abspath(os.fsdecode(name))
        if path.startswith(own) or path.endswith(_CODE):
            continue
        paths[path] = None
        writes = writes or bool(flags & (os.O_WRONLY | os.O_RDWR))
    return list(paths), writes


def of_sample(dataset: object, index: Any, opened: list[str]) -> list[tuple[str, int, int]] | None:
    """Return (path, size, modification time in ns) of a sample's files; None: they are too many."""
    listed = None
    with quiet(Exception):
        listed = path_of(dataset, index)
    paths = list(opened)
    if listed is not None and os.path.abspath(listed) not in paths:
        paths.append(os.path.abspath(listed))
    if len(paths) > MOST:
        return None
    files = []
    for path in paths:
        status = status_of(path)
        if status is not None:
            files.append((path, *status))
    return files


def status_of(path: str) -> tuple[int, int] | None:
    """Return (size, modification time in ns) of a file; None if there is none."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns
