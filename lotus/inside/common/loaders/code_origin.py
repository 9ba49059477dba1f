"""Distinguishes the program's code from that of Python and of installed distributions."""

import os
import sys
from itertools import islice

from ..guard import ours

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import Any

_STDLIB = os.path.dirname(os.__file__) + os.sep
_SITES = ("site-packages", "dist-packages")
_MOST_ENTRIES = 20_000  # of a folder: more has no folder of packages
_MOST_RECORD = 64 << 20  # bytes

_known: "dict[str, bool]" = {}  # by file name: whether it is installed
_records: "dict[str, list[str]]" = {}  # by folder of `sys.path`: the RECORD files in it


def is_program(frame: "FrameType") -> bool:
    """Return whether a frame runs the program's own code: not lotus, Python or a package."""
    path = frame.f_code.co_filename
    is_own = _known.get(path)
    if is_own is None:
        if ours(frame):
            return False
        if path.startswith("<"):
            return _is_typed(frame)
        is_own = _known[path] = is_installed(path)
    return not is_own


def _is_typed(frame: "FrameType") -> bool:
    """Return whether code without a file is the program's: `python -c`, stdin or a notebook cell.

    Code that a library compiles from text runs in the namespace of a module with a file.
    """
    name, names = frame.f_code.co_filename, frame.f_globals
    if name.startswith("<frozen "):
        return False
    return names.get("__name__") == "__main__" and (
        name.startswith("<ipython") or not isinstance(names.get("__file__"), str)
    )


def is_installed(path: str) -> bool:
    """Return whether a file is Python's or an installed package's."""
    parts = path.split(os.sep)
    if path.startswith(_STDLIB) or not {*_SITES}.isdisjoint(parts):
        return True
    above = [f"{folder.rstrip(os.sep)}{os.sep}" for folder in list(sys.path) if _is_folder(folder)]
    for folder in dict.fromkeys(above):
        if path.startswith(folder) and _is_recorded(folder, path[len(folder) :]):
            return True
    return _is_console_script(path, above)


def _is_folder(entry: object) -> bool:
    return isinstance(entry, str) and os.path.isabs(entry)


def _is_recorded(folder: str, path: str) -> bool:
    """Return whether a distribution in the folder lists the file in its RECORD.

    An editable install only lists a link to the user's folder.
    """
    records = _records.get(folder)
    if records is None:
        records = _records[folder] = list(_records_in(folder))
    name = path.replace(os.sep, "/").encode("utf-8", "surrogateescape")
    lines = (b"\n" + name + b",", b'\n"' + name + b'",')
    for record in records:
        try:
            if os.path.getsize(record) > _MOST_RECORD:
                continue
            with open(record, "rb") as file:
                text = b"\n" + file.read()
        except OSError:
            continue
        if any(line in text for line in lines):
            return True
    return False


def _records_in(folder: str) -> "Iterator[str]":
    try:
        with os.scandir(folder) as entries:
            for entry in islice(entries, _MOST_ENTRIES):
                if entry.name.endswith(".dist-info"):
                    yield os.path.join(entry.path, "RECORD")
    except OSError:
        return


def _is_console_script(path: str, folders: "list[str]") -> bool:
    """Return whether it is in the folder where installers put the commands of these packages."""
    home = os.path.dirname(path)
    return any(
        folder.rstrip(os.sep).endswith(_SITES)
        and home == os.path.normpath(os.path.join(folder, "..", "..", "..", "bin"))
        for folder in folders
    )


def place(frame: "FrameType | None") -> str:
    """Return a frame as `file:line`; "" for None."""
    if frame is None:
        return ""
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def nearest(frame: "FrameType | None") -> "FrameType | None":
    """Return the nearest frame of the program, from `frame` outwards.

    If the whole program is installed, this is the nearest frame of the package that was started.
    Return None if there are only frames of lotus and Python.
    """
    packages: list[FrameType] = []
    while frame is not None:
        if is_program(frame):
            return frame
        if _is_package(frame):
            packages.append(frame)
        frame = frame.f_back
    others = [package for package in packages if _package(package) != "torch"] or packages
    started = _package(others[-1]) if others else ""
    return next((package for package in others if _package(package) == started), None)


def _is_package(frame: "FrameType") -> bool:
    """Return whether it runs an installed package, not lotus, Python or a generated command."""
    path = frame.f_code.co_filename
    if ours(frame) or path.startswith("<"):
        return False
    if path.startswith(_STDLIB) and {*_SITES}.isdisjoint(path.split(os.sep)):
        return False
    return not (
        frame.f_globals.get("__name__") == "__main__" and not path.endswith((".py", ".pyc"))
    )


def _package(frame: "FrameType") -> str:
    names: dict[str, Any] = frame.f_globals
    name = names.get("__name__")
    if name == "__main__":  # `python -m package.module`
        name = getattr(names.get("__spec__"), "name", None) or names.get("__package__")
    return str(name or frame.f_code.co_filename).partition(".")[0]
