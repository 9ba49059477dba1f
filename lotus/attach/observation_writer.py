"""Writes what `lotus attach` saw into a run directory."""

import os
from pathlib import Path
from typing import Any

from lotus.attach import orphaned_workers
from lotus.attach.attach_recorders import AttachRecorders
from lotus.attach.files import attached_run, function_file
from lotus.attach.processes import process_discovery
from lotus.attach.stacks.frame_locals import names_of
from lotus.attach.stacks.source_lines import SourceLines
from lotus.attach.stacks.stack_recorder import StackRecorder
from lotus.attach.stacks.stack_table import StackTable
from lotus.attach.watched_processes import Observation, WatchedProcess, WatchEnd
from lotus.common.text import redaction
from lotus.common.version import __version__
from lotus.format import manifest
from lotus.inside.trace.log.log_format import SCHEMA as LOG_SCHEMA


def keep(
    directory: Path,
    session: Observation,
    recorders: AttachRecorders,
    begun: dict[str, Any],
    end: WatchEnd,
) -> None:
    """Write what was seen until the end into the run directory; the recorders have stopped.

    Raises LotusError where that is nothing.
    """
    missing = _sentences(session, end)
    settings = session.locals
    if settings is not None:
        settings.finish()
    table, facts = _stacks(session, recorders.stacks, missing)
    if settings is not None:
        table.rename(names_of(settings.classes))
    table.leave_out_after(end.end_ns)
    table.leave_out_stopped(session.readings.stopped, facts["bound_ns"])
    main = session.programs[0].main
    functions = recorders.functions
    sampled = None if functions is None else functions.functions()
    if functions is not None and functions.problem:
        missing.append(f"No C and C++ functions: {functions.problem}")
    if end.state == "ended" and not len(table.samples) and not session.readings.rows:
        raise process_discovery.ended_early(main.pid)
    facts |= {
        "lotus": __version__,
        "state": end.state,
        "host": os.uname().nodename,
        "command": redaction.command(list(main.command)),
        "pid": main.pid,
        "start_ns": begun["start_ns"],
        "end_ns": end.end_ns,
        "torn": table.torn,
        "cost_ns": _cost_ns(session) + facts["cost_ns"],
        "cores": session.cores,
        "machine_cores": os.cpu_count(),
        "memory_bytes": begun.get("memory_bytes") or 0,
    }
    record = attached_run.AttachRecord(
        facts=facts,
        processes=[_row(each, session, table) for each in session.watched.values()],
        sites=table.sites,
        labels=table.labels,
        samples=table.samples,
        threads=table.threads,
        looks=session.readings.moving_rows,
        machine=session.machine.rows,
        memory=session.memory.rows,
        missing=missing,
        settings=[] if settings is None else settings.seen,
        counters=end.counts,
    )
    attached_run.write(directory, record)
    if sampled is not None:
        function_file.write(directory, sampled, table.moments)
    ended = manifest.end({**begun, "schema": LOG_SCHEMA}, None, None, end.end_ns)
    manifest.write(directory, ended)


def _sentences(session: Observation, end: WatchEnd) -> list[str]:
    """Return sentences about what could not be seen and which workers are left over."""
    readings = session.readings
    sentences = [session.refused, readings.problem, readings.stopped.sentence, session.left_over]
    if end.state == "ended":
        workers = [each.pid for each in session.alive if each.worker >= 0]
        sentences.append(orphaned_workers.sentence(workers, just_now=True))
    return [text for text in sentences if text]


def _cost_ns(session: Observation) -> int:
    """Return the CPU time of looking, in nanoseconds, without that of the recorders."""
    cost_ns = session.readings.cost_ns
    if session.locals is not None:
        cost_ns += session.locals.cpu_ns
    if session.counters is not None:
        cost_ns += session.counters.cost_ns
    return cost_ns


def _stacks(
    session: Observation, recorders: list[StackRecorder], missing: list[str]
) -> tuple[StackTable, dict[str, Any]]:
    """Return the stacks of all recorders, their number and their cost.

    Adds to `missing` why there are none.
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


def _row(process: WatchedProcess, session: Observation, table: StackTable) -> dict[str, int]:
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
