"""Runs a program's own pipeline operation by operation under perf, for `lotus map build`.

The program starts as usual. When it begins to iterate a loader,
`lotus/inside/isolate/isolation.py` takes over: it keeps the inputs of each operation, waits until
perf is attached, runs each operation in buckets and ends the program. This module starts perf;
`isolated_samples.py` reads the samples.
"""

import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lotus.common.errors import LotusError
from lotus.format.manifest import TraceSettings
from lotus.inside.isolate.isolation import NAME
from lotus.mapping.isolated_samples import LENGTH_NS, PERF_DATA, Isolation, lines, load
from lotus.recording import launcher, program_environment
from lotus.recording.perf_sidecar import Perf
from native_map.paper.capture_probability import executions_needed
from native_map.recording import perf_command

_ENTRY = "from _lotus_inside.isolate import isolation as isolate\n\nisolate.enter(__file__)\n"


@dataclass(frozen=True)
class IsolationPlan:
    """The number of isolated runs of an operation, and their sampling. Raises LotusError.

    Each operation has `budget_s` seconds for `runs` runs, each a warm-up, `gap_s` seconds of rest
    and a bucket of thousands of calls on copies of the inputs that it had for `samples` samples. If
    that takes longer, there are fewer calls, then fewer runs. `wanted` is the desired probability
    of sampling a function of `length_ns`. `frequency` is perf's, in samples per second of CPU time.
    """

    samples: int = 16
    runs: int = 20
    wanted: float = 0.95
    budget_s: float = 5.0
    gap_s: float = 0.1
    frequency: int = 997
    length_ns: int = LENGTH_NS

    def __post_init__(self) -> None:
        least = min(self.frequency, self.samples, self.runs, self.length_ns)
        if not 0 < self.wanted < 1 or least < 1:
            raise LotusError(
                "the wanted probability must lie between 0 and 1, samples and runs must be above "
                "0; see: lotus map build --help"
            )
        if self.budget_s <= 0 or self.gap_s < 0:
            raise LotusError("the budget must be above 0 seconds, as in: --budget 5")

    def request(self) -> dict[str, object]:
        """Return the request to the program."""
        period_s = 1 / self.frequency
        return {
            "samples": self.samples,
            "runs": self.runs,
            "needed": executions_needed(self.length_ns / 1e9, period_s, self.wanted),
            "gap_ns": int(self.gap_s * 1e9),
            "budget_ns": int(self.budget_s * 1e9),
        }


DEFAULT_PLAN = IsolationPlan()


def isolate(
    command: Sequence[str],
    directory: Path,
    plan: IsolationPlan = DEFAULT_PLAN,
    *,
    loader: int | None = None,
    ops: Sequence[str] = (),
) -> Isolation:
    """Run `command` up to its loader, isolate the operations of its pipeline, sample them.

    `directory` is created if necessary; isolation.jsonl and perf.data are written to it. `loader`
    is a loader's number in order of first iteration; None selects the largest one that exists
    when the first is iterated. `ops` are further functions to isolate, as `package.module:name`.

    Raises LotusError if perf or the command cannot be started, or no operation was isolated.
    """
    perf = shutil.which("perf")
    if perf is None:
        raise LotusError(
            "perf is not installed, and without it no operation can be mapped; "
            "`lotus trace` works, and `apt install linux-perf` (or linux-tools) brings perf"
        )
    _make(directory)
    request = {**plan.request(), "loader": loader}
    sampling = perf_command.Sampling(("cpu-clock",), plan.frequency)
    with tempfile.TemporaryDirectory(prefix="lotus-") as exchange:
        recorder = Perf(sampling, perf)
        cut_short = _run(command, directory, Path(exchange), request, recorder, ops)
    isolation = load(directory, wanted=plan.wanted, length_ns=plan.length_ns)
    isolation.notes += cut_short
    return isolation


@dataclass(frozen=True)
class AlternativeTrials:
    """The alternatives that are tried, on which loader's samples, for how long."""

    loader: int | None = None  # by first iteration; None: the largest
    samples: int = 16
    budget_s: float = 2.0  # for each alternative
    names: Sequence[str] | None = None  # None: all
    skipped: Sequence[str] = ()  # operations that are not run again


def try_alternatives(
    command: Sequence[str],
    directory: Path,
    folder: Path,
    trials: AlternativeTrials,
    on_event: Callable[[Mapping[str, Any]], object] | None = None,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Run `command` up to its loader, and try the alternatives in `folder` on its operations.

    Returns (events of lotus/inside/isolate/alternative_bench.py, notes). `directory` is created if
    necessary. `on_event` gets an event before each step. Raises LotusError if the command cannot be
    started or iterates no loader.
    """
    work = {
        "samples": trials.samples,
        "loader": trials.loader,
        "alternatives": str(folder),
        "names": None if trials.names is None else list(trials.names),
        "skipped": list(trials.skipped),
    }
    return _without_perf(command, directory, trials.budget_s, work, on_event)


def measure_cuts(
    command: Sequence[str],
    directory: Path,
    folder: Path,
    *,
    loader: int | str | None = None,
    samples: int = 24,
    epochs: int = 10,
    budget_s: float = 60.0,
    roots: Sequence[str] = (),
) -> tuple[list[dict[str, Any]], list[str]]:
    """Run `command` up to its loader, and measure what caching its samples would save.

    There are `epochs` to come; caches of its samples may be in `roots` already. Returns (events of
    lotus/inside/isolate/cut_bench.py, notes). `directory` is created if necessary; samples are
    cached in `folder` meanwhile. Raises LotusError if the command cannot be started or does not
    iterate this loader.
    """
    counts = {"samples": samples, "epochs": epochs}
    work = {**counts, "loader": loader, "cuts": str(folder), "roots": list(roots)}
    return _without_perf(command, directory, budget_s, work)


def look_at_operations(
    command: Sequence[str], directory: Path, folder: Path, loader: int | str | None = None
) -> tuple[list[dict[str, Any]], list[str]]:
    """Run `command` up to its loader, and look at its operations and what goes into them.

    As `measure_cuts`, but nothing is timed.
    """
    work = {"samples": 0, "loader": loader, "cuts": str(folder), "look_only": True}
    return _without_perf(command, directory, 1.0, work)


def _without_perf(
    command: Sequence[str],
    directory: Path,
    budget_s: float,
    work: dict[str, Any],
    on_event: Callable[[Mapping[str, Any]], object] | None = None,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Have the program do `work` once, without perf; return (events, notes)."""
    _make(directory)
    once = {"runs": 1, "needed": 1, "gap_ns": 0, "budget_ns": int(budget_s * 1e9)}
    with tempfile.TemporaryDirectory(prefix="lotus-") as exchange:
        notes = _run(command, directory, Path(exchange), {**once, **work}, None, (), on_event)
    return list(lines(directory)), notes


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(path.name not in (NAME, PERF_DATA) for path in directory.iterdir()):
            raise LotusError(f"{directory} is not empty; name another directory with --keep")
        for name in (NAME, PERF_DATA):
            (directory / name).unlink(missing_ok=True)
    except OSError as error:
        raise LotusError(
            f"cannot use the directory {directory}: {error.strerror}; name another with --keep"
        ) from None


def _environment(
    directory: Path, exchange: Path, request: Mapping[str, object], ops: Sequence[str]
) -> dict[str, str]:
    settings = TraceSettings(level="batch", ops=tuple(ops))
    environ = program_environment.with_tracing(os.environ, directory.absolute(), settings)
    # After the sitecustomize of `lotus trace`, which runs the one that it hides.
    entry = exchange / "entry"
    entry.mkdir()
    (entry / "sitecustomize.py").write_text(_ENTRY)
    first, *further = environ["PYTHONPATH"].split(os.pathsep)
    environ["PYTHONPATH"] = os.pathsep.join([first, str(entry), *further])
    environ["LOTUS_ISOLATE"] = json.dumps({**request, "exchange": str(exchange)})
    return environ


def _run(
    command: Sequence[str],
    directory: Path,
    exchange: Path,
    request: Mapping[str, object],
    recorder: Perf | None,
    ops: Sequence[str] = (),
    on_event: Callable[[Mapping[str, Any]], object] | None = None,
) -> list[str]:
    """Run the program to its end; returns notes if it or its recorder ended too early."""
    for name in ("ready", "go"):
        os.mkfifo(exchange / name, 0o600)
    environ = _environment(directory, exchange, request, ops)
    ready = os.open(exchange / "ready", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    program: subprocess.Popen[bytes] | None = None
    attached = ended = False
    try:
        program = subprocess.Popen(launcher.resolve(command), env=environ)
        for event in _events(ready, program):
            if event.get("event") == "ready" and not attached:
                pid = event.get("pid")
                if type(pid) is int and pid > 0:
                    if recorder is not None:
                        recorder.start(pid, directory)
                    if recorder is not None and recorder.problem:
                        raise LotusError(
                            f"perf cannot sample the program: {recorder.problem}; see: lotus doctor"
                        )
                    attached = True
                    (exchange / "go").write_text("go\n")
            if event.get("event") == "trying" and on_event is not None:
                on_event(event)
            if event.get("event") == "done":
                ended = True
                break
        os.close(ready)  # a program that waits for the end, ends
        ready = -1
        if recorder is not None:
            recorder.stop()
        program.wait()
    except OSError as error:
        raise LotusError(f"cannot isolate {command[0]}: {error.strerror or error}") from None
    finally:
        if ready >= 0:
            os.close(ready)
        if program is not None and program.poll() is None:
            program.terminate()
            program.wait()
        if recorder is not None:
            recorder.stop()
    if not attached:
        raise LotusError(
            f"the program ended (exit code {program.returncode}) before a loader could be isolated"
            f"{_last_fault(directory)}; `lotus trace` shows which loaders it iterates"
        )
    problem = "" if recorder is None else recorder.problem
    notes = [f"perf.data ends early: {problem}"] if problem else []
    if not ended:
        how = f"(exit code {program.returncode})"
        notes.append(
            f"the program ended {how} before all operations were isolated{_last_fault(directory)}"
        )
    return notes


def _last_fault(directory: Path) -> str:
    faults = [
        str(event.get("error")) for event in lines(directory) if event.get("event") == "fault"
    ]
    return f": {faults[-1]}" if faults else ""


def _events(ready: int, program: "subprocess.Popen[bytes]") -> Iterator[dict[str, Any]]:
    """Yield events from the traced program until it ends."""
    text = b""
    while True:
        over = program.poll() is not None
        # A pipe without a writer is always readable: do not spin.
        select.select([ready], [], [], 0.05)
        with contextlib.suppress(BlockingIOError):
            data = os.read(ready, 4096)
            if not data:
                select.select((), (), (), 0.02)
            text += data
        *lines, text = text.split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict):
                    yield event
        if over:
            return
