"""Traces the trials of a search, so that the costs of operations can explain their rates.

Only every fourth batch is traced, to keep the overhead small.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lotus.common.errors import LotusError
from lotus.format import manifest
from lotus.format import run_directory as directories
from lotus.format.manifest import TraceSettings
from lotus.inside.common import perf_event
from lotus.recording import measurement_plan
from lotus.recording.session import trace

if TYPE_CHECKING:
    from lotus.settings.space import Setting
    from lotus.tune.search.outcome.result import Result
from native_map.events.event_model import HARDWARE, RAW

EVERY = 4
LEVEL = "op+cpu"


def settings() -> TraceSettings:
    """Return what to record: operations with CPU time, and hardware counters if there are any.

    CPU time is recorded anyway, so software counters of the kernel would add nothing.
    """
    recorded = TraceSettings(LEVEL, every=EVERY)
    with contextlib.suppress(LotusError):
        plan = measurement_plan.plan("auto")
        if plan.counters is not None:
            groups = perf_event.parse_groups(plan.counters)
            if any(event.type in (HARDWARE, RAW) for group in groups for event in group):
                return dataclasses.replace(recorded, counters=plan.counters, cpu=plan.cpu)
    return recorded


def begin(
    directory: Path, command: Sequence[str], environ: Mapping[str, str]
) -> TraceSettings | None:
    """Make a run directory for the trials of a command; returns None if that fails."""
    try:
        directories.make(directory, force=False)
        recorded = settings()
        manifest.write(directory, manifest.begin(command, recorded, environ))
    except (LotusError, OSError):
        return None
    return recorded


@contextlib.contextmanager
def here() -> Iterator[Path | None]:
    """Record trials in this process; yields the run directory, or None within `lotus.trace`."""
    with tempfile.TemporaryDirectory(prefix="lotus-tune-") as folder, contextlib.ExitStack() as on:
        try:
            recorded = settings()
            counters = "auto" if recorded.counters else None
            block = trace(
                Path(folder) / "run", level=recorded.level, every=recorded.every, counters=counters
            )
            recording = on.enter_context(block)
        except LotusError:
            recording = None
        yield recording.path if recording is not None else None


def with_operations(
    result: Result, directory: Path | None, workers: Mapping[Setting, Sequence[int]]
) -> Result:
    """Return the result with the costs of operations under each setting, if recorded."""
    if directory is None or not workers:  # nothing was tried
        return result
    # Imported here: pandas would delay the program's start.
    from lotus.analysis.counters.function_profile import known_events
    from lotus.reading.run import load
    from lotus.tune.search.outcome.operation_costs import operation_costs

    try:
        run = load(directory)
        cpu = str(run.manifest.get("uarch") or "generic")
        costs = operation_costs(run, workers, cpu, known_events(run.manifest, cpu))
    except LotusError as error:
        note = f"the costs of operations are not known: {error}"
        return dataclasses.replace(result, notes=(*result.notes, note))
    return dataclasses.replace(result, operations=costs)
