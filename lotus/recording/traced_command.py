"""Runs a command traced into a run directory, and keeps the record of the run (run.json)."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lotus.common.errors import LotusError
from lotus.common.machine import memory_headroom
from lotus.format import job_ranks, manifest
from lotus.format.manifest import TraceSettings
from lotus.format.run_directory import make, make_default
from lotus.recording import launcher, program_environment
from lotus.recording.launcher import CommandStartError, ProgramOutcome
from lotus.recording.recorders import Recorders

if TYPE_CHECKING:
    from lotus.recording.recorders import Sidecar


def trace(
    command: Sequence[str],
    directory: Path | None,
    settings: TraceSettings,
    force: bool = False,
    sidecars: Sequence["Sidecar"] = (),
    progress: Callable[[Path], AbstractContextManager[object]] | None = None,
    quiet: bool = False,
) -> tuple[Path, ProgramOutcome]:
    """Run a command traced into a run directory; returns the directory and how it ended.

    `sidecars` record beside it from its first instruction on; what became of them is in run.json
    under "recorders", and none of them can fail the run. `progress` makes, of the run directory,
    a context that is entered while the program runs.
    `quiet` keeps what runs in the program from saying there that it had to stop.
    Raises CommandStartError where the command cannot be started, LotusError for the directory.
    """
    # Comes first: a mistyped command leaves no directory behind and overwrites none.
    words = launcher.resolve(command)
    if directory is None:
        directory = make_default(command)
    else:
        make(directory, force)
    environ = program_environment.with_tracing(os.environ, directory.absolute(), settings, quiet)
    record = manifest.begin(command, settings, environ)
    try:
        manifest.write(directory, record)
    except OSError as error:
        raise LotusError(
            f"cannot write {directory / manifest.NAME}: {error.strerror}; choose another directory "
            "with -o"
        ) from None
    _tell_outer(directory.absolute())
    beside = Recorders(sidecars, directory, record) if sidecars else None
    killed_before = memory_headroom.killed()
    try:
        outcome = launcher.run(words, environ, beside, _meanwhile(directory, progress))
    except CommandStartError as error:
        _write_end(directory, record, ProgramOutcome(error.exit_code, None, time.monotonic_ns()))
        raise
    killed = memory_headroom.killed()
    if killed is not None and killed_before is not None and killed >= killed_before:
        outcome = replace(outcome, memory_kills=killed - killed_before)
    _settle(directory)
    _write_end(directory, record, outcome)
    return directory, outcome


@contextlib.contextmanager
def _meanwhile(
    directory: Path, progress: Callable[[Path], AbstractContextManager[object]] | None
) -> Iterator[None]:
    """Do lotus's own work while the program runs; its failure does not end the waiting."""
    entered = contextlib.ExitStack()
    for make_context in (_observe, progress):
        if make_context is not None:
            with contextlib.suppress(Exception):
                entered.enter_context(make_context(directory))
    try:
        yield
    finally:
        with contextlib.suppress(Exception):
            entered.close()


def _observe(directory: Path) -> AbstractContextManager[object]:
    # Imported while the program starts; under a limit on memory, the import may fail.
    from lotus.recording.blocking_sampler import BlockingSampler

    return BlockingSampler(directory)


def part_note(directory: Path) -> str:
    """Return the note in a run about a part of its program that has a run of its own."""
    return f"a part of the program was recorded in a run of its own: {directory}"


def _tell_outer(directory: Path) -> None:
    """Leave a message in the run that this command is part of, if there is one."""
    if outer := os.environ.get("LOTUS_RUN"):
        text = part_note(directory)
        line = json.dumps({"event": "note", "pid": os.getpid(), "text": text})
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            fd = os.open(os.path.join(outer, "processes.jsonl"), flags)
            with open(fd, "ab") as file:
                file.write(f"{line}\n".encode())


def _settle(directory: Path) -> None:
    # On most file systems there is nothing to do, and nothing to import.
    pages = directory / "state"
    if any(path.is_symlink() for path in pages.glob("*.state")) and not pages.is_symlink():
        from lotus.reading.logs import process_states

        process_states.settle(directory)


def _write_end(directory: Path, record: dict[str, Any], outcome: ProgramOutcome) -> None:
    # On a full disk the manifest stays "running", which its readers understand.
    with contextlib.suppress(OSError):
        ranks = job_ranks.recorded(directory)
        end = manifest.end(
            record,
            outcome.exit_code,
            outcome.signal,
            outcome.end_ns,
            ranks,
            memory_kills=outcome.memory_kills,
        )
        manifest.write(directory, end)
