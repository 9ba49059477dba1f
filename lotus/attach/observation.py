"""`lotus attach`: watches running processes for some seconds and keeps what it saw."""

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lotus.attach import attached_run, function_file, process_discovery, stack_recorder
from lotus.attach.frame_locals import LocalsReader, names_of
from lotus.attach.perf_recorder import PerfRecorder
from lotus.attach.process_discovery import Program
from lotus.attach.source_lines import SourceLines
from lotus.attach.stack_recorder import StackRecorder
from lotus.attach.stack_table import StackTable
from lotus.attach.thread_counters import ThreadCounters
from lotus.attach.thread_numbers import ThreadNumbers
from lotus.attach.thread_readings import (
    ThreadReadings,
    bytes_read,
    children_of,
    cpu_of_children,
    open_descriptors,
)
from lotus.common import host, redaction
from lotus.common.errors import LotusError
from lotus.common.version import __version__
from lotus.format import manifest, run_directory
from lotus.inside.trace.log.log_format import SCHEMA as LOG_SCHEMA
from lotus.recording import measurement_plan
from lotus.recording.kept_children import KeptChildren
from lotus.recording.machine_load import MachineLoad
from lotus.recording.process_memory import ProcessMemory

_RESCAN_S = 1.0
_FIND_S = 0.2  # between searches for new workers: those of short epochs live for less than a second
_SAMPLES_PER_S = 400  # of all processes: their stacks are read to the file and from it
_LEAST_RATE, _MOST_RATE = 10, 50
_LONGEST_S = 600

Advance = Callable[[int, int], None]


@dataclass
class _Watched:
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


@dataclass
class _Observation:
    programs: list[Program]
    watched: dict[int, _Watched] = field(default_factory=dict)
    readings: ThreadReadings = field(default_factory=ThreadReadings)
    machine: MachineLoad = field(default_factory=MachineLoad)
    memory: ProcessMemory = field(default_factory=ProcessMemory)
    numbers: ThreadNumbers = field(default_factory=ThreadNumbers)
    kept: KeptChildren = field(default_factory=KeptChildren)
    locals: LocalsReader | None = None  # None: stacks are refused
    counters: ThreadCounters | None = None  # None: not asked for
    cores: float | None = None  # that the first program may use
    root: Path = Path("/")  # of its files
    _folder: int = -1  # its descriptor
    _others: set[int] = field(default_factory=set)  # children that are no workers

    def __post_init__(self) -> None:
        main = self.programs[0].main.pid
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
        self.watched[pid] = _Watched(pid, main, worker, rank)
        self.read(self.watched[pid])

    def read(self, process: _Watched) -> None:
        """Read what grows, and whether the process is still there."""
        try:
            cpu = time.clock_gettime_ns((~process.pid << 3) | 2)
            facts = process_discovery.read_process(process.pid)
            gone = facts is None or facts.state in "ZX"
        except OSError:
            gone = True
        if gone:
            # Workers are read once a second, and looked at far more often.
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
        self._others.clear()  # one may have been read before it was what it is
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
        """How many cores the processes may use; they may change it while they run."""
        cpus: set[int] = set()
        for process in self.alive:
            with contextlib.suppress(OSError):
                cpus |= os.sched_getaffinity(process.pid)
        if cpus:
            quota = host.cpu_quota(process=str(self.programs[0].main.pid))
            self.cores = min(len(cpus), quota or len(cpus))

    @property
    def alive(self) -> list[_Watched]:
        return [each for each in self.watched.values() if each.alive]


def attach(
    pid: int | None,
    seconds: float = 20.0,
    output: Path | None = None,
    force: bool = False,
    advance: Advance = lambda done, whole: None,
    perf: bool = False,
) -> Path:
    """Watch a process and its workers for some seconds; returns the run directory.

    `pid` None: the only program with torch. `perf`: sample C and C++ functions and count events of
    the threads too. Raises LotusError, one line with the next step.
    """
    if pid == os.getpid():
        raise LotusError("that is lotus itself; name the training's process, or none")
    # It takes a moment to learn what can be counted, in which workers of short epochs may end.
    counting = measurement_plan.plan("auto,software") if perf else None
    programs = (
        process_discovery.only_program() if pid is None else process_discovery.programs_of(pid)
    )
    path, problem = stack_recorder.find()
    refused = may_not_look(programs[0].main.pid)
    if problem and not refused:
        raise LotusError(problem)
    command = [*programs[0].main.command]
    if output is None:
        directory = run_directory.make_default(command or ["attached"])
    else:
        run_directory.make(output, force)
        directory = output
    begun = manifest.begin(command, manifest.TraceSettings(level="batch"), {})
    session = _Observation(programs)
    recorders: list[StackRecorder] = []
    functions: PerfRecorder | None = None
    try:
        if counting is not None:
            session.counters = ThreadCounters(counting)
        if not refused:
            session.locals = LocalsReader(path)
            total = sum(1 + len(program.workers) for program in programs)
            rate = max(_LEAST_RATE, min(_MOST_RATE, _SAMPLES_PER_S // total))
            for number, program in enumerate(programs):
                file = directory / run_directory.STACKS
                file = file.with_name(f"{number}-{file.name}") if number else file
                recorders.append(StackRecorder(path, program.main.pid, rate, seconds, file))
        if perf:
            pids = [each.pid for program in programs for each in (program.main, *program.workers)]
            functions = PerfRecorder(pids, seconds, directory / "perf.data")
        state = _watch(session, recorders, min(seconds, _LONGEST_S), advance)
        _keep(directory, session, recorders, functions, begun, state, refused)
    except OSError as error:
        raise LotusError(f"cannot watch it: {error.strerror}; see: lotus doctor") from None
    finally:
        session.close()
        if session.locals is not None:
            session.locals.kill()
        for recorder in recorders:
            recorder.kill()
        if functions is not None:
            functions.kill()
    return directory


def may_not_look(pid: int) -> str:
    """Why the kernel lets us read neither stacks nor system calls of a process; "" where it does.

    The reason holds the command that would be allowed to.
    """
    try:
        with open(f"/proc/{pid}/syscall", "rb") as file:
            file.read(1)
        return ""
    except PermissionError:
        pass
    except OSError:
        return ""
    if os.geteuid() == 0:
        return (
            "The kernel refuses stacks and system calls even to root here; start the container "
            "with docker run --cap-add SYS_PTRACE, or use kubectl debug --profile=sysadmin"
        )
    lotus = os.path.join(os.path.dirname(sys.executable), "lotus")
    words = [lotus] if os.path.exists(lotus) else [sys.executable, "-m", "lotus"]
    return (
        "The kernel refuses stacks and system calls to this user; for more: "
        f"{shlex.join(['sudo', *words, 'attach', str(pid)])}, in a container docker run --cap-add "
        "SYS_PTRACE, in a cluster kubectl debug"
    )


def _watch(
    session: _Observation, recorders: list[StackRecorder], seconds: float, advance: Advance
) -> str:
    """Look until the time is over or the program has ended; returns how it went."""
    for program in session.programs:
        main = program.main
        session.add(main.pid, main.pid, -1, main.rank)
        for worker, facts in enumerate(program.workers):
            session.add(facts.pid, main.pid, worker, main.rank)
    session.rescan()
    session.machine.read(now=True)
    begun, state = time.monotonic(), "watched"
    scanned = found = begun
    try:
        while (passed := time.monotonic() - begun) < seconds or any(
            recorder.watch() and passed < seconds + 1.0 for recorder in recorders
        ):
            session.readings.look(process.pid for process in session.alive)
            session.machine.read()
            session.memory.read((each.pid, each.worker) for each in session.alive)
            for recorder in recorders:
                recorder.watch()
            if time.monotonic() - scanned > _RESCAN_S:
                session.rescan()
                session.read_locals()
                scanned = found = time.monotonic()
                advance(round(passed * 10), round(seconds * 10))
            elif time.monotonic() - found > _FIND_S:
                session.find_workers()
                found = time.monotonic()
            if not any(each.alive for each in session.watched.values() if each.worker < 0):
                state = "ended"
                break
            time.sleep(session.readings.period_s)
    except KeyboardInterrupt:
        state = "interrupted"
    session.machine.read(now=True)
    session.rescan()
    return state


def _keep(
    directory: Path,
    session: _Observation,
    recorders: list[StackRecorder],
    functions: PerfRecorder | None,
    begun: dict[str, Any],
    state: str,
    refused: str,
) -> None:
    end_ns = time.monotonic_ns()
    readings, counters = session.readings, session.counters
    counted = None if counters is None else counters.finish()
    sentences = refused, readings.problem, readings.stopped.sentence
    missing = [text for text in sentences if text]
    settings, cost_ns = session.locals, session.readings.cost_ns
    if settings is not None:
        settings.finish()
        cost_ns += settings.cpu_ns
    if counters is not None:
        cost_ns += counters.cost_ns
    if functions is not None:
        functions.stop()
    table, facts = _stacks(session, recorders, missing)
    if settings is not None:
        table.rename(names_of(settings.classes))
    table.leave_out_after(end_ns)
    table.leave_out_stopped(session.readings.stopped, facts["bound_ns"])
    main = session.programs[0].main
    sampled = None if functions is None else functions.functions()
    if functions is not None and functions.problem:
        missing.append(f"No C and C++ functions: {functions.problem}")
    if state == "ended" and not len(table.samples) and not session.readings.rows:
        raise LotusError(
            f"process {main.pid} ended before anything was seen of it; start it again with: "
            "lotus trace -- COMMAND"
        )
    facts |= {
        "lotus": __version__,
        "state": state,
        "host": os.uname().nodename,
        "command": redaction.command(list(main.command)),
        "pid": main.pid,
        "start_ns": begun["start_ns"],
        "end_ns": end_ns,
        "torn": table.torn,
        "cost_ns": cost_ns + facts["cost_ns"],
        "cores": session.cores,
        "machine_cores": os.cpu_count(),
        "memory_bytes": begun.get("memory_bytes") or 0,
    }
    attached_run.write(
        directory,
        facts,
        [_row(each, session, table) for each in session.watched.values()],
        table.sites,
        table.labels,
        table.samples,
        table.threads,
        session.readings.moving_rows,
        session.machine.rows,
        session.memory.rows,
        missing,
        [] if settings is None else settings.seen,
        counted,
    )
    if sampled is not None:
        function_file.write(directory, sampled, table.moments)
    record = {**begun, "schema": LOG_SCHEMA}
    manifest.write(directory, manifest.end(record, None, None, end_ns))


def _stacks(
    session: _Observation, recorders: list[StackRecorder], missing: list[str]
) -> tuple[StackTable, dict[str, Any]]:
    """Return the stacks of all recorders, and how many there are and what they cost.

    It adds to `missing` why there are none.
    """
    ends = {
        session.numbers.inner(each.pid): each.end_ns
        for each in session.watched.values()
        if each.end_ns is not None
    }
    facts: dict[str, Any] = {"stacks": 0, "errors": 0, "bound_ns": 0, "cost_ns": 0}
    table = StackTable(SourceLines(session.root), set(session.watched))
    mains = {program.main.pid for program in session.programs}
    for recorder in recorders:
        stacks, noted = recorder.stacks(ends)
        for name in ("stacks", "errors"):
            facts[name] += noted[name]
        facts["cost_ns"] += noted["cpu_ns"]
        if noted["problem"]:
            missing.append(f"no Python stacks: {noted['problem']}")
        if stacks is not None:
            table.add(session.numbers.translated(stacks), mains)
            facts["bound_ns"] = max(facts["bound_ns"], stacks.bound_ns)
    table.finish()
    return table, facts


def _row(process: _Watched, session: _Observation, table: StackTable) -> dict[str, int]:
    used = process.cpu_ns - process.first_cpu_ns if process.first_cpu_ns >= 0 else -1
    known = process.first_read >= 0 and process.read_bytes >= 0
    return {
        "pid": process.pid,
        "main": process.main,
        "worker": process.worker,
        "rank": process.rank,
        "threads": table.own_threads.get(process.pid, -1),
        "cpu_ns": used,
        "read_bytes": process.read_bytes - process.first_read if known else -1,
        "children_ns": max(process.children_ns - process.first_children_ns, 0),
        "kept_ns": session.kept.cpu_ns((process.pid, process.worker), session.watched),
        "descriptors": process.descriptors,
        "descriptor_limit": -1,
        "ended": int(not process.alive),
    }
