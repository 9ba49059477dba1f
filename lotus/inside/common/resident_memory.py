"""Reads /proc/PID/statm: the memory of a process that is in RAM."""

from __future__ import annotations

import os

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(pid: int | str, proc: str = "/proc") -> int:
    """Return the bytes of a process that are in RAM; raises as `resident_and_shared_bytes`."""
    return resident_and_shared_bytes(pid, proc)[0]


def resident_and_shared_bytes(pid: int | str, proc: str = "/proc") -> tuple[int, int]:
    """Return the bytes of a process in RAM, and those of them of files or shared memory.

    `pid` may be "self". Raises OSError where the process is gone or the file cannot be read, and
    ValueError where the text is incomplete.
    """
    with open(f"{proc}/{pid}/statm", "rb", buffering=0) as file:
        _, resident, shared = file.read(1024).split(None, 3)[:3]
    return int(resident) * _PAGE_BYTES, int(shared) * _PAGE_BYTES
