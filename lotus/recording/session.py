"""`lotus.trace(path)`: record a part of the running program, in a notebook or a script."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lotus.common.errors import LotusError
from lotus.format import job_ranks, manifest
from lotus.format import run_directory as directories
from lotus.format.manifest import TraceSettings
from lotus.recording import program_environment, traced_command
from lotus.recording.inside_package import load_inside

if TYPE_CHECKING:  # which imports pandas
    from lotus.reading.run import Run

_current: Any = None  # the tracer of the block that is running


class Recording:
    """The value of `lotus.trace`: `path` of the run directory, and `load()` after the block."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> "Run":
        """Return the recorded `Run`."""
        from lotus.reading.run import load

        return load(self.path)


@contextmanager
def trace(  # noqa: PLR0913 - options of the public call, each by its name
    path: str | os.PathLike[str],
    *,
    level: str = "op",
    batches: str | None = None,
    every: int = 1,
    max_log: int | None = None,
    ops: Sequence[str] = (),
    counters: str | None = None,
    nvtx: bool = False,
    itt: bool = False,
    force: bool = False,
) -> Iterator[Recording]:
    """Record every DataLoader that is iterated inside the `with` block.

    Arguments are those of `lotus trace`. `level` says how much is recorded: "batch", "sample", "op"
    or "op+cpu", each with what those before it have. `every` N records only each N-th batch,
    `batches` only "FIRST:LAST" of each epoch; `max_log` is in bytes. `ops` are names such as
    "package.module:function", `counters` sets or events ("auto": the most telling ones that this
    machine has). `nvtx` and `itt` say whether other profilers get ranges. `force` overwrites an
    earlier run in the directory.
    Loaders whose iterator was made before the block, and workers of a forkserver that was running
    before it, are not seen. In a program under `lotus trace` the block is recorded here and not
    there.

    Raises LotusError if the directory cannot be used or another such block is running.
    """
    if level not in manifest.LEVELS:
        raise LotusError(f"level {level!r} is none of {', '.join(manifest.LEVELS)}")
    inside = load_inside()
    outer = inside.active.tracer
    if outer is not None and not outer.on:
        outer = None
    if outer is not None and outer is _current:
        raise LotusError("this is a lotus.trace() inside another one; leave one of them out")
    target = Path(os.path.abspath(path))
    ranges = tuple(name for name, asked in (("nvtx", nvtx), ("itt", itt)) if asked)
    settings = TraceSettings(level, batches, every, max_log, tuple(ops), ranges=ranges)
    if counters is not None:
        from lotus.recording import measurement_plan

        chosen = measurement_plan.plan(counters)
        settings = replace(settings, counters=chosen.counters, cpu=chosen.cpu)
    directories.make(target, force)
    quiet = bool(os.environ.get("LOTUS_QUIET"))  # of the `lotus trace -q` around it
    environ = program_environment.with_tracing(os.environ, target, settings, quiet)
    record = manifest.begin([sys.executable, *sys.argv], settings, environ)
    manifest.write(target, record)
    with _recording(inside, outer, target, environ, record):
        yield Recording(target)


@contextmanager
def _recording(
    inside: ModuleType,
    outer: Any,
    target: Path,
    environ: Mapping[str, str],
    record: dict[str, Any],
) -> Iterator[None]:
    """Record within the block, in place of `outer`, the tracer around it if there is one."""
    global _current
    if outer is not None:
        outer.recorder.event({"event": "note", "text": traced_command.part_note(target)})
        outer.uninstall()
    # Spawned workers find the hooks through the environment.
    ours = {*environ, *program_environment.VARIABLES}
    before = {
        name: os.environ.get(name) for name in ours if os.environ.get(name) != environ.get(name)
    }
    _set_environment({name: environ.get(name) for name in before})
    tracer = _current = inside.install(environ)
    try:
        yield
    finally:
        tracer.uninstall()
        _set_environment(before)
        _current = None
        if outer is not None:
            inside.install(outer.environ)
        with contextlib.suppress(OSError):  # a full disk: the manifest stays "running"
            end = manifest.end(record, None, None, time.monotonic_ns(), job_ranks.recorded(target))
            manifest.write(target, end)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
