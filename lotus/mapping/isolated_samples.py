"""Reads the results of isolated runs, and assigns perf's samples to their buckets."""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from lotus.common.errors import LotusError
from lotus.inside.isolate.isolation import NAME
from native_map.errors import UnusableError
from native_map.estimate import interval_join
from native_map.paper.capture_probability import capture_probability, shortest_captured
from native_map.recording import perf_data, perf_recording
from native_map.symbols.symbolizer import Symbols

PERF_DATA = "perf.data"
LENGTH_NS = 20_000  # of the shortest function that is to be caught
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
    """The results of the isolated runs of a program's operations.

    functions   operation, run, module, function, samples, cpu_ns: perf's samples in the buckets
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
        """Return `functions` with cpu_ns as if each run processed one sample, for a mapping.

        A quick operation is called more often in its bucket than a slow one, so a function that
        both call would seem to belong mostly to the quick one.
        """
        called = self.intervals.groupby(["operation", "run"], as_index=False)["calls"].sum()
        table = self.functions.merge(called, on=["operation", "run"], how="left", validate="m:1")
        part = self.operations.set_index("operation")["calls_a_sample"]
        table["cpu_ns"] = table["cpu_ns"] * table["operation"].map(part) / table.pop("calls")
        return table


def lines(directory: Path) -> Iterator[dict[str, Any]]:
    """Return the events of isolation.jsonl; invalid lines are left out."""
    try:
        file = open(directory / NAME, "rb")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        return
    with file:
        while line := file.readline(_LONGEST_LINE):
            try:
                event = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(event, dict):
                yield event


def load(directory: Path, *, wanted: float = 0.95, length_ns: int = LENGTH_NS) -> Isolation:
    """Read the directory that `isolate` has written.

    Raises LotusError if there is nothing to read.
    """
    rows, notes, threads, described = _read(directory)
    if not rows:
        raise LotusError(
            f"no operation was isolated: {'; '.join(notes) or 'none was called'}; "
            "see which there are with: lotus trace -- COMMAND"
        )
    intervals = pd.DataFrame(rows, columns=list(_INTERVALS)).astype(_INTERVALS)
    try:
        recording = perf_data.read(directory / PERF_DATA)
        functions, interval_ns = _functions(recording, intervals, threads)
    except UnusableError as error:
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
    """Return rows of intervals, notes, the program's own threads, and the loader's facts."""
    rows: list[tuple[Any, ...]] = []
    notes: list[str] = []
    threads: set[int] = set()
    described: dict[str, Any] = {}
    skipped: set[str] = set()
    raised: Counter[str] = Counter()
    for event in lines(directory):
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
    """Return the number of an operation in an event, 0 if it is missing."""
    by_operation = event.get(name)
    number = by_operation.get(operation) if isinstance(by_operation, dict) else None
    return number if isinstance(number, int | float) and 0 <= number < _LARGEST else 0


def _list(event: Mapping[str, Any], name: str) -> list[Any]:
    content = event.get(name)
    return content if isinstance(content, list) else []


def _bursts(name: str, event: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    numbers = (event.get("run"), event.get("pid"), event.get("tid"))
    for burst in _list(event, "intervals"):
        values = (*numbers, *burst) if isinstance(burst, list) else ()
        if (
            len(values) == 6
            and all(type(value) is int and 0 <= value < _LARGEST for value in values)
            and max(values[1:3]) < 1 << 31
            and values[3] <= values[4]
        ):
            yield (name, *values)


def _functions(
    recording: perf_recording.PerfRecording, intervals: pd.DataFrame, threads: set[int]
) -> tuple[pd.DataFrame, float]:
    """Return the functions of the buckets, and the mean ns between two samples."""
    samples = recording.samples
    main = set(intervals["tid"])
    # Threads of pools that an operation uses count for it; other Python threads do not.
    samples = samples[~samples["tid"].isin(threads - main)]
    described = intervals.assign(kind=pd.Categorical(["operation"] * len(intervals)))
    attributed = interval_join.index(described).attribute(samples)
    row = attributed["interval"].where(attributed["interval"] >= 0, attributed["helper_of"])
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
    calls_of_runs = intervals.groupby(["operation", "run"], sort=False)["calls"].sum()
    median = calls_of_runs.groupby("operation", sort=False).median()

    def capture(calls: float) -> float:
        return capture_probability(length_ns / 1e9, interval_ns / 1e9, int(calls))

    table["capture"] = [capture(calls) for calls in table["calls"]]
    table["capture_run"] = [capture(median[name]) for name in table.index]
    table["reached"] = table["capture"] >= wanted
    table["shortest_ns"] = [
        1e9 * shortest_captured(interval_ns / 1e9, calls, wanted) for calls in table["calls"]
    ]
    return table.reset_index()
