"""`lotus attach`: watches running processes for some seconds and keeps the observations."""

import contextlib
import os
import time
from pathlib import Path

from lotus.attach import orphaned_workers
from lotus.attach.attach_recorders import AttachRecorders
from lotus.attach.processes import permissions, process_discovery, starting_program
from lotus.attach.processes.process_discovery import Program
from lotus.attach.stacks import stack_recorder
from lotus.attach.stacks.frame_locals import LocalsReader
from lotus.attach.stacks.stack_recorder import StackRecorder
from lotus.attach.watched_processes import Observation, WatchEnd
from lotus.common.errors import LotusError
from lotus.common.terminal.progress import Advance
from lotus.format import manifest, run_claim, run_directory

_RESCAN_S = 1.0
_FIND_S = 0.2  # between searches for new workers: those of short epochs live for less than a second
_LONGEST_S = 600


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
    counting = None
    if perf:
        # Finding out what can be counted takes a moment, in which workers of short epochs may end.
        from lotus.attach.threads import perf_recorder, thread_counters
        from lotus.recording import measurement_plan

        counting = measurement_plan.plan("auto,software")
    path, problem = stack_recorder.find()
    try:
        programs, left = _programs(pid)
    except LotusError:
        if problem and pid is None:  # before anybody looks for a PID
            raise LotusError(problem) from None
        raise
    refused = permissions.may_not_look(programs[0].main.pid)
    if problem and not refused:
        raise LotusError(problem)
    command = [*programs[0].main.command]
    existed = output is not None and output.exists()
    directory = _made(output, force, command)
    begun = manifest.begin(command, manifest.TraceSettings(level="batch"), {})
    session = Observation(programs, left_over=left, refused=refused)
    recorders = AttachRecorders()
    try:
        if counting is not None:
            session.counters = thread_counters.ThreadCounters(counting)
        if not refused:
            session.locals = LocalsReader(path)
            _start_stacks(recorders, path, programs, seconds, directory)
        if perf:
            pids = [each.pid for program in programs for each in (program.main, *program.workers)]
            recorders.functions = perf_recorder.PerfRecorder(pids, seconds, directory / "perf.data")
        state = _watch(session, recorders, min(seconds, _LONGEST_S), advance)
        end_ns = time.monotonic_ns()
        counts = None if session.counters is None else session.counters.finish()
        recorders.stop()
        from lotus.attach.observation_writer import keep  # pandas: not before the first sample

        keep(directory, session, recorders, begun, WatchEnd(state, end_ns, counts))
    except OSError as error:
        if process_discovery.read_process(programs[0].main.pid) is None:
            raise process_discovery.ended_early(programs[0].main.pid) from None
        watched = ", ".join(str(program.main.pid) for program in programs)
        raise LotusError(f"cannot watch {watched}: {error.strerror}; see: lotus doctor") from None
    finally:
        session.close()
        if session.locals is not None:
            session.locals.kill()
        recorders.kill()
        if not existed and not (directory / run_directory.ATTACHED).exists():
            _remove_empty(directory)
    return directory


def _programs(pid: int | None) -> tuple[list[Program], str]:
    """Return the programs to watch, and a sentence about workers that others left ("": none).

    Raises LotusError, one line with the next step.
    """
    processes = process_discovery.read_processes()
    orphans = {facts.pid: facts for facts in orphaned_workers.orphaned_workers(processes, pid)}
    left = orphaned_workers.sentence(orphans)
    if pid in orphans:
        raise LotusError(f"process {pid} trains nothing. {left}")
    if pid is not None:
        return starting_program.programs_of(pid, processes), left
    others = {each: facts for each, facts in processes.items() if each not in orphans}
    try:
        return process_discovery.only_program(others), left
    except LotusError as error:
        raise LotusError(f"{error}. {left}" if left else str(error)) from None


def _made(output: Path | None, force: bool, command: list[str]) -> Path:
    """Make the run directory. Raises LotusError."""
    if output is None:
        return run_directory.make_default(command or ["attached"])
    run_directory.make(output, force)
    return output


def _start_stacks(
    recorders: AttachRecorders,
    path: str,
    programs: list[Program],
    seconds: float,
    directory: Path,
) -> None:
    """Start a py-spy for each program."""
    rate = stack_recorder.rate_of(sum(1 + len(each.workers) for each in programs))
    for number, program in enumerate(programs):
        file = directory / run_directory.STACKS
        file = file.with_name(f"{number}-{file.name}") if number else file
        recorders.stacks.append(StackRecorder(path, program.main.pid, rate, seconds, file))


def _remove_empty(directory: Path) -> None:
    """Remove the directory if nothing was written into it."""
    with contextlib.suppress(OSError):
        (directory / run_claim.NAME).unlink(missing_ok=True)
        directory.rmdir()


def _watch(
    session: Observation, recorders: AttachRecorders, seconds: float, advance: Advance
) -> str:
    """Watch until the time is over or the program has ended; return its state."""
    for program in session.programs:
        main = program.main
        session.add(main.pid, main.pid, -1, main.rank)
        for worker, facts in enumerate(program.workers):
            session.add(facts.pid, main.pid, worker, main.rank)
    session.rescan()
    mains = [program.main.pid for program in session.programs]
    session.machine.read((each.pid for each in session.alive), now=True)
    begun, state = time.monotonic(), "watched"
    scanned = found = begun
    try:
        while (passed := time.monotonic() - begun) < seconds or (
            passed < seconds + 1.0 and recorders.watch_stacks()
        ):
            session.readings.look(process.pid for process in session.alive)
            session.machine.read(each.pid for each in session.alive)
            session.memory.read((each.pid, each.worker) for each in session.alive)
            recorders.watch_stacks()
            if time.monotonic() - scanned > _RESCAN_S:
                session.rescan()
                session.read_locals()
                scanned = found = time.monotonic()
                advance(round(passed * 10), round(seconds * 10))
            elif time.monotonic() - found > _FIND_S:
                session.find_workers()
                recorders.watch_functions([each.pid for each in session.alive], mains)
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
