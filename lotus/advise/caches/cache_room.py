"""The room for cached samples: memory, and disk with its measured rates."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path

from lotus.advise.caches.cache_plan import DISK, RAM, CachePlace
from lotus.common.errors import LotusError
from lotus.common.machine import memory_headroom
from lotus.common.text.formatting import size
from lotus.inside.cache.cache_folder import memory_root, users_root

SHARED_MEMORY = Path("/dev/shm")
_TRIED = 64 << 20  # bytes that are written and read
_PIECE = 1 << 20


def ram(wanted: int | None, program_bytes: int) -> tuple[CachePlace, list[str]]:
    """Return the room in memory, and notes. `program_bytes` is what the program needs besides.

    Without `wanted`, half of what is then left. It is counted once: all workers share it.
    """
    notes = []
    free = _free(SHARED_MEMORY)
    if wanted is None:
        headroom = memory_headroom.memory()
        left = 0 if headroom is None else max(0, headroom.free - program_bytes)
        budget = min(left // 2, free)
    else:
        budget = min(wanted, free)
        if free < wanted:
            notes.append(f"{SHARED_MEMORY} has {size(free)} free, less than --ram")
    return CachePlace(RAM, memory_root(), budget), notes


def disk(
    wanted: int | None, folder: Path | None, memory_bytes: int
) -> tuple[CachePlace | None, list[str]]:
    """Return the room on disk with its rates, and notes; None where nothing can be written.

    Without `wanted`, half of the free space. `memory_bytes` is free for the page cache. Raises
    LotusError where `folder` was named and cannot be written to.
    """
    path = folder or Path(users_root())
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent  # nothing is left behind if nothing is to be cached
    try:
        free = _free(there)
        write, read = _rates(there, min(_TRIED, free // 4))
    except OSError as error:
        text = f"no samples can be cached in {path}: {error.strerror or error}"
        if folder is not None:
            raise LotusError(f"{text}; name another folder with --folder") from None
        return None, [text]
    notes = []
    if wanted is not None and free < wanted:
        notes.append(f"{path} has {size(free)} free, less than --disk")
    budget = free // 2 if wanted is None else min(wanted, free)
    named = None if folder is None else str(folder.absolute())
    return CachePlace(DISK, named, budget, write, read, max(0, memory_bytes)), notes


def _free(path: Path) -> int:
    try:
        status = os.statvfs(path)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize


def _rates(folder: Path, count: int) -> tuple[float, float]:
    """Return bytes/s of writing until it is on the disk, and of reading from there."""
    pieces = max(1, count // _PIECE)
    data = os.urandom(_PIECE)
    descriptor, name = tempfile.mkstemp(prefix=".measured-", dir=folder)
    os.unlink(name)  # so that nothing is left if this is killed
    try:
        begun = time.monotonic()
        for _ in range(pieces):
            os.write(descriptor, data)
        os.fsync(descriptor)
        written_s = time.monotonic() - begun
        # So that it is read from the disk, if the file system can drop its pages.
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.lseek(descriptor, 0, os.SEEK_SET)
        begun = time.monotonic()
        while os.read(descriptor, _PIECE):
            pass
        read_s = time.monotonic() - begun
    finally:
        os.close(descriptor)
    whole = pieces * _PIECE
    return whole / max(written_s, 1e-9), whole / max(read_s, 1e-9)
