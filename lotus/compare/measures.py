"""The lines of a comparison: measures with their units, and the direction that is better."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.batches.waits import PHASES
from lotus.analysis.common.columns import float_column, int_column, ratios
from lotus.analysis.common.scope import RunLike, table
from lotus.common.numbers.array_types import Floats
from lotus.common.numbers.statistics import LEVEL
from lotus.compare import uncertainty
from lotus.compare.run_spread import UNDISTURBED
from lotus.compare.totals import Totals
from lotus.compare.uncertainty import Difference, ReplicatedValue
from native_map.events import formulas
from native_map.events.event_model import EventTable
from native_map.events.metrics import METRICS

THROUGHPUT = "throughput"
LOOP, WAITS, MADE, OPERATIONS, CPU, COUNTERS, RUNS = (
    "loop", "waits", "making a batch", "operations", "CPU time", "counters", "whole runs"
)  # fmt: skip
GROUPS = (LOOP, WAITS, MADE, OPERATIONS, CPU, COUNTERS, RUNS)
_PHASE_WORDS = {
    "startup": "workers start",
    "making": "batch being made",
    "index": "not asked for yet",
    "sending": "being sent",
    "pinning": "being pinned",
    "handover": "in the main process",
    "unseen": "not recorded",
}
# id, title, unit; all per sample
_OF_MADE = (
    ("fetch", "fetch", "ns"),
    ("fetch_cpu", "fetch, CPU", "ns"),
    ("own", "data set's own code", "ns"),
    ("collate", "collate", "ns"),
    ("rest", "rest of fetch", "ns"),
    ("send", "send", "ns"),
    ("pickle", "send: pickle", "ns"),
    ("lock", "send: wait for the pipe", "ns"),
    ("write", "send: write", "ns"),
    ("pin", "pin", "ns"),
    ("delay", "ready, not taken", "ns"),
    ("idle", "workers idle", "ns"),
    ("send_bytes", "bytes sent", "bytes"),
    ("read_bytes", "bytes read", "bytes"),
    ("major_faults", "major faults", "count"),
    ("minor_faults", "minor faults", "count"),
    ("involuntary_switches", "preempted", "count"),
)
_OF_TIME = {"ns", "samples/s", "share"}
_NEITHER = {"idle", "delay"}
_MOST_ALONE = 0.1  # of a sum with an interval: the most that single starts may be
# CPU metrics for which more is better; for all others less is better, or neither.
_MORE = {"ipc", "retiring"}


@dataclass(frozen=True)
class MeasureLine:
    """One measure of both sides.

    unit    "samples/s", "ns" (of the whole, or per sample: `per`), "bytes", "count", "share",
            "ratio"
    per     "sample", "" or "epoch"
    better  1: more is better, -1: less is better, 0: neither
    difference   relative, or absolute for shares (0.01 is a percentage point)
    adjusted     p-value corrected for the number of lines
    different    whether `adjusted` is below 0.05 and 0 is outside the interval
    """

    id: str
    group: str
    label: str
    unit: str
    per: str
    better: int
    a: float
    b: float
    difference: Difference
    adjusted: float = float("nan")
    different: bool = False

    def judged(self, adjusted: float) -> "MeasureLine":
        """Return the line with its corrected p-value."""
        gap = self.difference
        apart = gap.has_interval and not gap.low <= 0 <= gap.high
        return replace(self, adjusted=adjusted, different=bool(apart and adjusted < LEVEL))

    @property
    def slowdown(self) -> tuple[float, float, float]:
        """Return by how much b is worse, and the interval: 0.05 is 5 % (5 points for a share)."""
        gap = self.difference
        ends = (gap.difference, gap.low, gap.high)
        return ends if self.better <= 0 else (-ends[0], -ends[2], -ends[1])


def by_weight(lines: Sequence[MeasureLine]) -> list[MeasureLine]:
    """Return the lines that differ first, then those with the largest change of their value."""
    return sorted(lines, key=lambda line: (not line.different, -abs(line.b - line.a)))


@dataclass(frozen=True)
class Sums:
    """One side: the totals of all its runs with replicates, and of each run.

    `spread`: of a loop's time between runs, for sides of one run (`run_spread`).
    """

    whole: Totals
    runs: Sequence[Totals]
    spread: float = 0.0


@dataclass(frozen=True)
class Labels:
    """Names of the operations and counted intervals of `Wanted`, in its order, and of the events
    that both sides counted."""

    operations: Sequence[str]
    counted: Sequence[str]
    events: Sequence[str]


_Value = Callable[[Totals], Floats]


@dataclass(frozen=True)
class Quantity:
    """The subject of a line, and how its value is to be read."""

    name: str
    group: str
    label: str
    unit: str = "ns"
    better: int = -1  # less is; 1: more is, 0: neither
    per: str = "sample"
    starts: bool = False  # it is of starts, of which there are few
    absolute: bool = False  # its difference is not relative


def of_loader(
    a: Sums, b: Sums, labels: Labels, cpus: Sequence[tuple[str, EventTable]]
) -> list[MeasureLine]:
    """Return all lines of one loader that both sides have. `cpus` are those of a and of b."""
    rows = [*_of_loop(), *_of_samples(labels)]
    lines = [_line(a, b, quantity, value, part) for quantity, value, part in rows]
    return [line for line in lines if line is not None] + _metrics(a, b, labels, cpus)


_Row = tuple[Quantity, _Value, str]  # "": its value is not of one part


def _line(a: Sums, b: Sums, quantity: Quantity, value: _Value, part: str) -> MeasureLine | None:
    """Return the line of a quantity; None where a side lacks it, or both have nothing of it."""
    first, second = (
        replace(_measured(side, value, quantity.starts, part), spread=_spread(side, quantity))
        for side in (a, b)
    )
    if np.isnan(first.value) or np.isnan(second.value) or first.value == second.value == 0:
        return None
    gap = uncertainty.difference(first, second, relative=not quantity.absolute)
    return MeasureLine(
        quantity.name,
        quantity.group,
        quantity.label,
        quantity.unit,
        quantity.per,
        quantity.better,
        first.value,
        second.value,
        gap,
    )


def _ratio(quantity: Quantity, part: str, divisor: str) -> _Row:
    """Return a quantity that is one sum over another."""

    def value(sums: Totals) -> Floats:
        return ratios(sums(part), sums(divisor))

    return quantity, value, part


def _of_loop() -> Iterator[_Row]:
    """Yield the speed of the loop, and the parts of its time."""
    throughput = Quantity(THROUGHPUT, LOOP, "throughput", "samples/s", 1, per="")
    yield throughput, lambda s: ratios(s("samples"), s("longest_ns")) * 1e9, ""
    steady = Quantity("steady", LOOP, "a sample in steady state")
    yield _ratio(steady, "steady_ns", "steady_samples")
    # Unlike the waits of a report: what of the loop is no step. A slower step makes it smaller.
    words = "waiting, start-up, shut-down"
    waiting = Quantity("wait_share", LOOP, words, "share", 0, per="", absolute=True)
    yield (
        waiting,
        lambda s: ratios(s("iter_ns") + s("wait_ns") + s("tail_ns"), s("loop_ns")),
        "",
    )
    startup = Quantity("startup", LOOP, "start-up, an epoch", per="epoch", starts=True)
    yield _ratio(startup, "startup_ns", "startups")
    shutdown = Quantity("shutdown", LOOP, "shut-down, an epoch", per="epoch", starts=True)
    yield _ratio(shutdown, "shutdown_ns", "epochs")
    yield _ratio(Quantity("step", LOOP, "the training step, a sample"), "step_ns", "samples")
    yield _ratio(Quantity("wait", WAITS, "all waits in next()"), "wait_ns", "samples")
    for name in PHASES:
        yield _ratio(Quantity(f"wait:{name}", WAITS, _PHASE_WORDS[name]), name, "samples")


def _of_samples(labels: Labels) -> Iterator[_Row]:
    """Yield the cost of making a sample: in all, by operation, and by counters."""
    for name, label, unit in _OF_MADE:
        better = 0 if name in _NEITHER else -1
        yield _ratio(Quantity(name, MADE, label, unit, better), name, f"{name}:made")
    for index, label in enumerate(labels.operations):
        taken = Quantity(f"operation:{label}", OPERATIONS, label)
        yield _ratio(taken, f"operation:{index}", "operations:made")
    for index, label in enumerate(labels.operations):
        yield _ratio(Quantity(f"cpu:{label}", CPU, label), f"cpu:{index}", "cpu:made")
    for index, label in enumerate(labels.counted):
        for event in labels.events:
            unit, better = ("ns", -1) if event in ("task_clock", "cpu_clock") else ("count", 0)
            name = f"counter:{label}:{event}"
            counted = Quantity(name, COUNTERS, f"{label}: {event}", unit, better)
            yield _ratio(counted, f"event:{index}:{event}", "counted:made")


def _metrics(
    a: Sums, b: Sums, labels: Labels, cpus: Sequence[tuple[str, EventTable]]
) -> list[MeasureLine]:
    """Return metrics such as IPC and shares of slots, from the sums and from each replicate.

    Each side is computed from its own events, by the formulas of its own CPU.
    """
    lines: list[MeasureLine] = []

    def metrics(sums: Totals, place: int, cpu: tuple[str, EventTable]) -> pd.DataFrame:
        counts = {event: sums.count(place, event) for event in sums.wanted.events}
        return formulas.metrics(pd.DataFrame(counts), *cpu)

    for index, label in enumerate(labels.counted):
        sides_of = list(zip((a, b), cpus, strict=True))
        wholes = [metrics(side.whole, index, cpu) for side, cpu in sides_of]
        runs = [[metrics(run, index, cpu) for run in side.runs] for side, cpu in sides_of]
        for metric in wholes[0].columns:
            unit = METRICS[str(metric)].unit
            if metric not in wholes[1].columns or unit == "ns":  # a sum: its event has a line
                continue
            sides = [
                ReplicatedValue(
                    float(values[metric].iloc[0]),
                    values[metric].to_numpy(np.float64)[1:],
                    side.whole.blocks,
                    np.array([float(of_run[metric].iloc[0]) for of_run in each]),
                )
                for side, values, each in zip((a, b), wholes, runs, strict=True)
            ]
            if any(np.isnan(side.value) for side in sides):
                continue
            share = unit.startswith("of ")
            gap = uncertainty.difference(sides[0], sides[1], relative=not share)
            # Between different CPUs, more of it is not better by itself.
            better = 1 if metric in _MORE and cpus[0][0] == cpus[1][0] else 0
            # Negative replicates of a share remain in its interval.
            values = [max(side.value, 0.0) if share else side.value for side in sides]
            lines.append(
                MeasureLine(f"counter:{label}:{metric}", COUNTERS, f"{label}: {metric}",
                     "share" if share else "ratio", "", better,
                     values[0], values[1], gap)
            )  # fmt: skip
    return lines


def _spread(side: Sums, quantity: Quantity) -> float:
    """Return how much a quantity varies between runs: time on a core lacks no core."""
    if not side.spread or quantity.unit not in _OF_TIME:
        return 0.0
    return UNDISTURBED if quantity.group in (CPU, COUNTERS) else side.spread


def _measured(side: Sums, value: _Value, starts: bool, part: str) -> ReplicatedValue:
    values = value(side.whole)
    runs = np.array([float(value(run)[0]) for run in side.runs])
    blocks = side.whole.epochs if starts else side.whole.blocks
    if part:
        # A single start shows no variation.
        alone = side.whole.alone[side.whole.wanted.columns[part]]
        whole = float(side.whole(part)[0])
        if alone > _MOST_ALONE * whole or (starts and side.whole.epochs <= len(side.runs)):
            blocks = 1
    return ReplicatedValue(float(values[0]), values[1:], blocks, runs)


def of_runs(a: Sequence[RunLike], b: Sequence[RunLike]) -> list[MeasureLine]:
    """Return the lines of whole runs, whose intervals need repeats."""
    lines = []
    measures: Mapping[str, tuple[str, str, Callable[[RunLike], float]]] = {
        "elapsed": ("the whole command", "ns", _elapsed),
        "memory": ("memory of all processes, the most", "bytes", lambda run: _most(run, "pss")),
        "shm": ("/dev/shm, the most", "bytes", lambda run: _most(run, "shm")),
    }
    for name, (label, unit, of) in measures.items():
        sides = [np.array([of(run) for run in runs]) for runs in (a, b)]
        if any(np.isnan(values).any() for values in sides):
            continue
        first, second = (
            ReplicatedValue(float(values.mean()), np.full(1, np.nan), 1, values) for values in sides
        )
        if first.value == second.value == 0:
            continue
        gap = uncertainty.difference(first, second)
        line = MeasureLine(name, RUNS, label, unit, "", -1, first.value, second.value, gap)
        lines.append(line)
    adjusted = uncertainty.adjusted([line.difference.p for line in lines])
    return [line.judged(float(value)) for line, value in zip(lines, adjusted, strict=True)]


def _elapsed(run: RunLike) -> float:
    start, end = run.manifest.get("start_ns"), run.manifest.get("end_ns")
    has_times = isinstance(start, (int, float)) and isinstance(end, (int, float))
    return (
        float(end - start) if has_times and start is not None and end is not None else float("nan")
    )


def _most(run: Any, column: str) -> float:
    """Return the largest sum over processes in any two seconds; each is sampled once per second."""
    resources = table(run, "resources")
    values = float_column(resources, column)
    if column == "pss":
        values = np.where(values > 0, values, np.nan)  # 0: it was not read then
    if not len(resources) or np.isnan(values).all():
        return float("nan")
    frame = pd.DataFrame(
        {
            "slot": int_column(resources, "time_ns") // 2_000_000_000,
            "rank": int_column(resources, "rank"),
            "pid": int_column(resources, "pid"),
            "value": values,
        }
    )
    maxima = frame.groupby(["slot", "rank", "pid"])["value"].max()
    return float(maxima.groupby("slot").sum().max())
