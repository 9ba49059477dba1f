"""Per-operation statistics and the books of a fetch."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lotus.analysis.batches.components import COLLATE, OWN, REST, SNAPSHOT, own_time
from lotus.analysis.common.columns import (
    Floats,
    batch_rows,
    distribution,
    flag,
    integer,
    number,
    ratio,
    total,
)
from lotus.analysis.common.scope import Scope

IDLE = "idle"
BOOK = ["whole", "total_ns", "parts_ns", "own_ns", "remainder_ns", "remainder_share"]
STATISTICS = ("total", "mean", "p50", "p95", "p99", "std", "max")


def operation_table(scope: Scope) -> pd.DataFrame:
    """One row per operation, the largest total first; durations in float nanoseconds.

    Columns: operation parent kind nested count total_ns mean_ns p50_ns p95_ns p99_ns std_ns max_ns
    workers_share (of the workers' time, fetching and idle; of the fetching time without workers)
    cpu_ns waiting_share read_bytes major_faults (NaN where not recorded). The time of a nested
    operation is also in that of the operation around it.
    """
    ops = scope.ops
    rows = []
    if len(ops):
        category = ops["operation"].astype("category")
        codes = category.cat.codes.to_numpy(np.int64)
        order = np.argsort(codes, kind="stable")
        edges = np.searchsorted(codes[order], np.arange(len(category.cat.categories) + 1))
        measured = {
            name: number(ops, name)
            for name in ("duration_ns", "cpu_ns", "read_bytes", "major_faults")
        }
        nested, whole = flag(ops, "nested"), workers_time(scope)
        for code, name in enumerate(category.cat.categories):
            mine = order[edges[code] : edges[code + 1]]
            if mine.size:
                part = {key: values[mine] for key, values in measured.items()}
                row = _row(str(name), bool(nested[mine].all()), part, whole)
                rows.append(row)
    columns = ["operation", "nested", "count", *[f"{name}_ns" for name in STATISTICS]]
    columns += ["workers_share", "cpu_ns", "waiting_share", "read_bytes", "major_faults"]
    table = pd.DataFrame(rows, columns=columns)
    kinds = scope.operations
    if len(kinds):
        kinds = kinds.assign(operation=kinds["operation"].astype(str))
        kinds = kinds.drop_duplicates("operation")[["operation", "parent", "kind"]]
        table = table.merge(kinds, on="operation", how="left")
    else:
        table = table.assign(parent="", kind="")
    return table.sort_values("total_ns", ascending=False).reset_index(drop=True)


def _row(name: str, nested: bool, part: dict[str, Floats], whole: float) -> dict[str, object]:
    spread = distribution(part["duration_ns"])
    cpu = part["cpu_ns"]
    measured = bool(cpu.size) and not np.isnan(cpu).any()
    return {
        "operation": name,
        "nested": nested,
        "count": spread["count"],
        **{f"{key}_ns": spread[key] for key in STATISTICS},
        "workers_share": ratio(spread["total"], whole),
        "cpu_ns": float(cpu.sum()) if measured else np.nan,
        "waiting_share": 1 - min(ratio(float(cpu.sum()), spread["total"]), 1)
        if measured
        else np.nan,
        "read_bytes": _sum(part["read_bytes"]),
        "major_faults": _sum(part["major_faults"]),
    }


def _sum(values: Floats) -> float:
    return np.nan if np.isnan(values).all() else float(np.nansum(values))


def workers_time(scope: Scope) -> float:
    """Nanoseconds that the workers made batches or were idle in the loop (main process: made)."""
    return making_time(scope) + total(number(scope.batches, "idle_in_loop_ns"))


def making_time(scope: Scope) -> float:
    """Nanoseconds of the fetches, and of the workers' snapshots after them."""
    return total(number(scope.batches, "fetch_ns")) + total(number(scope.batches, "snapshot_ns"))


def worker_time_table(scope: Scope) -> pd.DataFrame:
    """What the workers' time went to besides operations: part, total_ns, workers_share.

    With the operations that are not nested, these rows add up to the workers' time.
    """
    batches, samples = scope.batches, scope.samples
    whole = workers_time(scope)
    parts = {
        OWN: total(own_time(samples)),
        COLLATE: total(number(batches, "collate_ns")),
        REST: total(number(batches, "self_ns")),
        SNAPSHOT: total(number(batches, "snapshot_ns")),
        IDLE: total(number(batches, "idle_in_loop_ns")),
    }
    if not len(samples):
        # At level batch nothing inside the fetch but its collate is known.
        made = ~np.isnan(number(batches, "fetch_ns"))
        parts[REST] = total(number(batches, "fetch_ns")[made]) - parts[COLLATE]
    # What operations on several threads at once leave over may be below zero.
    parts = {name: max(ns, 0.0) for name, ns in parts.items()}
    return pd.DataFrame(
        {
            "part": list(parts),
            "total_ns": list(parts.values()),
            "workers_share": [ratio(ns, whole) for ns in parts.values()],
        }
    )


def books(scope: Scope) -> pd.DataFrame:
    """Whether the parts add up: rows for "sample" and "fetch".

    Columns: whole total_ns parts_ns own_ns remainder_ns remainder_share. A sample's parts are its
    top-level operations, a fetch's its samples and collate; own_ns is what is measured as neither
    and remainder_ns what is left over. A whole whose parts were not recorded has no row.
    """
    batches, samples, ops = scope.batches, scope.samples, scope.ops
    inside = (integer(ops, "position") >= 0) & ~flag(ops, "nested")
    row = batch_rows(batches, samples)
    if not len(samples):
        return pd.DataFrame(columns=BOOK)
    duration = number(samples, "duration_ns")
    in_batches = total(duration[row >= 0])
    made = ~np.isnan(number(batches, "fetch_ns"))
    collate, own = number(batches, "collate_ns"), number(batches, "self_ns")
    rows = []
    if not np.isnan(number(samples, "self_ns")).all():
        operations = total(number(ops, "duration_ns")[inside])
        rows.append(_book("sample", total(duration), operations, total(number(samples, "self_ns"))))
    parts = in_batches + total(collate[made])
    rows.append(_book("fetch", total(number(batches, "fetch_ns")), parts, total(own[made])))
    return pd.DataFrame(rows, columns=BOOK)


def _book(whole: str, total_ns: float, parts_ns: float, own_ns: float) -> dict[str, object]:
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


def slowest_operation(scope: Scope, rows: Sequence[int]) -> pd.DataFrame:
    """For rows of `samples`: the operation that took longest in each; operation, operation_ns."""
    samples, ops = scope.samples, scope.ops
    chosen = samples.iloc[list(rows)].reset_index(drop=True)
    result = pd.DataFrame({"operation": [""] * len(chosen), "operation_ns": np.nan})
    if not len(ops) or not len(chosen):
        return result
    keys = ["rank", "loader", "epoch", "batch"]
    unique = chosen.drop_duplicates(keys).reset_index(drop=True)
    near = np.flatnonzero(batch_rows(unique, ops, keys) >= 0)
    theirs = ops.iloc[near][[*keys, "position", "operation", "duration_ns", "nested"]]
    theirs = theirs[~theirs["nested"].to_numpy(bool)].sort_values("duration_ns")
    last = theirs.drop_duplicates([*keys, "position"], keep="last")
    slowest = chosen[[*keys, "position"]].merge(last, on=[*keys, "position"], how="left")
    result["operation"] = slowest["operation"].astype(object).fillna("").astype(str)
    result["operation_ns"] = slowest["duration_ns"].to_numpy(np.float64)
    return result
