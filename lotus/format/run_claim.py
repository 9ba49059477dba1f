"""The owner of a run directory: a file that lotus creates there first and never changes.

If it can be created, no other process has begun a run there. Only the kernel sets its inode number
and creation time, and a copy has others, so they distinguish a run that was recorded here from one
that was copied here.
"""

import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lotus.common.machine.process_status import process_status
from lotus.common.storage import files
from lotus.inside.common.process_identity import boot_id

NAME = ".made"


def take(directory: Path) -> None:
    """Create the file. Raises FileExistsError if it exists, or another OSError."""
    claim = {"pid": os.getpid(), "time_ns": time.monotonic_ns(), "boot_id": boot_id()}
    with files.open_new(directory / NAME) as file:
        file.write(files.json_text(claim, indent=None).encode())


def holder(directory: Path) -> int | None:
    """Return the pid of the live process of this machine that began to record there, or None."""
    try:
        claim = files.read_json(directory / NAME, 4096)
        pid, lived, boot = (claim.get(name) for name in ("pid", "time_ns", "boot_id"))
    except (OSError, ValueError, AttributeError):
        return None
    if type(pid) is not int or type(lived) is not int or boot != boot_id():
        return None
    return pid if pid > 0 and process_status(pid, lived) is not None else None


def identity(directory: Path) -> dict[str, int] | None:
    """Return what run.json keeps of the file, its inode and creation time; None without a file."""
    status = _status(directory)
    return None if status is None else {"inode": status.st_ino, "ctime_ns": status.st_ctime_ns}


def is_ours(directory: Path, manifest: Mapping[str, Any]) -> bool:
    """Return True if this user recorded the run in its present place."""
    status = _status(directory)
    if status is None or status.st_uid != os.geteuid():
        return False
    return manifest.get("made") == identity(directory)


def _status(directory: Path) -> os.stat_result | None:
    try:
        status = os.lstat(directory / NAME)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None
