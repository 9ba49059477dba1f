"""Programs to attach to, and `lotus attach`."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.integration.launched import LOTUS

PROGRAMS = Path(__file__).parents[1] / "programs"
OWN = Path(__file__).parents[2] / "diagnosis" / "own"


@contextlib.contextmanager
def running(*command: str | Path, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A program and what it starts, until the end of the block."""
    words = [*map(str, command)]
    program = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True, **options)
    try:
        yield program
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def attach(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LOTUS, "attach", *words], capture_output=True, text=True, **options)


def sleeping(samples: int) -> list[str | Path]:
    """A program whose samples sleep, with two workers."""
    return [sys.executable, OWN / "sleeping.py", "--samples", str(samples)]


def is_py_spy(pid: str) -> bool:
    try:
        return b"py-spy" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
