"""Translates the thread ids of containers, which py-spy reports, to those of the host."""

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from native_map.recording.py_spy import PySpyStacks

_NUMBERS = re.compile(rb"^NSpid:\t([\d\t]+)$", re.MULTILINE)


class ThreadNumbers:
    """Host ids of the threads of processes in PID namespaces below this one."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._ours: dict[int, dict[int, int]] = {}  # by process, from the inner number

    def look(self, pids: Iterable[int]) -> None:
        """Read the ids of all threads that these processes have now."""
        for pid in pids:
            if len(_read(self._proc / str(pid))) < 2:
                continue
            known = self._ours.setdefault(pid, {})
            with contextlib.suppress(OSError):
                for thread in os.listdir(self._proc / str(pid) / "task"):
                    numbers = _read(self._proc / str(pid) / "task" / thread)
                    if len(numbers) > 1:
                        known[numbers[-1]] = numbers[0]

    def inner(self, pid: int) -> int:
        """Return the id that a process has in its own namespace."""
        known = {ours: inner for inner, ours in self._ours.get(pid, {}).items()}
        return known.get(pid, pid)

    def translated(self, stacks: "PySpyStacks") -> "PySpyStacks":
        """Return the stacks with host ids."""
        if not self._ours:
            return stacks
        samples, threads = (self._renamed(table) for table in (stacks.samples, stacks.threads))
        return replace(stacks, samples=samples, threads=threads)

    def _renamed(self, table: "pd.DataFrame") -> "pd.DataFrame":
        rows = zip(table["pid"].tolist(), table["tid"].tolist(), strict=True)
        ours = [self._ours.get(pid, {}).get(tid, tid) for pid, tid in rows]
        return table.assign(tid=ours).astype({"tid": "int64"})


def process_of(inner: int, proc: Path = Path("/proc")) -> int | None:
    """Return the only process with the id `inner` in a container; None if none or several."""
    found = []
    for name in os.listdir(proc):
        numbers = _read(proc / name) if name.isdecimal() else []
        if len(numbers) > 1 and numbers[-1] == inner:
            found.append(numbers[0])
    return found[0] if len(found) == 1 else None


def _read(folder: Path) -> list[int]:
    """Return the ids of a process or thread, the host's first; [] if they cannot be read."""
    try:
        match = _NUMBERS.search((folder / "status").read_bytes())
    except OSError:
        return []
    return [int(number) for number in match[1].split()] if match else []
