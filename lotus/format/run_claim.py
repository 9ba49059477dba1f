"""Whose a run directory is: a file that lotus makes there first, and never touches again.

That it can be made says that nobody else began a run there. When it was made is known to the
kernel only: a copy of it has another number and another time, whatever it says, so that a run which
was copied here is told from one that was recorded here.
"""

import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lotus.common import files
from lotus.common.process_status import process_status
from lotus.inside.common.process_identity import boot_id

NAME = ".made"


def take(directory: Path) -> None:
    """Make the file. Raises FileExistsError where somebody did, or another OSError."""
    claim = {"pid": os.getpid(), "time_ns": time.monotonic_ns(), "boot_id": boot_id()}
    with files.open_new(directory / NAME) as file:
        file.write(files.json_text(claim, indent=None).encode())


def holder(directory: Path) -> int | None:
    """The process of this machine that began to record there, while it lives; else None."""
    try:
        claim = files.read_json(directory / NAME, 4096)
        pid, lived, boot = (claim.get(name) for name in ("pid", "time_ns", "boot_id"))
    except (OSError, ValueError, AttributeError):
        return None
    if type(pid) is not int or type(lived) is not int or boot != boot_id():
        return None
    return pid if pid > 0 and process_status(pid, lived) is not None else None


def identity(directory: Path) -> dict[str, int] | None:
    """What run.json keeps of the file: its inode, and when the kernel made it; None: no file."""
    status = _status(directory)
    return None if status is None else {"inode": status.st_ino, "ctime_ns": status.st_ctime_ns}


def is_ours(directory: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether this user recorded the run, there where it lies now."""
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
