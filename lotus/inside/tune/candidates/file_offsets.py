"""Where this process's open files stand: what fetching moves is shared with every forked worker.

A forked process has the files that were open before it, with one position for both: who seeks and
then reads may read from where another has just moved it to. A file that is read by pread or
mapped into memory has no position that moves.
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
class Place:
    """One open file: which it is, and how far it was read."""

    device: int
    inode: int
    writable: bool
    position: int

    def same_file(self, other: Place) -> bool:
        return (self.device, self.inode) == (other.device, other.inode)


Places = dict[int, Place]  # by descriptor


def read() -> Places:
    """Of all files that this process can read, and that are no pipes, sockets or devices.

    Nor its output, which may go to a file that can be read too, as pytest has it.
    """
    places: Places = {}
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
                if mode != os.O_WRONLY:  # a log's position decides nothing of what is read
                    position = os.lseek(descriptor, 0, os.SEEK_CUR)
                    places[descriptor] = Place(
                        is_what.st_dev, is_what.st_ino, mode != os.O_RDONLY, position
                    )
    return places


def moved(before: Mapping[int, Place], after: Mapping[int, Place]) -> set[int]:
    """The descriptors of files that were open before, and stand elsewhere now."""
    return {
        descriptor
        for descriptor, place in after.items()
        if (was := before.get(descriptor)) is not None
        and was.same_file(place)
        and was.position != place.position
    }


def opened(before: Mapping[int, Place], after: Mapping[int, Place]) -> set[int]:
    """The descriptors of files that were not open before, and have been read from."""
    return {
        descriptor
        for descriptor, place in after.items()
        if place.position and ((was := before.get(descriptor)) is None or not was.same_file(place))
    }


def put_back(before: Mapping[int, Place], those: set[int]) -> None:
    """Have files stand where they stood; not those that somebody may have written to."""
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
    """What fetches in the program's own process do to its files, and how its memory grows."""

    def __init__(self) -> None:
        self.grown_bytes = 0
        self._before: Places = {}
        self._was_bytes = 0
        self._known: Places | None = None  # when the first fetch began
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
        """The names of files whose position workers that are forked now would share.

        A file that was opened by a fetch, and still is, is one of them: it stands where it was
        read to.
        """
        names = dict(self._moved)
        if self._known is not None:
            names |= {
                descriptor: name(descriptor) for descriptor in opened(self._known, self._before)
            }
        return sorted(set(names.values()))


class Trial:
    """Whether forked workers move the files of this process; what its own threads move is no sign.

    `begin` before workers may fetch, `moved` after.
    """

    def __init__(self) -> None:
        self._first: Places | None = read()
        self._own: set[int] = set()
        self._before: Places = {}
        self._those: set[int] = set()

    def begin(self) -> None:
        self._before = read()
        if self._first is not None:
            self._own, self._first = moved(self._first, self._before), None

    def moved(self) -> list[str]:
        """The names of files that stand elsewhere now, sorted."""
        self._those = moved(self._before, read()) - self._own
        return sorted({name(descriptor) for descriptor in self._those})

    def put_back(self) -> None:
        """Have them stand where the program left them, once no worker is there any more."""
        put_back(self._before, self._those)


def anonymous_bytes() -> int:
    """Memory of this process that is no file's; 0 where the kernel does not tell."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith(b"RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def words(names: list[str]) -> str:
    """Why nothing is tried where workers would share the positions of these files."""
    those = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return (
        f"fetching moves the read position of {those}, which is open in the program's process: "
        "workers forked from it share that position and read garbage. Have the data set open the "
        "file on its first use in each worker, and give num_workers=1 in the code: then settings "
        "can be tried. Settings from elsewhere may be given to `lotus run` only where nothing "
        "opens the file before the workers start"
    )
