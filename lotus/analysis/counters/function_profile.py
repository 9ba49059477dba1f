"""Everything that `lotus map` shows, computed once: counters and functions per operation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import flag, float_column
from lotus.analysis.common.run_contents import RunContents, parts_of
from lotus.analysis.counters.counter_metrics import (
    COLLATE,
    REST,
    counter_table,
    events_of,
    helper_share,
    turn_shares,
)
from lotus.common.numbers.array_types import Floats
from lotus.common.text.formatting import library, plain
from native_map.errors import UnusableError
from native_map.estimate.validation import ENOUGH
from native_map.events import formulas, perf_list, pmu
from native_map.events.event_model import EventTable
from native_map.events.metrics import METRICS
from native_map.events.spelling import parse
from native_map.symbols.demangle import short

if TYPE_CHECKING:
    from lotus.joining.sample_join import Mapped
    from lotus.reading.run import Run
_RAW = 4  # PERF_TYPE_RAW
_CLOCKS = ("cpu_ns", "task_clock", "cpu_clock")  # nanoseconds
# Those of Mapped.functions, also for a run without samples.
FUNCTION_COLUMNS = ["kind", "operation", "helper_of", "event", "library", "function"]
FUNCTION_COLUMNS += ["samples", "share", "count", "low", "high"]
OPERATION_KINDS = ("operation", "collate", "fetch")
# Kinds of samples other than a fetching thread's work on a batch, in words.
OUTSIDE = {
    "send": "sending batches (the workers' feeder threads)",
    "idle": "workers waiting for an index",
    "start-up": "iter() and the start of workers",
    "wait": "the loop waiting in next()",
    "step": "the training step",
    "startup": "before the first iteration (imports)",
    "gc": "Python's garbage collector, outside of the above",
    "interpreter": "Python's interpreter, outside of the above",
    "other": "anything else on threads that lotus knows",
    "helper threads": "other threads of these processes (pools, OpenMP)",
    "other processes": "processes without a loader",
}


@dataclass(frozen=True)
class MapSummary:
    """Counters and functions of a run.

    operations  one row per operation, collate and the rest of the fetch, those of most time first:
                columns of `counters.counter_table`, and `source`: "exact", "sampled" or "" where
                only the time is known; events that were sampled and not counted are estimates
    sampled     the events whose columns are estimates
    event       the sampled event that functions are ranked by
    functions   rows of Mapped.functions of that event: those of operations first
    outside     kind, text, samples, share (of all samples of `event`)
    few_samples operations whose estimates rest on too few samples to be judged, and their number
    estimated   columns of `operations` that rest on samples: `sampled`, and metrics made of them
    turns       groups of events that took turns, and the share of batches that each was counted in
    """

    path: str
    manifest: Mapping[str, Any]
    cpu: str
    counted: list[dict[str, Any]]
    sampled: list[str]
    operations: pd.DataFrame
    event: str
    functions: pd.DataFrame
    outside: pd.DataFrame
    helper_share: float
    python: pd.DataFrame  # Run.python_functions
    mapped: "Mapped | None"
    notes: list[str] = field(default_factory=list)
    turns: list[tuple[list[str], float]] = field(default_factory=list)
    few_samples: list[tuple[str, int]] = field(default_factory=list)
    estimated: frozenset[str] = frozenset()


def summarise_map(run: "Run", mapped: "Mapped | None") -> MapSummary:
    """Compute the summary; `mapped` is None if there are no samples."""
    cpu = str(run.manifest.get("uarch") or "generic")
    notes: list[str] = []
    known = known_events(run.manifest, cpu)
    table, sampled = _operations(run, mapped, cpu, known, notes)
    event = mapped.events[0] if mapped is not None and mapped.events else ""
    functions = _functions(mapped, event, table)
    return MapSummary(
        path=str(run.path),
        manifest=run.manifest,
        cpu=cpu,
        counted=run.counted_events,
        sampled=sampled,
        operations=table,
        event=event,
        functions=functions,
        outside=_outside(mapped, event),
        helper_share=helper_share(run.counters),
        python=run.python_functions,
        mapped=mapped,
        notes=[*(mapped.notes if mapped is not None else []), *_not_counted(run), *notes],
        turns=turn_shares(run.counters),
        few_samples=_few_samples(mapped, cpu, sampled),
        estimated=_estimated(table, run, sampled, cpu, known),
    )


def _not_counted(run: "Run") -> list[str]:
    reasons = [
        f"counters could not be opened: {event['why']}"
        for event in run.unseen
        if event.get("what") == "counters"
    ]
    wanted = run.manifest.get("counters")
    if wanted and not len(run.counters) and not reasons:
        reasons.append("counters were requested, but no batch was counted")
    perf = (run.manifest.get("recorders") or {}).get("perf") or {}
    if perf.get("problem"):
        reasons.append(f"sampling failed: {perf['problem']}")
    return reasons


def known_events(manifest: Mapping[str, Any], cpu: str) -> EventTable:
    """Return the events and formulas by which the run was counted."""
    texts = manifest.get("metrics")
    formulae = texts if isinstance(texts, dict) else {}
    return perf_list.with_saved_metrics(
        pmu.table(cpu), {str(name): str(text) for name, text in formulae.items()}
    )


def _times(run: "Run") -> pd.DataFrame:
    """Return kind, operation, nested, intervals, total_ns from the traced times alone."""
    cells = RunContents(parts_of(run)).operations.cells
    rows: list[dict[str, Any]] = []
    for name, group in cells.groupby("operation"):
        total = float(group["duration_ns"].sum())
        nested = bool(group["nested"].all())
        rows.append({"kind": "operation", "operation": str(name), "nested": nested,
                     "intervals": int(group["count"].sum()), "total_ns": total})  # fmt: skip
    batches = run.batches
    made = batches[batches["fetch_ns"].notna()]
    collate = made["collate_ns"].fillna(0)
    in_fetches = flag(cells, "in_batch") & ~flag(cells, "nested")
    inner = float(cells["duration_ns"][in_fetches].sum())
    rest = float(made["fetch_ns"].sum() - collate.sum()) - inner
    for kind, name, count, total in (
        ("collate", COLLATE, int((collate > 0).sum()), float(collate.sum())),
        ("fetch", REST, len(made), max(rest, 0.0)),
    ):
        if count:
            rows.append({"kind": kind, "operation": name, "nested": False, "intervals": count,
                         "total_ns": total})  # fmt: skip
    columns = ["kind", "operation", "nested", "intervals", "total_ns"]
    return pd.DataFrame(rows, columns=columns)


def _operations(
    run: "Run", mapped: "Mapped | None", cpu: str, known: EventTable, notes: list[str]
) -> tuple[pd.DataFrame, list[str]]:
    exact = counter_table(run.counters, cpu, known)
    times = _times(run)
    events = [name for name in events_of(run.counters) if name in exact.columns]
    table = times.merge(
        exact[["kind", "operation", "counted", "running_share", "turn_share", *events]]
        if len(exact)
        else pd.DataFrame(columns=["kind", "operation"], dtype=object),
        on=["kind", "operation"],
        how="left",
    )
    for name, missing in (("counted", 0), ("running_share", np.nan), ("turn_share", np.nan)):
        table[name] = table[name].fillna(missing) if name in table else missing
    table["source"] = np.where(table["counted"] > 0, "exact", "")
    estimates = _estimates(mapped, cpu)
    sampled = [name for name in estimates if name not in events]
    for name in sampled:
        keys = pd.MultiIndex.from_frame(table[["kind", "operation"]])
        table[name] = estimates[name].reindex(keys).to_numpy(np.float64)
        fresh = table[name].notna() & (table["source"] == "")
        table.loc[fresh, "source"] = "sampled"
    derived = formulas.metrics(table[[*events, *sampled]].astype(np.float64), cpu, known)
    notes += formulas.negative_share_notes(derived)
    derived = formulas.clip_shares(derived)
    table = pd.concat(
        [table, derived[[column for column in derived if column not in table]]], axis=1
    )
    rank = table["kind"].map({kind: index for index, kind in enumerate(OPERATION_KINDS)})
    table = table.assign(_rank=rank).sort_values(
        ["_rank", "total_ns"], ascending=[True, False], kind="stable"
    )
    return table.drop(columns="_rank").reset_index(drop=True), sampled


def event_name(spelling: str, cpu: str) -> str:
    """Return the name that an event, as perf spells it, has among counters."""
    try:
        event = parse(spelling)
    except UnusableError:
        return spelling.partition(":")[0].replace("-", "_")
    for events in pmu.sets(cpu).values():
        for known in events.events:
            same_type = known.type == event.type or {known.type, event.type} == {"cpu", _RAW}
            if same_type and (known.config, known.config1) == (event.config, event.config1):
                return known.name
    return event.name


def _estimated(
    table: pd.DataFrame, run: "Run", sampled: list[str], cpu: str, known: EventTable
) -> frozenset[str]:
    """Return the columns that rest on samples: `sampled`, and metrics that need them."""
    if not sampled:
        return frozenset()
    counted = [name for name in events_of(run.counters) if name in table]
    exact = formulas.metrics(table[counted].astype(np.float64), cpu, known)
    given = {*sampled, *(name for name in METRICS if name in table and name not in exact)}
    return frozenset(given - set(counted))


def _few_samples(mapped: "Mapped | None", cpu: str, sampled: list[str]) -> list[tuple[str, int]]:
    """Return operations whose estimates rest on too few samples, and the least number."""
    samples = _estimates(mapped, cpu, "samples")
    least: dict[str, int] = {}
    for name in sampled:
        operations = samples[name].index.get_level_values(1)
        for operation, count in zip(map(str, operations), samples[name].tolist(), strict=True):
            if count < ENOUGH:
                least[operation] = min(int(count), least.get(operation, ENOUGH))
    return list(least.items())


def _estimates(
    mapped: "Mapped | None", cpu: str, column: str = "count"
) -> dict[str, "pd.Series[float]"]:
    """Return the counts per (kind, operation) of each sampled event, by its name among counters."""
    estimates: dict[str, pd.Series[float]] = {}
    if mapped is None:
        return estimates
    rows = mapped.operations
    rows = rows[rows["kind"].isin(OPERATION_KINDS) & (rows["helper_of"] == "")]
    names = {"collate": COLLATE, "fetch": REST}
    label = rows["operation"].where(rows["kind"] == "operation", rows["kind"].map(names))
    for event in mapped.events:
        mine = (rows["event"] == event).to_numpy()
        keys = pd.MultiIndex.from_arrays([rows["kind"][mine], label[mine]])
        estimates[event_name(event, cpu)] = pd.Series(rows[column][mine].to_numpy(), keys)
    return estimates


def _functions(mapped: "Mapped | None", event: str, operations: pd.DataFrame) -> pd.DataFrame:
    if mapped is None:
        return pd.DataFrame(columns=FUNCTION_COLUMNS)
    rows = mapped.functions[mapped.functions["event"] == event].copy()
    names = {"collate": COLLATE, "fetch": REST}
    rows["operation"] = rows["operation"].where(
        rows["kind"] == "operation", rows["kind"].map(names).fillna("")
    )
    order = {
        (str(kind), str(name)): index
        for index, (kind, name) in enumerate(
            zip(operations["kind"], operations["operation"], strict=True)
        )
    }
    place = [
        order.get((str(kind), str(name)), len(order))
        for kind, name in zip(rows["kind"], rows["operation"], strict=True)
    ]
    rows = rows.assign(_place=place).sort_values(
        ["_place", "kind", "helper_of", "count"], ascending=[True, True, True, False], kind="stable"
    )
    return rows.drop(columns="_place").reset_index(drop=True)


def _outside(mapped: "Mapped | None", event: str) -> pd.DataFrame:
    columns = ["kind", "text", "samples", "share"]
    if mapped is None:
        return pd.DataFrame(columns=columns)
    rows = mapped.operations[mapped.operations["event"] == event]
    whole = rows["samples"].sum()
    sums = rows.groupby("kind")["samples"].sum()
    parts = [
        {"kind": kind, "text": OUTSIDE.get(kind, kind), "samples": int(count),
         "share": float(count / whole) if whole else np.nan}
        for kind, count in zip(map(str, sums.index), sums.tolist(), strict=True)
        if kind not in OPERATION_KINDS
    ]  # fmt: skip
    table = pd.DataFrame(parts, columns=columns)
    return table.sort_values("samples", ascending=False, kind="stable").reset_index(drop=True)


def per_call(summary: MapSummary, operations: pd.DataFrame, name: str) -> tuple[Floats, str]:
    """Return an event or metric for one call of each operation, and its unit.

    `operations` are rows of `summary.operations`. A metric that is a ratio stays as it is.
    """
    values = float_column(operations, name)
    metric = METRICS.get(name)
    if metric is not None and name not in _CLOCKS and metric.unit != "":
        return values, metric.unit
    # Counts are sums over the counted intervals; estimates are sums over all.
    counted = float_column(operations, "counted")
    every = np.maximum(float_column(operations, "intervals"), 1)
    calls = np.where((counted > 0) & (name not in summary.sampled), counted, every)
    if name in _CLOCKS:
        return values / calls / 1e6, "ms a call"
    return values / calls, "a call"


@dataclass(frozen=True)
class OperationFunctions:
    """The most sampled functions of an operation.

    functions   library, function (named as they are shown), samples, share (of the operation's)
    libraries   samples of these functions by library
    samples     of the operation
    left_out    how many other functions it has
    rest        their samples
    """

    operation: str
    functions: pd.DataFrame
    libraries: dict[str, float]
    samples: float
    left_out: int
    rest: float


def functions_by_operation(functions: pd.DataFrame, most: int) -> list[OperationFunctions]:
    """Return the `most` most sampled functions of each operation, without helper threads.

    `functions` are rows of `MapSummary.functions`.
    """
    if not len(functions):
        return []
    own = functions[(functions["helper_of"] == "") & functions["operation"].ne("")]
    result = []
    for operation, group in own.groupby("operation", sort=False):
        sums = _samples_by_function(group)
        shown, samples = sums.head(most), float(sums.sum())
        table = shown.rename_axis(["library", "function"]).rename("samples").reset_index()
        result.append(
            OperationFunctions(
                operation=str(operation),
                functions=table.assign(share=table["samples"] / samples),
                libraries={str(file): float(n) for file, n in shown.groupby(level=0).sum().items()},
                samples=samples,
                left_out=len(sums) - len(shown),
                rest=samples - float(shown.sum()),
            )
        )
    return result


def _samples_by_function(functions: pd.DataFrame) -> "pd.Series[float]":
    """Return samples by (library, function), the most sampled first."""
    names = [
        (plain(library(str(file))), plain(short(str(function))))
        for file, function in zip(functions["library"], functions["function"], strict=True)
    ]
    samples = functions["samples"].to_numpy(np.float64)
    sums = pd.Series(samples, pd.MultiIndex.from_tuples(names)).groupby(level=[0, 1]).sum()
    return sums.sort_values(ascending=False, kind="stable")
