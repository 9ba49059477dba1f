"""Long arrays in files without a name: the kernel can use their memory for something else.

What is known of each batch of a large run takes more memory than all else. Here it is in a file of
the folder for temporary files, mapped into memory while it is read. The file is gone with the
arrays, or with the process, however that ends. Where a file cannot be written, as on a full disk,
arrays stay in memory. So they do where that folder is in memory itself (tmpfs).

What is read is in memory until it is given back. Those who read whole columns do that whenever they
have read much: of however many arrays, few bytes are in memory at a time.
"""

import contextlib
import contextvars
import ctypes
import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

LEAST = 1 << 18  # bytes from which on the memory of an array matters
REGION = 1 << 26  # bytes of a file, unless a longer array needs it for itself
_STEP = 1 << 23  # bytes that are written at a time
_ALIGNED = 64  # as numpy aligns what it allocates
_TRIMMED = 1 << 24  # bytes after which freed memory is given back
MOST_READ = 1 << 26  # bytes that are read before all that is mapped is given back


class _Region:
    """A part of what is kept: a file that is mapped into memory, and how much of it is used."""

    def __init__(self, size: int) -> None:
        with tempfile.TemporaryFile(dir=_folder(), buffering=0) as file:
            file.truncate(size)
            self.map = mmap.mmap(file.fileno(), size)
            self.fd = os.dup(file.fileno())
        self.used, self.size = 0, size
        weakref.finalize(self, os.close, self.fd)


_lock = threading.Lock()  # protects the following
_maps: "weakref.WeakSet[mmap.mmap]" = weakref.WeakSet()
_freed = [0]  # bytes that were put into files since memory was last given back
_open: list[_Region] = []  # the one that the next array goes to
_read = [0]  # bytes of arrays that were read since what is mapped was last given back
_short_lived = contextvars.ContextVar("short_lived", default=False)


def _after_fork() -> None:
    """Start anew in a child: the file is also the parent's, and no thread can release the lock."""
    global _lock
    _lock = threading.Lock()
    _open.clear()


os.register_at_fork(after_in_child=_after_fork)


def _folder() -> str | None:
    """Return a folder for temporary files on a disk; None: the default one."""
    return None if os.environ.get("TMPDIR") or not os.access("/var/tmp", os.W_OK) else "/var/tmp"


@contextlib.contextmanager
def short_lived() -> Iterator[None]:
    """Keep arrays that are made here in memory: they are few, and freed before the next ones.

    Afterwards the memory of what they were made of is given back.
    """
    token = _short_lived.set(True)
    try:
        yield
    finally:
        _short_lived.reset(token)
        let_go()


def kept(values: Array) -> Array:
    """Return the values, in a file if they are many."""
    if values.nbytes < LEAST or _short_lived.get():
        return values
    return joined([values], values.dtype).reshape(values.shape)


def joined(parts: Sequence[Array], dtype: "np.dtype[Any]") -> Array:
    """Concatenate arrays of this dtype, in a file if they are many; a short one is not copied."""
    if not parts:
        return np.empty(0, dtype)
    size = sum(part.nbytes for part in parts)
    if size >= LEAST and not dtype.hasobject and not _short_lived.get():
        with contextlib.suppress(OSError), _lock:
            return _written(parts, size).view(dtype)
    if len(parts) == 1:
        return parts[0]
    # As opaque items: numpy would copy structured ones field by field.
    opaque = np.dtype(f"V{dtype.itemsize}")
    whole: Array = np.concatenate([np.ascontiguousarray(part).view(opaque) for part in parts])
    return whole.view(dtype)


def zeros(shape: tuple[int, ...]) -> Array:
    """Return float64 zeros that can be written to, in a file if they are many."""
    none: Array = np.zeros(shape)
    return kept(none)


def _written(parts: Sequence[Array], size: int) -> Array:
    """Return the bytes of the parts, in a file. Raises OSError."""
    if size > REGION // 4:
        region = _Region(size)
    else:
        if not _open or _open[0].used + size > _open[0].size:
            _open[:] = [_Region(REGION)]
        region = _open[0]
    _maps.add(region.map)
    begin = at = region.used
    for part in parts:
        rows = part.reshape(1) if part.ndim == 0 else part
        some = max(_STEP * len(rows) // max(rows.nbytes, 1), 1)
        for first in range(0, len(rows), some):
            data = np.ascontiguousarray(rows[first : first + some]).reshape(-1).view(np.uint8).data
            while data.nbytes:
                count = os.pwrite(region.fd, data, at)
                data, at = data[count:], at + count
            _let_go()
    _freed[0] += size
    if _freed[0] >= _TRIMMED:
        _freed[0] = 0
        _trim()
    region.used = -(-at // _ALIGNED) * _ALIGNED
    return np.frombuffer(region.map, np.uint8, size, begin)


def _trim() -> None:
    """Give back what was freed: glibc keeps it where it is between other blocks."""
    with contextlib.suppress(AttributeError, OSError):  # another library has no such function
        ctypes.CDLL(None).malloc_trim(0)


def parts(values: Array) -> Iterator[Array]:
    """Yield all rows, some at a time: a field of them has a part in each page of their file."""
    if values.nbytes < _STEP:
        yield values
        return
    some = max(_STEP * len(values) // values.nbytes, 1)
    for at in range(0, len(values), some):
        yield values[at : at + some]
        let_go()


def keep_few(values: Array) -> None:
    """Give back what is mapped if much was read since: `values`, if many, have just been read."""
    if values.nbytes < LEAST or not _maps:
        return
    with _lock:
        _read[0] += values.nbytes
        if _read[0] > MOST_READ:
            _let_go()


def let_go() -> None:
    """Give back the memory of all that is in files, until it is read again."""
    with _lock:
        _let_go()


def _let_go() -> None:
    _read[0] = 0
    with contextlib.suppress(OSError):  # pages that the process has locked stay
        for held in list(_maps):
            held.madvise(mmap.MADV_DONTNEED)
