"""Finds py-spy, and parses its messages."""

import os
import re
import shlex
import shutil
import sys

INSTALL = "pip install py-spy"

# Why there are no stacks, as stored in a run, and what would change it.
ABSENT, FORBIDDEN = "absent", "forbidden"
FIXES = {
    ABSENT: INSTALL,  # a run may be of another machine
    FORBIDDEN: "sudo sysctl kernel.yama.ptrace_scope=0, or start a container with --cap-add "
    "SYS_PTRACE",
}
MISSING = f"py-spy is not installed; {FIXES[ABSENT]}"
MAY_NOT_LOOK = f"py-spy may not look into the program; {FIXES[FORBIDDEN]}"
_DENIED = re.compile(r"permission denied|not permitted", re.IGNORECASE)
_WRITTEN = re.compile(r"Wrote chrome trace.*Samples: (\d+) Errors: (\d+)")
_LONGEST = 200  # characters of a complaint


def install() -> str:
    """Return the command that installs py-spy on this machine, where lotus finds it."""
    beside = os.path.dirname(sys.executable)
    active = os.path.dirname(shutil.which("python") or "") == beside
    return INSTALL if active else f"{shlex.quote(sys.executable)} -m {INSTALL}"


def find(name: str = "py-spy") -> str | None:
    """Return the path of py-spy, or None if it is not installed.

    One beside the Python that runs lotus comes first: its environment may not be activated.
    """
    beside = os.path.dirname(sys.executable)
    return shutil.which(name, path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))


def written(text: str) -> tuple[int, int] | None:
    """Return (samples, errors) of a recording, or None if py-spy did not write one."""
    match = _WRITTEN.search(text)
    return None if match is None else (int(match[1]), int(match[2]))


def is_denied(text: str) -> bool:
    """Return True if py-spy complains that it may not look into the program."""
    return bool(_DENIED.search(text))


def complaint(text: str) -> str:
    """Return the lines that say why py-spy failed, at most 200 characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    chosen = [line for line in lines if line.startswith(("Error:", "Reason:"))] or lines[:1]
    return " ".join(chosen)[:_LONGEST] or "py-spy ended and printed nothing"
