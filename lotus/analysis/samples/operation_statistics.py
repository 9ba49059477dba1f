"""Per-operation statistics and how the parts of a fetch add up."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.batches.components import COLLATE, OWN, REST, SNAPSHOT
from lotus.analysis.common.columns import (
    BatchPlaces,
    flag,
    float_column,
    ratio,
    total,
)
from lotus.analysis.common.durations import Durations
from lotus.analysis.common.operation_sums import known_sum
from lotus.analysis.common.scope import Scope

IDLE = "idle"
SUMS_COLUMNS = ["whole", "total_ns", "parts_ns", "own_ns", "remainder_ns", "remainder_share"]
STATISTICS = ("total", "mean", "p50", "p95", "p99", "std", "max")
CORE_TIMES = ("run_delay_ns", "run_delay_share", "blocked_share", "helper_cpu_ns", "helper_share")
# Helpers of an operation are not noticeable if they use less than this of the process's CPU time or
# of the operation's time, or so many ns a call: the readings themselves take microseconds.
_LEAST_HELPER_SHARE, _LEAST_HELPER_CORES, _LEAST_HELPER_NS = 0.1, 0.02, 20_000


def operation_table(scope: Scope) -> pd.DataFrame:
    """Return one row per operation, the largest total first; durations in float nanoseconds.

    Columns: operation parent kind nested count total_ns mean_ns p50_ns p95_ns p99_ns std_ns max_ns
    workers_share (of the workers' time, fetching and idle; of the fetching time without workers)
    cpu_ns waiting_share (off the CPU) run_delay_ns run_delay_share (its thread was ready to run,
    but had no core) blocked_share (neither on a core nor ready) helper_cpu_ns (of the other threads
    of its process meanwhile) helper_share (of the process's CPU time) read_bytes major_faults (NaN
    where not recorded) quantile_error (how far p50, p95 and p99 may lie from the exact ones, as a
    share of them). The time of a nested operation is also in that of the operation around it.
    """
    cells, whole = scope.calls.cells, workers_time(scope)
    rows = [
        _row(str(name), part, scope.calls.durations(str(name)), whole)
        for name, part in cells.groupby("operation", sort=False)
    ]
    columns = ["operation", "nested", "count", *[f"{name}_ns" for name in STATISTICS]]
    columns += ["workers_share", "cpu_ns", "waiting_share", *CORE_TIMES]
    columns += ["read_bytes", "major_faults", "quantile_error"]
    table = pd.DataFrame(rows, columns=columns)
    kinds = scope.operations
    if len(kinds):
        kinds = kinds.assign(operation=kinds["operation"].astype(str))
        kinds = kinds.drop_duplicates("operation")[["operation", "parent", "kind"]]
        table = table.merge(kinds, on="operation", how="left")
    else:
        table = table.assign(parent="", kind="")
    return table.sort_values("total_ns", ascending=False).reset_index(drop=True)


def _row(name: str, cells: pd.DataFrame, took: Durations, whole: float) -> dict[str, object]:
    p50, p95, p99 = took.quantiles((0.5, 0.95, 0.99))
    used = _whole_sum(cells, "cpu_ns")
    waiting = 1.0 - float(np.minimum(ratio(used, took.total), 1.0))
    return {
        "operation": name,
        "nested": bool(cells["nested"].all()),
        "count": took.count,
        "total_ns": took.total,
        "mean_ns": took.mean,
        "p50_ns": p50,
        "p95_ns": p95,
        "p99_ns": p99,
        "std_ns": took.std,
        "max_ns": took.most,
        "workers_share": ratio(took.total, whole),
        "cpu_ns": used,
        "waiting_share": waiting,
        **_core_times(cells, used, took.total),
        "read_bytes": known_sum(cells, "read_bytes"),
        "major_faults": known_sum(cells, "major_faults"),
        "quantile_error": took.error,
    }


def _whole_sum(cells: pd.DataFrame, name: str) -> float:
    """Return the sum of a measure that each call has; NaN if some lack it."""
    whole = bool((cells[f"known_{name}"] == cells["count"]).all())
    return float(cells[name].sum()) if whole else float("nan")


def _core_times(cells: pd.DataFrame, used: float, took: float) -> dict[str, float]:
    """Return the CORE_TIMES of an operation of this CPU time and duration (ns)."""
    delay = _whole_sum(cells, "run_delay_ns")
    process = _whole_sum(cells, "process_cpu_ns")
    helpers = np.maximum(process - used, 0.0)
    values = (
        delay,
        ratio(delay, took),
        np.clip(ratio(took - used - delay, took), 0.0, 1.0),
        helpers,
        ratio(helpers, process),
    )
    return {name: float(value) for name, value in zip(CORE_TIMES, values, strict=True)}


def has_helpers(row: Mapping[str, Any]) -> bool:
    """Return whether other threads computed noticeably during an operation of the table."""
    helpers = row["helper_cpu_ns"]
    least = max(_LEAST_HELPER_CORES * row["total_ns"], _LEAST_HELPER_NS * row["count"])
    return bool(row["helper_share"] >= _LEAST_HELPER_SHARE and helpers >= least)


def workers_time(scope: Scope) -> float:
    """Return the ns in which workers made batches or were idle in the loop (main process: made)."""
    return making_time(scope) + total(float_column(scope.batches, "idle_in_loop_ns"))


def making_time(scope: Scope) -> float:
    """Return nanoseconds of the fetches, and of the workers' snapshots after them."""
    return total(float_column(scope.batches, "fetch_ns")) + total(
        float_column(scope.batches, "snapshot_ns")
    )


def worker_time_table(scope: Scope) -> pd.DataFrame:
    """Return the parts of the workers' time besides operations: part, total_ns, workers_share.

    With the operations that are not nested, these rows add up to the workers' time.
    """
    batches = scope.batches
    whole = workers_time(scope)
    parts = {
        OWN: scope.fetched.total("own_ns"),
        COLLATE: total(float_column(batches, "collate_ns")),
        REST: total(float_column(batches, "self_ns")),
        SNAPSHOT: total(float_column(batches, "snapshot_ns")),
        IDLE: total(float_column(batches, "idle_in_loop_ns")),
    }
    if not scope.fetched.count:
        # At level batch, only the collate inside a fetch is known.
        made = ~np.isnan(float_column(batches, "fetch_ns"))
        parts[REST] = total(float_column(batches, "fetch_ns")[made]) - parts[COLLATE]
    # With operations on several threads at once, the rest may be below zero.
    parts = {name: max(ns, 0.0) for name, ns in parts.items()}
    return pd.DataFrame(
        {
            "part": list(parts),
            "total_ns": list(parts.values()),
            "workers_share": [ratio(ns, whole) for ns in parts.values()],
        }
    )


def fetch_sums(scope: Scope) -> pd.DataFrame:
    """Return how the parts add up: rows for "sample" and "fetch".

    Columns: whole total_ns parts_ns own_ns remainder_ns remainder_share. A sample's parts are its
    top-level operations, a fetch's its samples and collate; own_ns is what is measured as neither
    and remainder_ns what is left over. A whole whose parts were not recorded has no row.
    """
    batches, fetched, cells = scope.batches, scope.fetched, scope.calls.cells
    if not fetched.count:
        return pd.DataFrame(columns=SUMS_COLUMNS)
    in_batches = total(fetched.in_batches(batches, "duration_ns"))
    made = ~np.isnan(float_column(batches, "fetch_ns"))
    collate, own = float_column(batches, "collate_ns"), float_column(batches, "self_ns")
    rows = []
    if fetched.total("known_self_ns"):
        inside = flag(cells, "in_sample") & ~flag(cells, "nested")
        operations = total(float_column(cells, "duration_ns")[inside])
        took, alone = fetched.total("duration_ns"), fetched.total("self_ns")
        rows.append(_sums_row("sample", took, operations, alone))
    parts = in_batches + total(collate[made])
    rows.append(
        _sums_row("fetch", total(float_column(batches, "fetch_ns")), parts, total(own[made]))
    )
    return pd.DataFrame(rows, columns=SUMS_COLUMNS)


def _sums_row(whole: str, total_ns: float, parts_ns: float, own_ns: float) -> dict[str, object]:
    remainder = total_ns - parts_ns - own_ns
    return {
        "whole": whole,
        "total_ns": total_ns,
        "parts_ns": parts_ns,
        "own_ns": own_ns,
        "remainder_ns": remainder,
        # Parts that overlap add up to more than the whole: nothing is left over.
        "remainder_share": max(remainder / total_ns, 0.0) if total_ns else 0.0,
    }


def slowest_operation(scope: Scope, chosen: pd.DataFrame) -> pd.DataFrame:
    """Return the operation that took longest in each of these samples: operation, operation_ns.

    `chosen`: their rank, loader, epoch, batch and position, with rows numbered from 0.
    """
    result = pd.DataFrame({"operation": [""] * len(chosen), "operation_ns": np.nan})
    keys = ["rank", "loader", "epoch", "batch"]
    unique = chosen.drop_duplicates(keys).reset_index(drop=True)
    near, places = [], BatchPlaces(unique)
    for part in scope.calls.contents.of_batches(unique):
        if len(part.ops):
            ops = part.ops[(places.rows(part.ops) >= 0) & ~flag(part.ops, "nested")]
            names = ops["operation"].astype(str)
            near.append(ops[[*keys, "position", "duration_ns"]].assign(operation=names))
    if not near:
        return result
    theirs = pd.concat(near).sort_values("duration_ns")
    last = theirs.drop_duplicates([*keys, "position"], keep="last")
    slowest = chosen[[*keys, "position"]].merge(last, on=[*keys, "position"], how="left")
    result["operation"] = slowest["operation"].astype(object).fillna("").astype(str)
    result["operation_ns"] = slowest["duration_ns"].to_numpy(np.float64)
    return result
