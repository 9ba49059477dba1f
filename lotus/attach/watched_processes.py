"""The processes that `lotus attach` watches, and the readings of them."""

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lotus.attach.processes import process_discovery
from lotus.attach.processes.process_discovery import Program
from lotus.attach.processes.thread_numbers import ThreadNumbers
from lotus.attach.stacks.frame_locals import LocalsReader
from lotus.attach.threads.thread_readings import (
    ThreadReadings,
    bytes_read,
    children_of,
    cpu_of_children,
    has_ended,
    open_descriptors,
)
from lotus.common.machine import host
from lotus.recording.readings.kept_children import KeptChildren
from lotus.recording.readings.machine_load import MachineLoad
from lotus.recording.readings.process_memory import ProcessMemory

if TYPE_CHECKING:
    from lotus.attach.threads.thread_counters import ThreadCounters


@dataclass
class WatchedProcess:
    """A process that is watched, and what was read of it at first and last."""

    pid: int
    main: int
    worker: int
    rank: int
    first_cpu_ns: int = -1
    cpu_ns: int = -1
    first_read: int = -1
    read_bytes: int = -1
    descriptors: int = -1
    first_children_ns: int = -1
    children_ns: int = -1
    alive: bool = True
    end_ns: int | None = None


@dataclass(frozen=True)
class WatchEnd:
    """The end of the watch."""

    state: str  # "watched" for the whole time, "ended" with the program, or "interrupted"
    end_ns: int
    counts: dict[str, Any] | None = None  # what `ThreadCounters.finish` returned


@dataclass
class Observation:
    """The readings of the processes of some programs while they are watched."""

    programs: list[Program]
    left_over: str = ""  # what to do about workers that other programs have left
    refused: str = ""  # why no Python stacks may be read
    watched: dict[int, WatchedProcess] = field(default_factory=dict)
    readings: ThreadReadings = field(default_factory=ThreadReadings)
    machine: MachineLoad = field(init=False)  # by the cgroups of the first program
    memory: ProcessMemory = field(default_factory=ProcessMemory)
    numbers: ThreadNumbers = field(default_factory=ThreadNumbers)
    kept: KeptChildren = field(default_factory=KeptChildren)
    locals: LocalsReader | None = None  # None: stacks are refused
    counters: "ThreadCounters | None" = None  # None: not asked for
    cores: float | None = None  # that the first program may use
    root: Path = Path("/")  # of its files
    _folder: int = -1  # its descriptor
    _others: set[int] = field(default_factory=set)  # children that are no workers

    def __post_init__(self) -> None:
        main = self.programs[0].main.pid
        self.machine = MachineLoad(str(main))
        with contextlib.suppress(OSError):  # kept open: a process that has ended has no files
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            self._folder = os.open(f"/proc/{main}/root", flags)
            self.root = Path(f"/proc/self/fd/{self._folder}")

    def close(self) -> None:
        """Let go of the program's files and counters."""
        if self.counters is not None:
            self.counters.close()
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def add(self, pid: int, main: int, worker: int, rank: int) -> None:
        self.watched[pid] = WatchedProcess(pid, main, worker, rank)
        self.read(self.watched[pid])

    def read(self, process: WatchedProcess) -> None:
        """Read what grows, and whether the process is still there."""
        try:
            cpu = time.clock_gettime_ns((~process.pid << 3) | 2)
            gone = has_ended(process.pid)
        except OSError:
            gone = True
        if gone:
            # Workers are listed once a second, and observed far more often.
            process.alive = False
            process.end_ns = self.readings.last_ns(process.pid) or time.monotonic_ns()
            return
        read = bytes_read(process.pid)
        if process.first_cpu_ns < 0:
            process.first_cpu_ns, process.first_read = cpu, read
            process.first_children_ns = cpu_of_children(process.pid)
        process.cpu_ns, process.read_bytes = cpu, read
        process.children_ns = cpu_of_children(process.pid)
        process.descriptors = max(process.descriptors, open_descriptors(process.pid))

    def read_locals(self) -> None:
        """Read what torch's frames hold: the settings of the loaders."""
        if self.locals is not None:
            workers, mains = (
                [each.pid for each in self.alive if (each.worker >= 0) == of_workers]
                for of_workers in (True, False)
            )
            self.locals.look(workers, mains)

    def rescan(self) -> None:
        """Read all, and find workers that were started meanwhile."""
        for process in self.alive:
            self.read(process)
        self.numbers.look(process.pid for process in self.alive)
        self._read_cores()
        self._others.clear()  # one may have been read before it became a worker
        self.find_workers()
        for process in self.alive:
            self.kept.read((process.pid, process.worker), self.watched)

    def find_workers(self) -> None:
        """Find workers that were started since the last time, and count new threads."""
        for program in self.programs:
            main = program.main
            for pid in children_of(main.pid):
                if pid in self.watched or pid in self._others:
                    continue
                facts = process_discovery.read_process(pid)
                if facts is None or not process_discovery.is_worker_of(facts, main):
                    self._others.add(pid)
                    continue
                count = sum(each.main == main.pid for each in self.watched.values()) - 1
                self.add(pid, main.pid, count, main.rank)
        if self.counters is not None:
            self.counters.look(process.pid for process in self.alive)

    def _read_cores(self) -> None:
        """Read how many cores the processes may use; they may change it while they run."""
        cpus: set[int] = set()
        for process in self.alive:
            with contextlib.suppress(OSError):
                cpus |= os.sched_getaffinity(process.pid)
        if cpus:
            quota = host.cpu_quota(process=str(self.programs[0].main.pid))
            self.cores = min(len(cpus), quota or len(cpus))

    @property
    def alive(self) -> list[WatchedProcess]:
        """The processes that have not ended, as far as is known."""
        return [each for each in self.watched.values() if each.alive]
