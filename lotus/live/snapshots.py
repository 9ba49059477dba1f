"""Snapshots of a run's processes from outside: their state pages and /proc.

Nothing here stops, slows or enters a process: a page is shared memory, and only files of /proc that
cost the process nothing are read (`smaps_rollup` would, so the processes measure their PSS
themselves, see `RESOURCES` in lotus/inside/trace/log/log_format.py).
"""

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lotus.common.machine.host import facts
from lotus.common.machine.process_status import ProcessStatus, process_status
from lotus.inside.trace.log.state_page import MAGIC, W_MAGIC, W_PID
from lotus.reading.logs import process_states as state_pages
from lotus.reading.logs.process_states import State


@dataclass(frozen=True)
class Seen:
    """One process that has a state page.

    kernel  None: the process does not exist (any more), or is on another machine
    here    whether it belongs to this machine and its present boot, so that /proc has it
    """

    host: str
    state: State
    kernel: ProcessStatus | None
    here: bool


@dataclass(frozen=True)
class Snapshot:
    """The processes of a run that have a state page, at `now_ns` of this machine's clock.

    Workers that have ended are not included.
    wall_ns  the same time since 1970; `host` is this machine
    alive   whether any of them, or another Python process that reported in, is alive
    shm, shm_size  bytes of /dev/shm in use by all processes, and its size; 0: not known
    """

    now_ns: int
    processes: Sequence[Seen]
    wall_ns: int = 0
    host: str = ""
    alive: bool = False
    shm: int = 0
    shm_size: int = 0


Names = Mapping[tuple[str, int], list[tuple[int, dict[int, str]]]]


class SnapshotTaker:
    """Takes snapshots of one run directory. Pages of ended workers are read once, then skipped."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / "state"
        self._ended: dict[str, Seen | None] = {}  # None: a worker
        self._boot = facts()["boot_id"]

    def take(
        self, names: Names, others: Sequence[tuple[int, int]] = (), boot: str | None = None
    ) -> Snapshot:
        """Take a snapshot. `names`: (host, pid) -> (start of its log, operation id -> name).

        `others` are (pid, a time at which it was alive) of processes that may have no page; `boot`
        is the run's boot_id. After another boot, its pids belong to other processes.
        """
        own, seen = os.uname().nodename, []
        same_boot = boot in (None, self._boot)
        for name in self._names():
            if name in self._ended:
                done = self._ended[name]
                seen += [done] if done is not None else []
                continue
            words = _words(self._folder / name)
            if words is None:
                continue
            host = name.rsplit("-", 2)[0]  # as Log.file of lotus/inside names them
            state = state_pages.decoded(words, names.get((host, words[W_PID]), []))
            on_this_host = host == own and same_boot
            kernel = process_status(state.pid, state.start_ns) if on_this_host else None
            process = Seen(host, state, kernel, on_this_host)
            if state.phase == "ended" and on_this_host and kernel is None:
                self._ended[name] = process if state.worker < 0 else None
            if state.phase != "ended" or state.worker < 0:
                seen.append(process)
        alive = any(process.kernel is not None for process in seen)
        if not alive and same_boot:
            alive = any(process_status(pid, lived) for pid, lived in others)
        shm, size = _shared_memory()
        return Snapshot(time.monotonic_ns(), seen, time.time_ns(), own, alive, shm, size)

    def _names(self) -> list[str]:
        if self._folder.is_symlink():  # out of the run
            return []
        try:
            return sorted(name for name in os.listdir(self._folder) if name.endswith(".state"))
        except OSError:
            return []


def _words(path: Path) -> memoryview | None:
    """Return the words of a page, or None if the file is not a page."""
    with contextlib.suppress(OSError):
        words = memoryview(state_pages.content(path)).cast("q")
        if words[W_MAGIC] == MAGIC:
            return words
    return None


def _shared_memory() -> tuple[int, int]:
    try:
        shm = os.statvfs("/dev/shm")
    except OSError:
        return 0, 0
    return (shm.f_blocks - shm.f_bfree) * shm.f_frsize, shm.f_blocks * shm.f_frsize
