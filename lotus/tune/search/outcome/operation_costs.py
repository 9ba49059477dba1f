"""The cost of each operation under each setting tried, which explains the measured rates.

Some batches of each trial are traced as by `lotus trace`; process ids of workers identify trials.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, int_column
from lotus.analysis.counters.counter_metrics import BASE as COUNTER_BASE
from lotus.analysis.counters.counter_metrics import REST, counter_table, events_of
from lotus.common.text.formatting import operation_name, plural
from lotus.settings.space import Setting
from native_map.events.event_model import EventTable

_OWN = "the data set's own code with collate"
Rows = dict[str, dict[str, Any]]  # by operation
BASE = ["workers", "prefetch_factor", "operation", "batches", "time_ms", "cpu_ms", "share"]
# Factor of growth of an operation's CPU time from which contention is reported.
_GROWTH = 1.10
_WAITING = 0.2  # share of operations' time off the CPU above which it is reported
_TELLING = 0.05  # share of a worker's time from which an operation is reported


def operation_costs(
    run: Any,
    workers: Mapping[Setting, Sequence[int]],
    cpu: str = "",
    known: EventTable | None = None,
) -> pd.DataFrame:
    """Return a row per setting and operation: fewest workers first, then most time first.

    Columns: workers, prefetch_factor, operation (REST: the data set's own code and collate),
    batches (how many were recorded), time_ms and cpu_ms (of the operation per batch; cpu_ms is NaN
    without level op+cpu), share (of the fetch) and, if the run has counters, each metric of
    `counter_table`.
    """
    parts = []
    ops = run.ops[~run.ops["nested"].to_numpy(np.bool_)]
    batches = run.batches[~np.isnan(float_column(run.batches, "fetch_ns"))]
    for setting in sorted(workers):
        own, made, counters = (
            table[np.isin(int_column(table, "pid"), list(workers[setting]))]
            for table in (ops, batches, run.counters)
        )
        if not len(made):
            continue
        part = _costs(own, made)
        part.insert(0, "workers", setting.num_workers)
        part.insert(1, "prefetch_factor", setting.prefetch_factor)
        if len(counters):
            table = counter_table(counters, cpu, known)
            counted = table[table["kind"] != "collate"].set_index("operation")
            skip = {*COUNTER_BASE, *events_of(counters)}
            metrics = [name for name in counted if name not in skip]
            part = part.join(counted[metrics], on="operation")
        parts.append(part)
    if not parts:
        return pd.DataFrame(columns=BASE)
    return pd.concat(parts, ignore_index=True)


def _costs(ops: pd.DataFrame, batches: pd.DataFrame) -> pd.DataFrame:
    count = len(batches)
    names = ops["operation"].astype(str).to_numpy(object)
    columns = {"time_ms": ("duration_ns", "fetch_ns"), "cpu_ms": ("cpu_ns", "cpu_ns")}
    milliseconds = {}
    for name, (of_op, of_batch) in columns.items():
        sums = pd.Series(float_column(ops, of_op)).groupby(names, sort=False).sum(min_count=1)
        rest = float(float_column(batches, of_batch).sum()) - float(sums.sum(skipna=False))
        milliseconds[name] = pd.concat([sums, pd.Series({REST: max(rest, 0.0)})]) / count / 1e6
    table = pd.DataFrame(milliseconds)
    table.insert(0, "batches", count)
    table["share"] = table["time_ms"] / max(float(table["time_ms"].sum()), 1e-12)
    table = table.sort_values("time_ms", ascending=False, kind="stable")
    return table.rename_axis("operation").reset_index()


def words(costs: pd.DataFrame) -> list[str]:
    """Summarise the costs in lines: where a worker's time goes, and what more workers change."""
    costs_of: dict[tuple[int, int], Rows] = {}
    for row in costs.to_dict("records"):
        prefetch = -1 if pd.isna(row["prefetch_factor"]) else int(row["prefetch_factor"])
        key = (int(row["workers"]), prefetch)
        name = str(row["operation"])
        costs_of.setdefault(key, {})[_OWN if name == REST else operation_name(name)] = {
            str(k): v for k, v in row.items()
        }
    if not costs_of:
        return []
    few, many = min(costs_of), max(costs_of)
    telling = [
        f"{name} ({row['share']:.0%})"
        for name, row in costs_of[few].items()
        if row["share"] >= _TELLING
    ]
    lines = ["a worker's time goes to " + ", ".join(telling)]
    lines += _waiting(costs_of[few])
    if many[0] > few[0]:
        lines += _growth(costs_of[few], costs_of[many], few[0], many[0])
    return lines


def _waiting(rows: Rows) -> list[str]:
    """Return the operation with most time off the CPU, if that is much of a batch's time."""
    lost = {name: row["time_ms"] - row["cpu_ms"] for name, row in rows.items()}
    # The comparison is false for NaN, if CPU time was not measured.
    if not sum(lost.values()) > _WAITING * sum(row["time_ms"] for row in rows.values()):
        return []
    worst = max(lost, key=lambda name: lost[name])
    return [
        f"{worst} is off the CPU for {lost[worst] / rows[worst]['time_ms']:.0%} of its time: it "
        "waits for storage, a lock or a free core"
    ]


def _growth(few: Rows, many: Rows, low: int, high: int) -> list[str]:
    """Return operations whose CPU time grows with the number of workers, with the evidence."""
    grown = []
    for name, row in few.items():
        before, after = row["cpu_ms"], many.get(name, {}).get("cpu_ms", math.nan)
        if row["share"] < _TELLING or not (before > 0 and after / before >= _GROWTH):
            continue
        text = f"{name} {after / before:.2f} times"
        slower = row.get("ipc", math.nan) / (many[name].get("ipc") or math.nan)
        if slower > 0:
            text += f" (its cycles per instruction {slower:.2f} times)"
        grown.append(text)
    if not grown:
        return []
    return [
        f"with {plural(high, 'worker')} instead of {low} the CPU time per batch grows: "
        + ", ".join(grown)
        + ": cores share caches, memory and clock, so each further worker gains less"
    ]
