"""The parts of a file that exist: a sparse file of a terabyte may hold a few bytes.

Where a file system does not report holes, the whole file counts as data.
"""

import errno
import os
from typing import IO

_CHUNK = 1 << 20


def data_from(fd: int, at: int, size: int) -> tuple[int, int]:
    """Return [first, last) of the data from `at` on, below `size`; (size, size): there is none.

    The position of `fd` is moved. Raises OSError.
    """
    if at >= size:
        return size, size
    try:
        first = os.lseek(fd, at, os.SEEK_DATA)
        if first >= size:
            return size, size
        return first, min(os.lseek(fd, first, os.SEEK_HOLE), size)
    except OSError as error:
        if error.errno == errno.ENXIO:  # only a hole is left
            return size, size
        if error.errno in (errno.EINVAL, errno.ENOTSUP):
            return at, size
        raise


def data_in(fd: int, start: int, end: int) -> int:
    """Return how many bytes of [start, end) are data. Raises OSError."""
    total, at = 0, start
    while at < end:
        first, at = data_from(fd, at, end)
        total += at - first
    return total


def reach(fd: int, start: int, size: int, room: int) -> int:
    """Return the place at which `room` bytes of data from `start` on end; at most `size`."""
    at = start
    while at < size:
        first, end = data_from(fd, at, size)
        if end - first >= room:
            return first + max(room, 0)
        room, at = room - (end - first), end
    return size


def copy(source: IO[bytes], target: IO[bytes]) -> None:
    """Write to the empty file `target` what `source` holds, holes as holes. Raises OSError."""
    fd, at = source.fileno(), 0
    size = os.fstat(fd).st_size
    while at < size:
        at, end = data_from(fd, at, size)
        while at < end:
            part = os.pread(fd, min(_CHUNK, end - at), at)
            if not part:
                return  # it has become shorter
            os.pwrite(target.fileno(), part, at)
            at += len(part)
    os.truncate(target.fileno(), size)
