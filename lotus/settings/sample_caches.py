"""The caches of samples on this machine: their contents, their size, their removal.

A cache is a folder whose about.json says that it is. Nothing here follows a symbolic link, and what
is not the user's own is not listed.
"""

import contextlib
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lotus.common.errors import LotusError
from lotus.common.storage import files
from lotus.inside.cache.cache_folder import FORMAT, memory_root, users_root
from lotus.settings import scratch_folders

_LARGEST_ABOUT = 1 << 20  # bytes
_ABANDONED = "a `lotus plan` that was killed left it"


@dataclass(frozen=True)
class ListedCache:
    """A cache. Times are seconds since 1970; None: not known.

    samples, bytes  the entries in it, and the bytes of disk or memory that it takes
    operations  those that a cached sample has been through, by name
    cut  how many operations these are; 0: what the data set's own code makes
    command  the program that made it
    compression  by which method its first program compressed samples; None: it did not
    dropped  why nobody uses it any more
    """

    folder: Path
    samples: int
    bytes: int
    last_used_at: float | None
    made_at: float | None
    data_set: str | None
    operations: tuple[str, ...] | None
    cut: int | None
    command: tuple[str, ...] | None
    dropped: str | None
    compression: str | None = None


def roots() -> list[Path]:
    """Return the folders in which caches are: on disk, and in memory."""
    return [Path(users_root()), Path(memory_root())]


def listed() -> list[ListedCache]:
    """Return the caches below the roots, the one used last first."""
    folders = [child for root in roots() for child in _children(root)]
    caches = [cache for folder in folders if (cache := read(folder)) is not None]
    return sorted(caches, key=lambda cache: -(cache.last_used_at or 0.0))


def read(folder: Path) -> ListedCache | None:
    """Return the cache that a folder is; None where it is none, or not the user's.

    What a killed `lotus plan` left is one without samples, which is dropped.
    """
    if scratch_folders.is_abandoned(folder):
        at = _modified(folder)
        size = _all_bytes(folder)
        return ListedCache(folder, 0, size, at, at, None, None, None, None, _ABANDONED)
    try:
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            return None
        about = json.loads(files.read(folder / "about.json", _LARGEST_ABOUT))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        return None
    samples, size = _contents(folder)
    made_at, cut, data_set = about.get("made_at"), about.get("cut"), about.get("data_set")
    compression = about.get("compression")
    return ListedCache(
        folder,
        samples,
        size,
        _modified(folder / "used"),
        _time(made_at),
        data_set if isinstance(data_set, str) else None,
        _texts(about.get("operations")),
        cut if isinstance(cut, int) else None,
        _texts(about.get("command")),
        _dropped(folder),
        compression if isinstance(compression, str) else None,
    )


def chosen(
    caches: Sequence[ListedCache], names: Sequence[str], unused_for_s: float | None
) -> list[ListedCache]:
    """Return the caches that are named, by name or path, and not used for so many seconds.

    No names: all. Raises LotusError for a name of none.
    """
    picked = [_named(caches, name) for name in names] if names else list(caches)
    picked = list(dict.fromkeys(picked))
    if unused_for_s is None:
        return picked
    oldest = time.time() - unused_for_s
    return [cache for cache in picked if (cache.last_used_at or 0.0) < oldest]


def remove(cache: ListedCache) -> int:
    """Remove a cache, in use or not; return the bytes that this freed. Raises LotusError."""
    before = read(cache.folder)
    if before is None:
        raise LotusError(f"{cache.folder} is not a cache of samples")
    # Without this file, no program writes to the folder any more.
    with contextlib.suppress(OSError):
        os.unlink(cache.folder / "used")
    # A file that was being written may have been added in between.
    for _ in range(3):
        shutil.rmtree(cache.folder, ignore_errors=True)
        if not os.path.lexists(cache.folder):
            return before.bytes
    raise LotusError(f"cannot remove all of {cache.folder}: see what is left with ls -la")


def _named(caches: Sequence[ListedCache], name: str) -> ListedCache:
    if os.sep in name:
        cache = read(Path(os.path.abspath(name)))
        if cache is None:
            raise LotusError(f"{name} is not a cache of samples; lotus cache ls lists them")
        return cache
    for cache in caches:
        if cache.folder.name == name:
            return cache
    raise LotusError(f"there is no cache {name}; lotus cache ls lists them")


def _children(root: Path) -> list[Path]:
    try:
        if os.lstat(root).st_uid != os.getuid():
            return []
        return [root / name for name in sorted(os.listdir(root))]
    except OSError:
        return []


def _contents(folder: Path) -> tuple[int, int]:
    """Return the number of entries of a folder, and the bytes of its files."""
    samples = size = 0
    for entry in _entries(folder):
        size += _taken(entry)
        if len(entry.name) == 2 and entry.is_dir(follow_symlinks=False):
            for file in _entries(Path(entry.path)):
                size += _taken(file)
                samples += not file.name.startswith(".")
    return samples, size


def _all_bytes(folder: Path) -> int:
    return sum(_taken(entry) for place, _, _ in os.walk(folder) for entry in _entries(Path(place)))


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        yield from entries


def _taken(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * 512
    except OSError:  # it was removed meanwhile
        return 0


def _modified(path: Path) -> float | None:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return None


def _dropped(folder: Path) -> str | None:
    path = folder / "dropped"
    if not os.path.lexists(path):
        return None
    try:
        return files.read(path, 1000).decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _time(told: object) -> float | None:
    """Return a time in seconds; None of what is none, also of a number beyond a float's range."""
    known = isinstance(told, (int, float)) and not isinstance(told, bool) and 0 <= told < 1 << 62
    return float(told) if known else None  # type: ignore[arg-type]


def _texts(value: Any) -> tuple[str, ...] | None:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    return None
