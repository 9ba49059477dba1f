"""Folders for the samples that `lotus plan` caches to measure them, beside the caches of programs.

Each is locked while its process lives, so that what a killed one left is known and can be removed.
A lock may only be seen on the machine that has it, so the name says which boot of which machine
that is.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lotus.inside.common.process_identity import boot_id

_NEW = ".new-plan-"
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
        # It gets its name once it is locked: before that, and where there are no locks, it would
        # look abandoned.
        if (prefix := _prefix()) and _locked(lock):
            folder = folder.rename(root / (prefix + folder.name.removeprefix(_NEW)))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock >= 0:
            os.close(lock)
        if is_new:
            with contextlib.suppress(OSError):
                root.rmdir()


def is_abandoned(folder: Path) -> bool:
    """Return whether a folder is one of the user's that a process left that was killed here.

    It is not where the machine was started anew since, or another one has it.
    """
    prefix = _prefix()
    if not prefix or not folder.name.startswith(prefix):
        return False
    try:
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            return False
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return os.path.lexists(folder)  # it was killed while it removed the folder
    except OSError:
        return False
    try:
        return _locked(lock)
    finally:
        os.close(lock)


def _prefix() -> str:
    """Return how names of locked folders begin; "" where the boot is not known."""
    boot = boot_id()
    return f".plan-{boot}-" if boot else ""


def _locked(lock: int) -> bool:
    """Lock a file for this process; return whether that succeeded."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
