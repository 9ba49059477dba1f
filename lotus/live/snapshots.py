"""What can be seen of a run's processes from outside: their state pages and /proc, at one moment.

Nothing here stops, slows or enters a process: a page is shared memory, and of /proc only files are
read that cost the process nothing (`smaps_rollup`, which would, is not: the processes measure
their PSS themselves, see `RESOURCES` in lotus/inside/layout.py).
"""

import contextlib
import os
import resource
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lotus import state as state_pages
from lotus.host import facts
from lotus.inside.state import MAGIC, W_MAGIC, W_PID
from lotus.state import State

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
# A page is made after its process started, which the kernel tells to a tick.
_SLACK_NS = 5 * _TICK_NS
# Names of system calls in which a process waits, where the kernel does not name the function.
_CALLS = {
    "x86_64": {
        "0": "read", "1": "write", "7": "poll", "23": "select", "35": "nanosleep", "45": "recvfrom",
        "47": "recvmsg", "61": "wait4", "73": "flock", "202": "futex", "230": "clock_nanosleep",
        "232": "epoll_wait", "270": "pselect6", "271": "ppoll", "281": "epoll_pwait",
    },
    "aarch64": {
        "22": "epoll_pwait", "32": "flock", "63": "read", "64": "write", "72": "pselect6",
        "73": "ppoll", "98": "futex", "101": "nanosleep", "115": "clock_nanosleep",
        "207": "recvfrom", "212": "recvmsg", "260": "wait4",
    },
}  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """What /proc tells of a process.

    status  its main thread's: R running, S sleeping, D waiting for storage, T stopped, t held by a
            debugger, Z dead
    asleep  the kernel's function or system call in which the main thread waits; "" for none known
    cpu_ns  CPU time of all threads since the start
    rss, shared  resident bytes; those of them that are of files or shared memory
    """

    status: str
    start_ns: int
    cpu_ns: int
    asleep: str = ""
    rss: int = 0
    shared: int = 0


@dataclass(frozen=True)
class Seen:
    """One process that has a state page.

    kernel  None: there is no such process (any more), or it is on another machine
    here    whether it is of this machine and its present boot: else /proc does not tell of it
    """

    host: str
    state: State
    kernel: Kernel | None
    here: bool


@dataclass(frozen=True)
class Snapshot:
    """The processes of a run that have a state page, at `now_ns` of this machine's clock.

    Workers that have ended are not among them.
    wall_ns  the same moment since 1970; `host` is this machine
    alive   whether one of them lives, or another Python process that reported in
    shm, shm_size  bytes used in /dev/shm by anybody, and its size; 0: not known
    """

    now_ns: int
    processes: Sequence[Seen]
    wall_ns: int = 0
    host: str = ""
    alive: bool = False
    shm: int = 0
    shm_size: int = 0


Names = Mapping[tuple[str, int], list[tuple[int, dict[int, str]]]]


class Looks:
    """Looks at one run directory. Pages of workers that ended are read once and left out."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory / "state"
        self._ended: dict[str, Seen | None] = {}  # None: a worker
        self._boot = facts()["boot_id"]

    def take(
        self, names: Names, others: Sequence[tuple[int, int]] = (), boot: str | None = None
    ) -> Snapshot:
        """Look once. `names`: (host, pid) -> (start of its log, operation id -> name).

        `others` are (pid, a time at which it lived) of processes that may have no page; `boot` is
        the run's boot_id. After another boot its numbers are those of others.
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
            here = host == own and same_boot
            kernel = kernel_of(state.pid, state.start_ns) if here else None
            one = Seen(host, state, kernel, here)
            if state.phase == "ended" and here and kernel is None:
                self._ended[name] = one if state.worker < 0 else None
            if state.phase != "ended" or state.worker < 0:
                seen.append(one)
        alive = any(one.kernel is not None for one in seen)
        if not alive and same_boot:
            alive = any(kernel_of(pid, lived) for pid, lived in others)
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
    """The words of a page; None for what is none."""
    with contextlib.suppress(OSError):
        words = memoryview(state_pages.content(path)).cast("q")
        if words[W_MAGIC] == MAGIC:
            return words
    return None


def kernel_of(pid: int, lived_ns: int) -> Kernel | None:
    """What /proc tells of the process that had this pid at `lived_ns`; None where it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rsplit(b")", 1)[1].split()
        status, ticks = fields[0].decode("ascii", "replace"), int(fields[19])
        cpu_ns = (int(fields[11]) + int(fields[12])) * _TICK_NS
        with open(f"/proc/{pid}/statm", "rb") as file:
            sizes = [int(word) for word in file.read().split()[1:3]]
    except (OSError, ValueError, IndexError):
        return None
    asleep = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns()
    start_ns = ticks * _TICK_NS - asleep
    if start_ns > lived_ns + _SLACK_NS or status in ("Z", "X"):
        return None  # the number was given to another process
    size = resource.getpagesize()
    where = _where(pid) if status in ("S", "D") else ""
    return Kernel(status, start_ns, cpu_ns, where, sizes[0] * size, sizes[1] * size)


def _where(pid: int) -> str:
    """Where the main thread of a process sleeps; "" where the kernel does not tell us."""
    for name in ("wchan", "syscall"):
        try:
            with open(f"/proc/{pid}/{name}", encoding="ascii", errors="replace") as file:
                text = file.read(200).strip()
        except OSError:
            continue
        if name == "wchan" and text not in ("", "0"):
            return text.partition(".")[0]  # without what the compiler added
        if name == "syscall" and text[:1].isdigit():
            number = text.split()[0]
            return _CALLS.get(os.uname().machine, {}).get(number, f"system call {number}")
    return ""


def _shared_memory() -> tuple[int, int]:
    try:
        shm = os.statvfs("/dev/shm")
    except OSError:
        return 0, 0
    return (shm.f_blocks - shm.f_bfree) * shm.f_frsize, shm.f_blocks * shm.f_frsize
