"""Reduces one run of a sweep to the numbers that the sweep's report needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.batches.components import core_taken, off_cpu
from lotus.analysis.common.columns import (
    flag,
    float_column,
    int_column,
    plain_value,
    process_keys,
    ratio,
    total,
)
from lotus.analysis.common.loader_titles import title_of
from lotus.analysis.common.operation_sums import known_sum, storage_ns
from lotus.analysis.common.remade_loaders import number_of
from lotus.analysis.common.scope import RunLike, Scope, iterated, table
from lotus.analysis.counters.counter_metrics import COLLATE, REST, counter_table, events_of
from lotus.analysis.counters.function_profile import known_events
from lotus.analysis.summary import LoaderSummary, summarise
from lotus.analysis.verdict.causes.transport import HANDOVER, INDEX, PINNING, SENDING
from lotus.common.numbers.array_types import Floats
from lotus.settings.space import Setting
from native_map.events import formulas

# Rows of `Reduced.operations` that are not operations of the program.
UNSPLIT = "collate and rest of the fetch"  # if no counter separates the two
SEND = "sending batches"
OUTSIDE = "rest of the command"
OWED = tuple(row.kind for row in (SENDING, PINNING, HANDOVER, INDEX))
SHARES = ("frontend_bound", "backend_bound", "retiring", "bad_speculation", "smt_contention")
DRAM = ("dram_loads", "dram_local_loads", "dram_remote_loads")
MOST_NAMED = 10  # loaders in a line
_KERNEL = ("minor_faults", "major_faults", "read_bytes")
_METRICS = ("ipc", *SHARES, "frontend_lost", "backend_lost", "dram_loads")
OPERATION_MEASURES = ("cpu_s", "wall_s", *_METRICS, *_KERNEL)


@dataclass(frozen=True)
class Reduced:
    """The numbers kept of a run.

    measures    name -> number, NaN if it was not measured; names include units, `*_share` and
                `utilisation` are between 0 and 1
    operations  a row per operation that is not nested, per other part of the fetch, "send" and
                "command" (the rest of the command): kind, operation, OPERATION_MEASURES (sums over
                the run; *_lost in cycles' worth of slots)
    loader      its title
    others      the other loaders that were iterated, as returned by `named`
    lost        number of records that could not be read
    """

    measures: dict[str, float]
    operations: pd.DataFrame
    loader: str
    lost: int
    others: tuple[str, ...] = ()


def chosen(run: RunLike, target: Mapping[str, Any] | None) -> int | None:
    """Return the loader of a sweep: the one with the most samples that matches; None: no match."""
    required = dict(target or {})
    if required.get("number") is not None:
        required["number"] = number_of(run, required["number"])
    for loader in iterated(run):
        row = _loader_rows(run, loader)
        if required.get("number") is not None and loader != required["number"]:
            continue
        names = set(row["dataset"].astype(str)) if len(row) else set()
        if required.get("dataset") is not None and required["dataset"] not in names:
            continue
        return loader
    return None


def named(run: RunLike) -> dict[int, str]:
    """Return names of iterated loaders, most samples first, such as "0 Photos at train.py:9"."""
    names = {}
    for loader in iterated(run):
        row = _loader_rows(run, loader).head(1)
        fields = {key: value for record in row.to_dict("records") for key, value in record.items()}
        texts = {str(key): value for key, value in fields.items() if isinstance(value, str)}
        names[loader] = f"{loader} {title_of(texts)}".rstrip()
    return names


def missing(run: RunLike, target: Mapping[str, Any] | None) -> str:
    """Return why `chosen` finds no loader."""
    names, required = list(named(run).values()), dict(target or {})
    if not names:
        return "no DataLoader was iterated under lotus in it"
    target_value = next((value for value in required.values() if value is not None), "such")
    listed = ", ".join(names[:MOST_NAMED])
    listed += f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"there is no loader {target_value} in it; there are: {listed}"


def _loader_rows(run: RunLike, loader: int) -> pd.DataFrame:
    rows: pd.DataFrame = run.loaders[int_column(run.loaders, "loader") == loader]
    return rows


def not_as_set(run: RunLike, loader: int, setting: Setting, varied: Sequence[str]) -> str:
    """Return how the loader differs from the setting; "" if it does not."""
    rows = _loader_rows(run, loader)
    expected = {name: getattr(setting, name) for name in ("num_workers", *varied)}
    if not setting.num_workers:
        expected = {
            name: expected[name] for name in expected if name in ("num_workers", "pin_memory")
        }
    for name, value in expected.items():
        if value is None or name not in rows:
            continue
        values = {plain_value(cell) for cell in rows[name]}
        if values != {value}:
            had = ", ".join(sorted(str(value) for value in values)) or "nothing"
            return f"{name} was {had} instead of {value}"
    return ""


def rate(run: RunLike, loader: int) -> float:
    """Return samples per second of the loader's loop; NaN if it took no batch."""
    loaders = summarise(run, loader=loader).loaders
    return next((o.times["samples_per_s"] for o in loaders if o.scope.loader == loader), np.nan)


def reduce(run: Any, loader: int, elapsed_s: float = np.nan, cpu_s: float = np.nan) -> Reduced:
    """Reduce a run; `elapsed_s` and `cpu_s` are those of the whole command with all processes."""
    summary = next(o for o in summarise(run, loader=loader).loaders if o.scope.loader == loader)
    counted = _counted(run, loader)
    operations = _operations(run, summary, counted, cpu_s)
    return Reduced(
        measures={**_measures(run, summary, elapsed_s, cpu_s), **_hardware(run, counted, summary)},
        operations=operations,
        loader=summary.scope.title,
        lost=int(table(run, "lost")["count"].sum()) if len(table(run, "lost")) else 0,
        others=tuple(name for number, name in named(run).items() if number != loader),
    )


def _measures(run: Any, summary: LoaderSummary, elapsed_s: float, cpu_s: float) -> dict[str, float]:
    scope, times = summary.scope, summary.times
    batches = scope.batches
    fetch = np.nan_to_num(float_column(batches, "fetch_ns"))
    cpu = float_column(batches, "cpu_ns")
    fetched, used = total(fetch), total(cpu) if (~np.isnan(cpu)).any() else np.nan
    samples_made = total(
        float_column(batches, "size")[~np.isnan(float_column(batches, "fetch_ns"))]
    )
    cores = scope.cores * max(len(scope.ranks), 1)
    off, core_taken_ns = (total(part(batches, fetch)) for part in (off_cpu, core_taken))
    # If only some batches were recorded, their mean represents all.
    share = ratio(len(scope.waits), int((fetch > 0).sum())) if scope.partial else 1.0
    loop_ns = times["loop_ns"] / max(len(scope.ranks), 1)
    blocked = times["wait_ns"] + times["iter_ns"] + max(times["tail_ns"], 0.0)
    return {
        "elapsed_s": elapsed_s,
        "loop_s": loop_ns / 1e9,
        "samples": float(times["samples"]),
        "samples_per_s": times["samples_per_s"],
        "wait_share": ratio(blocked, times["loop_ns"]),
        "input_share": summary.verdict.input_share,
        "step_share": summary.verdict.step_share,
        "edges_share": summary.verdict.startup_share + summary.verdict.shutdown_share,
        "startup_s": times["startup_mean_ns"] / 1e9,
        "idle_share": times["workers_idle_share"] if scope.num_workers else np.nan,
        "cpu_s": cpu_s,
        "utilisation": ratio(cpu_s, elapsed_s * cores),
        "fetch_cpu_s": used / 1e9,
        "fetch_utilisation": ratio(used * share, loop_ns * cores),
        "cpu_us_per_sample": ratio(used / 1e3, samples_made),
        "wall_us_per_sample": ratio(fetched / 1e3, samples_made),
        "queue_share": _share(core_taken_ns, fetched, used),
        "off_share": _share(off, fetched, used),
        "storage_share": _share(min(off, _storage_ns(batches)), fetched, used),
        "read_bytes": _sum(float_column(batches, "read_bytes")),
        "minor_faults": _sum(float_column(batches, "minor_faults")),
        "major_faults": _sum(float_column(batches, "major_faults")),
        "voluntary_switches": _sum(float_column(batches, "voluntary_switches")),
        "involuntary_switches": _sum(float_column(batches, "involuntary_switches")),
        "send_s": total(float_column(batches, "send_ns")) / 1e9,
        "memory_bytes": peak_memory(table(run, "resources")),
        **_owed(summary),
    }


def _owed(summary: LoaderSummary) -> dict[str, float]:
    """Return shares of the loop due to transport of batches, not to fetching or training steps."""
    shares = dict.fromkeys(OWED, 0.0)
    for cause in summary.verdict.causes:
        if cause.kind in OWED:
            shares[cause.kind] += cause.share
    return {f"{kind}_owed_share": value for kind, value in shares.items()}


def _share(part: float, fetched: float, used: float) -> float:
    """Return `part` as a share of the fetches; NaN if their CPU time was not measured."""
    return float("nan") if np.isnan(used) else ratio(part, fetched)


def _sum(values: Floats) -> float:
    return float("nan") if np.isnan(values).all() else total(values)


def _storage_ns(batches: pd.DataFrame) -> float:
    """Return an upper bound of the time of the batches' reads from local storage."""
    return total(
        storage_ns(float_column(batches, "read_bytes"), float_column(batches, "major_faults"))
    )


def peak_memory(resources: pd.DataFrame) -> float:
    """Return the largest sum of PSS over all processes within a second, in bytes.

    RSS is used where PSS is missing; it counts shared memory once per process. NaN if nothing was
    recorded.
    """
    pss, rss = float_column(resources, "pss"), float_column(resources, "rss")
    used = np.where(np.nan_to_num(pss) > 0, pss, rss)
    known = ~np.isnan(used) & (used > 0)
    if not known.any():
        return float("nan")
    time = float_column(resources, "time_ns")[known]
    frame = pd.DataFrame(
        {
            "second": ((time - time.min()) // 1e9).astype(np.int64),
            "process": process_keys(resources)[known],
            "bytes": used[known],
        }
    )
    by_second = frame.pivot_table(index="second", columns="process", values="bytes", aggfunc="max")
    # A process that was not sampled in a second is assumed to exist for two more.
    return float(
        by_second.reindex(range(int(by_second.index.max()) + 1)).ffill(limit=2).sum(axis=1).max()
    )


def _counted(run: Any, loader: int) -> pd.DataFrame:
    counters = table(run, "counters")
    mine: pd.DataFrame = counters[int_column(counters, "loader") == loader]
    return mine.reset_index(drop=True)


def _cpu_of(run: RunLike) -> str:
    return str(run.manifest.get("uarch") or "generic")


def _hardware(run: Any, counted: pd.DataFrame, summary: LoaderSummary) -> dict[str, float]:
    """Return metrics of all fetches together; empty if they were not counted."""
    fetch = counted[counted["kind"].astype(str) == "fetch"] if len(counted) else counted
    if not len(fetch):
        return {}
    events = fetch[events_of(fetch)].astype(np.float64)
    good = events[events.notna().all(axis=1)]
    if not len(good):
        return {}
    sums = pd.DataFrame([good.sum()])
    known_table = known_events(run.manifest, _cpu_of(run))
    metrics = formulas.clip_shares(formulas.metrics(sums, _cpu_of(run), known_table))
    row = {**sums.iloc[0].to_dict(), **metrics.iloc[0].to_dict()}
    known = {name: float(row[name]) for name in ("ipc", *SHARES) if name in row}
    samples_made = total(float_column(summary.scope.batches, "size")) * ratio(len(good), len(fetch))
    loads = [float(row[name]) for name in DRAM if name in row]
    if loads:
        known["dram_loads_per_sample"] = ratio(sum(loads), samples_made)
    for side in ("frontend", "backend"):
        if f"{side}_bound" in known and "cycles" in row:
            lost = known[f"{side}_bound"] * float(row["cycles"])
            known[f"{side}_lost_per_sample"] = ratio(lost, samples_made)
    return known


def _operations(
    run: Any, summary: LoaderSummary, counted: pd.DataFrame, cpu_s: float
) -> pd.DataFrame:
    scope = summary.scope
    exact = counter_table(counted, _cpu_of(run), known_events(run.manifest, _cpu_of(run)))
    rows = _timed(scope) + _other(summary, exact)
    table = pd.DataFrame(rows, columns=["kind", "operation", "cpu_s", "wall_s", "minor_faults",
                                       "major_faults", "read_bytes"])  # fmt: skip
    used = table.loc[table["kind"] != "send", "cpu_s"]
    if not np.isnan(cpu_s) and used.notna().all():
        outside = {"kind": "command", "operation": OUTSIDE, "cpu_s": max(cpu_s - used.sum(), 0.0)}
        table = pd.concat([table, pd.DataFrame([outside])], ignore_index=True)
    table = table.merge(_counts(exact), on=["kind", "operation"], how="left")
    return table.reindex(columns=["kind", "operation", *OPERATION_MEASURES])


def _timed(scope: Scope) -> list[dict[str, Any]]:
    """Return the operations of batches that are not nested."""
    return [
        {"kind": "operation", "operation": str(name), "cpu_s": known_sum(part, "cpu_ns") / 1e9,
         "wall_s": known_sum(part, "duration_ns") / 1e9,
         **{name: known_sum(part, name) for name in ("minor_faults", "major_faults", "read_bytes")}}
        for name, part in _in_fetches(scope).groupby("operation", sort=False)
    ]  # fmt: skip


def _in_fetches(scope: Scope) -> pd.DataFrame:
    """Return sums of operations that, with collate and the rest, add up to the fetches."""
    cells = scope.calls.cells
    return cells[flag(cells, "in_batch") & ~flag(cells, "nested")]


def _other(summary: LoaderSummary, exact: pd.DataFrame) -> list[dict[str, Any]]:
    """Return collate and the rest of the fetch (separate if their CPU time is known), and send."""
    scope = summary.scope
    batches, cells = scope.batches, _in_fetches(scope)
    # NaN where that of the operations was not measured.
    measured = (cells["known_cpu_ns"] == cells["count"]).all()
    used = _sum(float_column(batches, "cpu_ns")) - (cells["cpu_ns"].sum() if measured else np.nan)
    rest_ns = total(float_column(batches, "fetch_ns")) - total(float_column(cells, "duration_ns"))
    collate = total(float_column(batches, "collate_ns"))
    rows: list[dict[str, Any]] = []

    def add(kind: str, name: str, used_ns: float, took_ns: float) -> None:
        cpu_s, wall_s = (float(np.maximum(ns, 0.0)) / 1e9 for ns in (used_ns, took_ns))
        rows.append({"kind": kind, "operation": name, "cpu_s": cpu_s, "wall_s": wall_s})

    counted_collate = exact[exact["kind"] == "collate"] if "task_clock" in exact else exact.iloc[:0]
    if len(counted_collate) and float(counted_collate["counted"].iloc[0]) > 0:
        row = counted_collate.iloc[0]
        apart = float(row["task_clock"]) * float(row["intervals"]) / float(row["counted"])
        add("collate", COLLATE, apart, collate)
        add("fetch", REST, used - apart, rest_ns - collate)
    elif (float_column(batches, "fetch_ns") > 0).any():
        add("fetch", UNSPLIT, used, rest_ns)
    sending = total(float_column(batches, "send_ns"))
    if scope.num_workers and sending:
        add("send", SEND, np.nan, sending)
    return rows


def _counts(exact: pd.DataFrame) -> pd.DataFrame:
    """Return metrics per operation; the first columns are kind and operation."""
    columns = ["kind", "operation", *_METRICS]
    if not len(exact):
        return pd.DataFrame(columns=columns)
    rows = exact[~exact["nested"].to_numpy(np.bool_)].copy()
    loads = [name for name in DRAM if name in rows]
    if loads:
        rows["dram_loads"] = rows[loads].sum(axis=1, min_count=len(loads))
    for side in ("frontend", "backend"):
        if f"{side}_bound" in rows and "cycles" in rows:
            rows[f"{side}_lost"] = rows[f"{side}_bound"] * rows["cycles"]
    return rows.reindex(columns=columns)
