"""Folders for the samples that `lotus plan` caches to measure them, beside the caches of programs.

Each is locked while its process lives, so that what a killed one left is known and can be removed.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX, _NEW = ".plan-", ".new-plan-"
_LOCK = "lock"


@contextlib.contextmanager
def made(root: Path) -> Iterator[Path]:
    """Make a folder below `root`, and remove it at the end with what is in it.

    First what killed processes left there is removed. Raises OSError.
    """
    is_new = not root.exists()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for child in sorted(root.iterdir()):
        if is_abandoned(child):
            shutil.rmtree(child, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=_NEW, dir=root))
    lock = -1
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):  # a file system without locks: nobody takes it either
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # It gets its name once it is locked: before, it would look abandoned.
        folder = folder.rename(root / (_PREFIX + folder.name.removeprefix(_NEW)))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock >= 0:
            os.close(lock)
        if is_new:
            with contextlib.suppress(OSError):
                root.rmdir()


def is_abandoned(folder: Path) -> bool:
    """Return whether a folder is one of the user's that a killed process left."""
    try:
        status = os.lstat(folder)
        if not folder.name.startswith(_PREFIX) or not stat.S_ISDIR(status.st_mode):
            return False
        if status.st_uid != os.getuid():
            return False
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return os.path.lexists(folder)  # it was killed while it removed the folder
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(lock)
