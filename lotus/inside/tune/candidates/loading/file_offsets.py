"""Detects open files whose read position is shared with forked workers.

A forked process inherits the open files of its parent, and both share one position: a process that
seeks and then reads may read from where the other one has just moved the position. Files that are
read by pread or mapped into memory are not affected.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_OPEN = "/proc/self/fd"


@dataclass(frozen=True)
class OpenFile:
    """An open file and its position."""

    device: int
    inode: int
    writable: bool
    position: int

    def same_file(self, other: OpenFile) -> bool:
        return (self.device, self.inode) == (other.device, other.inode)


OpenFiles = dict[int, OpenFile]  # by descriptor


def read() -> OpenFiles:
    """Return the regular files that this process has open for reading.

    Standard output and error are left out; they may be readable files too, as in pytest.
    """
    places: OpenFiles = {}
    outputs = set()
    for descriptor in (1, 2):
        with suppress(OSError):
            is_what = os.fstat(descriptor)
            outputs.add((is_what.st_dev, is_what.st_ino))
    with suppress(OSError):
        for name in os.listdir(_OPEN):
            with suppress(OSError, ValueError):
                descriptor = int(name)
                is_what = os.fstat(descriptor)
                known = (is_what.st_dev, is_what.st_ino) in outputs
                if known or not stat.S_ISREG(is_what.st_mode):
                    continue
                mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
                if mode != os.O_WRONLY:  # write-only files, such as logs, do not matter
                    position = os.lseek(descriptor, 0, os.SEEK_CUR)
                    places[descriptor] = OpenFile(
                        is_what.st_dev, is_what.st_ino, mode != os.O_RDONLY, position
                    )
    return places


def moved(before: Mapping[int, OpenFile], after: Mapping[int, OpenFile]) -> set[int]:
    """Return the descriptors of files whose position has changed."""
    return {
        descriptor
        for descriptor, place in after.items()
        if (was := before.get(descriptor)) is not None
        and was.same_file(place)
        and was.position != place.position
    }


def opened(before: Mapping[int, OpenFile], after: Mapping[int, OpenFile]) -> set[int]:
    """Return the descriptors of files that were opened since and have been read."""
    return {
        descriptor
        for descriptor, place in after.items()
        if place.position and ((was := before.get(descriptor)) is None or not was.same_file(place))
    }


def put_back(before: Mapping[int, OpenFile], those: set[int]) -> None:
    """Restore the positions of files, except those that may have been written."""
    now = read()
    for descriptor in those & now.keys():
        was = before[descriptor]
        if was.same_file(now[descriptor]) and not was.writable:
            with suppress(OSError):
                os.lseek(descriptor, was.position, os.SEEK_SET)


def name(descriptor: int) -> str:
    with suppress(OSError):
        return os.readlink(f"{_OPEN}/{descriptor}")
    return f"the file of descriptor {descriptor}"


class Fetching:
    """Observes how fetches in the program's process move files and grow its memory."""

    def __init__(self) -> None:
        self.grown_bytes = 0
        self._before: OpenFiles = {}
        self._was_bytes = 0
        self._known: OpenFiles | None = None  # when the first fetch began
        self._moved: dict[int, str] = {}

    def begin(self) -> None:
        self._before, self._was_bytes = read(), anonymous_bytes()
        if self._known is None:
            self._known = self._before

    def finish(self, batch_bytes: int) -> None:
        now = read()
        for descriptor in moved(self._before, now) - self._moved.keys():
            self._moved[descriptor] = name(descriptor)
        self.grown_bytes += anonymous_bytes() - self._was_bytes - batch_bytes

    def shared(self) -> list[str]:
        """Return the names of files whose position would be shared with workers forked now.

        This includes files that a fetch has opened and left open.
        """
        names = dict(self._moved)
        if self._known is not None:
            names |= {
                descriptor: name(descriptor) for descriptor in opened(self._known, self._before)
            }
        return sorted(set(names.values()))


class Trial:
    """Detects whether forked workers move files of this process.

    Call `begin` before workers may fetch and `moved` afterwards. Files that threads of this process
    move do not count.
    """

    def __init__(self) -> None:
        self._first: OpenFiles | None = read()
        self._own: set[int] = set()
        self._before: OpenFiles = {}
        self._those: set[int] = set()

    def begin(self) -> None:
        self._before = read()
        if self._first is not None:
            self._own, self._first = moved(self._first, self._before), None

    def moved(self) -> list[str]:
        """Return the sorted names of files whose position has changed."""
        self._those = moved(self._before, read()) - self._own
        return sorted({name(descriptor) for descriptor in self._those})

    def put_back(self) -> None:
        """Restore their positions, after all workers have exited."""
        put_back(self._before, self._those)


def anonymous_bytes() -> int:
    """Return the anonymous memory of this process; 0 if unknown."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith(b"RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def words(names: list[str]) -> str:
    """Return why no trials are made if workers would share the positions of these files."""
    those = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return (
        f"fetching moves the read position of {those}, which is open in the program's process: "
        "workers forked from it share that position and read garbage. Have the data set open the "
        "file on its first use in each worker, and give num_workers=1 in the code: then settings "
        "can be tried. Settings from elsewhere may be given to `lotus run` only where nothing "
        "opens the file before the workers start"
    )
