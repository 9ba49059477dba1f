"""Runs a program's own pipeline operation by operation under perf, for `lotus map build`.

The program starts as usual. Where it begins to iterate a loader, `lotus/inside/isolate.py` takes
over: it keeps the inputs of each operation, waits until perf is attached, runs each operation in
buckets and ends the program. Here perf is started, and its samples go to the buckets they fell in.
"""

import contextlib
import json
import math
import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from lotus import launch
from lotus.errors import LotusError
from lotus.inside.isolate import NAME
from lotus.manifest import Settings
from native_map import join, perf_data, record
from native_map.capture import capture_probability, executions_needed, shortest_captured
from native_map.errors import Unusable
from native_map.symbols import Symbols

PERF_DATA = "perf.data"
LENGTH_NS = 20_000  # of the shortest function that is to be caught
_ENTRY = "from _lotus_inside import isolate\n\nisolate.enter(__file__)\n"
_LONGEST_LINE = 1 << 24  # bytes of isolation.jsonl
_LARGEST = 1 << 53  # ns: a hundred days
_INTERVALS = {
    "operation": "str",
    "run": "int64",
    "pid": "int32",
    "tid": "int32",
    "start_ns": "int64",
    "end_ns": "int64",
    "calls": "int64",
}


@dataclass
class Isolation:
    """What the isolated runs of a program's operations gave.

    functions   operation, run, module, function, samples, cpu_ns: what perf saw in the buckets
    intervals   operation, run, pid, tid, start_ns, end_ns, calls: the bursts of each bucket
    operations  operation, inputs, calls_a_sample (mean, in the pipeline), runs, calls, call_ns
                (mean), samples, capture (probability that a function of `length_ns` in each call
                was seen at least once), capture_run (the same in one run, median of the runs),
                reached (capture >= wanted), shortest_ns (a function of that length is seen with
                the wanted probability)
    notes       what could not be isolated, and why
    """

    functions: pd.DataFrame
    intervals: pd.DataFrame
    operations: pd.DataFrame
    notes: list[str] = field(default_factory=list)

    def a_sample(self) -> pd.DataFrame:
        """`functions` with cpu_ns as if each run were of one sample, for the weights of a mapping.

        In the time of its bucket a quick operation is called more often than a slow one: what both
        call would seem to be mostly the quick one's.
        """
        called = self.intervals.groupby(["operation", "run"], as_index=False)["calls"].sum()
        made = self.functions.merge(called, on=["operation", "run"], how="left", validate="m:1")
        part = self.operations.set_index("operation")["calls_a_sample"]
        made["cpu_ns"] = made["cpu_ns"] * made["operation"].map(part) / made.pop("calls")
        return made


def isolate(
    command: Sequence[str],
    directory: Path,
    *,
    loader: int | None = None,
    samples: int = 16,
    runs: int = 20,
    wanted: float = 0.95,
    budget_s: float = 5.0,
    gap_s: float = 0.1,
    frequency: int = 997,
    length_ns: int = LENGTH_NS,
    ops: Sequence[str] = (),
) -> Isolation:
    """Run `command` up to its loader, isolate the operations of its pipeline, sample them.

    `directory` is made where missing and gets isolation.jsonl and perf.data. `loader` is a loader's
    number by first iteration, None the largest that there is when the first is iterated. Each
    operation has `budget_s` seconds for `runs` runs of warm-up, `gap_s` seconds of rest and a
    bucket, so it is called thousands of times, on copies of the inputs that it had for `samples`
    samples. There are fewer calls, then fewer runs, where that takes longer. `wanted` is the
    probability to catch a function of `length_ns`. `frequency` is perf's, in samples of CPU time a
    second. `ops` are functions to isolate too, as `package.module:name`.

    Raises LotusError where perf or the command cannot be started, or where no operation was
    isolated.
    """
    if not 0 < wanted < 1 or frequency < 1 or samples < 1 or runs < 1 or length_ns < 1:
        raise LotusError("a probability lies between 0 and 1, and all counts are above zero")
    if budget_s <= 0 or gap_s < 0:
        raise LotusError("the budget is above zero seconds, and the gap not below")
    perf = shutil.which("perf")
    if perf is None:
        raise LotusError(
            "perf is not installed, and without it no operation can be mapped; "
            "`lotus trace` works, and `apt install linux-perf` (or linux-tools) brings perf"
        )
    _make(directory)
    asked = {
        "samples": samples,
        "runs": runs,
        "needed": executions_needed(length_ns / 1e9, 1 / frequency, wanted),
        "gap_ns": int(gap_s * 1e9),
        "budget_ns": int(budget_s * 1e9),
        "loader": loader,
    }
    sampling = record.Sampling(("cpu-clock",), frequency)
    with tempfile.TemporaryDirectory(prefix="lotus-") as exchange:
        cut_short = _run(command, directory, Path(exchange), asked, perf, sampling, ops)
    found = load(directory, wanted=wanted, length_ns=length_ns)
    found.notes += cut_short
    return found


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(path.name not in (NAME, PERF_DATA) for path in directory.iterdir()):
            raise LotusError(f"{directory} is not empty; choose another directory")
        for name in (NAME, PERF_DATA):
            (directory / name).unlink(missing_ok=True)
    except OSError as error:
        raise LotusError(f"cannot use the directory {directory}: {error.strerror}") from None


def _environment(
    directory: Path, exchange: Path, asked: Mapping[str, object], ops: Sequence[str]
) -> dict[str, str]:
    settings = Settings(level="batch", ops=tuple(ops))
    environ = launch.environment(os.environ, directory.absolute(), settings)
    # Behind the sitecustomize of `lotus trace`, which runs the one that it hides.
    entry = exchange / "entry"
    entry.mkdir()
    (entry / "sitecustomize.py").write_text(_ENTRY)
    first, *rest = environ["PYTHONPATH"].split(os.pathsep)
    environ["PYTHONPATH"] = os.pathsep.join([first, str(entry), *rest])
    environ["LOTUS_ISOLATE"] = json.dumps({**asked, "exchange": str(exchange)})
    return environ


def _run(
    command: Sequence[str],
    directory: Path,
    exchange: Path,
    asked: Mapping[str, object],
    perf: str,
    sampling: record.Sampling,
    ops: Sequence[str],
) -> list[str]:
    """Run the program to its end; notes on an end that came too early."""
    for name in ("ready", "go"):
        os.mkfifo(exchange / name, 0o600)
    environ = _environment(directory, exchange, asked, ops)
    ready = os.open(exchange / "ready", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    program: subprocess.Popen[bytes] | None = None
    sampler: _Perf | None = None
    done = False
    try:
        program = subprocess.Popen(launch.resolve(command), env=environ)
        for event in _events(ready, program):
            if event.get("event") == "ready" and sampler is None:
                pid = event.get("pid")
                if type(pid) is int and pid > 0:
                    sampler = _Perf(perf, pid, directory / PERF_DATA, sampling)
                    (exchange / "go").write_text("go\n")
            if event.get("event") == "done":
                done = True
                break
        os.close(ready)  # who waits for the end, ends
        ready = -1
        if sampler is not None:
            sampler.stop()
        program.wait()
    except OSError as error:
        raise LotusError(f"cannot isolate {command[0]}: {error.strerror or error}") from None
    finally:
        if ready >= 0:
            os.close(ready)
        for process in (program, sampler.process if sampler is not None else None):
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait()
    if sampler is None:
        raise LotusError(
            f"the program ended (exit code {program.returncode}) before a loader could be isolated"
            f"{_told(directory)}; `lotus trace` shows which loaders it iterates"
        )
    if done:
        return []
    how = f"(exit code {program.returncode})"
    return [f"the program ended {how} before all operations were isolated{_told(directory)}"]


def _told(directory: Path) -> str:
    faults = [
        str(event.get("error")) for event in _lines(directory) if event.get("event") == "fault"
    ]
    return f": {faults[-1]}" if faults else ""


def _events(ready: int, program: "subprocess.Popen[bytes]") -> Iterator[dict[str, Any]]:
    """What the inside tells, until the program ends."""
    text = b""
    while True:
        over = program.poll() is not None
        # A pipe that had a writer and has none is readable at once: do not spin.
        select.select([ready], [], [], 0.05)
        with contextlib.suppress(BlockingIOError):
            data = os.read(ready, 4096)
            if not data:
                select.select((), (), (), 0.02)
            text += data
        *lines, text = text.split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                if isinstance(found, dict):
                    yield found
        if over:
            return


class _Perf:
    """perf record attached to a process; sampling when the constructor returns."""

    def __init__(self, perf: str, pid: int, output: Path, sampling: record.Sampling) -> None:
        """Raises LotusError where perf cannot sample the process."""
        take, command = os.pipe()
        acknowledged, acknowledge = os.pipe()
        words = record.command(perf, pid, str(output), sampling, (take, acknowledge))
        # A file, not a pipe: nobody reads while perf runs.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `stop`
        try:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                pass_fds=(take, acknowledge),
            )
        finally:
            os.close(take)
            os.close(acknowledge)
        self._pipes: tuple[int, ...] = (
            command,
            acknowledged,
        )  # open for as long as perf runs: it would end
        try:
            os.write(command, b"enable\n")
            answer = os.read(acknowledged, 16)  # nothing where perf has ended
        except BrokenPipeError:
            answer = b""
        if not answer.startswith(b"ack"):
            self.process.wait()
            said = self._text()
            self.close()
            raise LotusError(
                f"perf cannot sample the program: {record.reason(said, sampling.events)}"
            )

    def _text(self) -> str:
        self._said.seek(0)
        return self._said.read(1 << 16).decode(errors="replace")

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGINT)
        self.process.wait()
        self.close()

    def close(self) -> None:
        for pipe in self._pipes:
            os.close(pipe)
        self._pipes = ()
        self._said.close()


def _lines(directory: Path) -> Iterator[dict[str, Any]]:
    try:
        file = open(directory / NAME, "rb")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        return
    with file:
        while line := file.readline(_LONGEST_LINE):
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(found, dict):
                yield found


def load(directory: Path, *, wanted: float = 0.95, length_ns: int = LENGTH_NS) -> Isolation:
    """Read what `isolate` left in a directory.

    Raises LotusError where there is nothing to read.
    """
    rows, notes, threads, described = _read(directory)
    if not rows:
        raise LotusError(f"no operation was isolated: {'; '.join(notes) or 'none was called'}")
    intervals = pd.DataFrame(rows, columns=list(_INTERVALS)).astype(_INTERVALS)
    try:
        recording = perf_data.read(directory / PERF_DATA)
        functions, interval_ns = _functions(recording, intervals, threads)
    except Unusable as error:
        raise LotusError(str(error)) from None
    notes += [f"perf.data: {text}" for text in recording.damage]
    lost = int(recording.lost["count"].sum())
    if lost:
        notes.append(f"perf lost {lost} samples")
    operations = _operations(intervals, functions, described, interval_ns, wanted, length_ns)
    return Isolation(functions, intervals, operations, notes)


def _read(
    directory: Path,
) -> tuple[list[tuple[Any, ...]], list[str], set[int], dict[str, Any]]:
    """Rows of the intervals, notes, the program's own threads, what was said of the loader."""
    rows: list[tuple[Any, ...]] = []
    notes: list[str] = []
    threads: set[int] = set()
    described: dict[str, Any] = {}
    skipped: set[str] = set()
    raised: Counter[str] = Counter()
    for event in _lines(directory):
        kind, name = event.get("event"), str(event.get("operation"))
        if kind == "run":
            rows += _bursts(name, event)
        elif kind == "taken":
            threads |= {number for number in _list(event, "threads") if type(number) is int}
            described = event
        elif kind == "skipped":
            skipped.add(name)
            notes.append(f"{name} was not isolated: {event.get('why')}")
        elif kind == "raised":
            raised[f"{name} raised {event.get('error')}"] += 1
        elif kind == "note":
            notes.append(str(event.get("text")))
        elif kind == "unseen":
            notes.append(f"{event.get('what')} cannot be isolated: {event.get('why')}")
        elif kind == "fault":
            notes.append(f"the isolation stopped: {event.get('error')}")
    notes += [f"{text} (in {count} samples)" for text, count in raised.items()]
    return [row for row in rows if row[0] not in skipped], notes, threads, described


def _number(event: Mapping[str, Any], name: str, operation: str) -> float:
    """One of the numbers by operation of an event, 0 where there is none."""
    found = event.get(name)
    number = found.get(operation) if isinstance(found, dict) else None
    return number if isinstance(number, int | float) and 0 <= number < _LARGEST else 0


def _list(event: Mapping[str, Any], name: str) -> list[Any]:
    found = event.get(name)
    return found if isinstance(found, list) else []


def _bursts(name: str, event: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    numbers = (event.get("run"), event.get("pid"), event.get("tid"))
    for burst in _list(event, "intervals"):
        values = (*numbers, *burst) if isinstance(burst, list) else ()
        if (
            len(values) == 6
            and all(type(one) is int and 0 <= one < _LARGEST for one in values)
            and max(values[1:3]) < 1 << 31
            and values[3] <= values[4]
        ):
            yield (name, *values)


def _functions(
    recording: perf_data.Recording, intervals: pd.DataFrame, threads: set[int]
) -> tuple[pd.DataFrame, float]:
    """The functions of the buckets, and the mean ns between two samples."""
    samples = recording.samples
    main = set(intervals["tid"])
    # Threads of pools that an operation uses count for it, other threads of Python's do not.
    samples = samples[~samples["tid"].isin(threads - main)]
    described = intervals.assign(kind=pd.Categorical(["operation"] * len(intervals)))
    found = join.index(described).attribute(samples)
    row = found["interval"].where(found["interval"] >= 0, found["helper_of"])
    inside = (row >= 0).to_numpy()
    samples, row = samples[inside], row[inside]
    resolved = Symbols().resolve(recording.mappings, samples, recording.forks, recording.comms)
    table = pd.DataFrame(
        {
            "operation": intervals["operation"].to_numpy()[row],
            "run": intervals["run"].to_numpy()[row],
            "module": resolved["library"].astype(str).to_numpy(),
            "function": resolved["function"].astype(str).to_numpy(),
            "cpu_ns": samples["period"].to_numpy().astype("int64"),
        }
    )
    keys = ["operation", "run", "module", "function"]
    grouped = table.groupby(keys, sort=True)["cpu_ns"].agg(["size", "sum"]).reset_index()
    grouped = grouped.rename(columns={"size": "samples", "sum": "cpu_ns"})
    mean = float(recording.samples["period"].mean()) if len(recording.samples) else math.nan
    return grouped, mean


def _operations(
    intervals: pd.DataFrame,
    functions: pd.DataFrame,
    described: Mapping[str, Any],
    interval_ns: float,
    wanted: float,
    length_ns: int,
) -> pd.DataFrame:
    spent = intervals["end_ns"] - intervals["start_ns"]
    by = intervals.assign(spent_ns=spent).groupby("operation", sort=False)
    table = by.agg(runs=("run", "nunique"), calls=("calls", "sum"), spent_ns=("spent_ns", "sum"))
    table.insert(0, "inputs", [int(_number(described, "inputs", name)) for name in table.index])
    part = [_number(described, "calls_a_sample", name) for name in table.index]
    table.insert(1, "calls_a_sample", part)
    table["call_ns"] = table.pop("spent_ns") / table["calls"]
    seen = functions.groupby("operation")["samples"].sum()
    table["samples"] = seen.reindex(table.index, fill_value=0).astype("int64")
    each = intervals.groupby(["operation", "run"], sort=False)["calls"].sum()
    median = each.groupby("operation", sort=False).median()

    def capture(calls: float) -> float:
        return capture_probability(length_ns / 1e9, interval_ns / 1e9, int(calls))

    table["capture"] = [capture(calls) for calls in table["calls"]]
    table["capture_run"] = [capture(median[name]) for name in table.index]
    table["reached"] = table["capture"] >= wanted
    table["shortest_ns"] = [
        1e9 * shortest_captured(interval_ns / 1e9, calls, wanted) for calls in table["calls"]
    ]
    return table.reset_index()
