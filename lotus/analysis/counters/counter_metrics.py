"""Counters and metrics per operation: exact sums, and the use of the CPU's slots."""

from typing import Any

import numpy as np
import pandas as pd

from lotus.common.numbers.array_types import Floats
from native_map.events import formulas
from native_map.events.event_model import EventTable

REST = "(own code, rest of fetch)"
COLLATE = "collate"
BASE = [
    *("kind", "operation", "nested", "intervals", "counted", "total_ns", "running_share"),
    "turn_share",
]
NOT_EVENTS = frozenset(
    "rank local_rank world_size host pid tid worker loader epoch batch kind operation nested row "
    "start_ns duration_ns readings enabled_ns running_ns scaled helper_ns".split()
)


def events_of(counters: pd.DataFrame) -> list[str]:
    """Return the columns of `Run.counters` that are events."""
    return [str(name) for name in counters.columns if name not in NOT_EVENTS]


def counter_table(
    counters: pd.DataFrame, cpu: str, known: EventTable | None = None
) -> pd.DataFrame:
    """Return one row per operation, then collate and the rest of the fetch; by time.

    Columns: kind ("operation", "collate", "fetch"), operation, nested (in another one, which holds
    its counts too), intervals, counted (of them; the sums are over these), total_ns (of these),
    running_share (of the time in which the counters were on them; below 1 the counts are scaled),
    turn_share (of the counted intervals in which the event counted least was counted: below 1
    groups of events took turns), one column per event (sums; those of a group that took turns are
    scaled to all counted intervals by cycles, or by time), and the metrics of
    `native_map.events.formulas.metrics` for micro-architecture `cpu` (or of the table `known`),
    each only where this machine's events give it.
    """
    events = events_of(counters)
    if not len(counters):
        return pd.DataFrame(columns=BASE)
    kind = counters["kind"].astype(str).to_numpy(object)
    name = np.where(kind == "operation", counters["operation"].astype(str), COLLATE)
    name = np.where(kind == "fetch", REST, name)
    values = counters[events].to_numpy(np.float64)
    enabled, running = (
        counters[column].to_numpy(np.float64) for column in ("enabled_ns", "running_ns")
    )
    took = counters["duration_ns"].to_numpy(np.float64)
    nested = counters["nested"].to_numpy(np.bool_)
    counted = ~np.isnan(values).all(axis=1)
    fetch = kind == "fetch"
    values, took, counted = _rest(counters, values, took, counted, fetch, nested)
    rows: list[dict[str, Any]] = []
    codes, names = pd.factorize(name)
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(len(names) + 1))
    for code, label in enumerate(names):
        mine = order[edges[code] : edges[code + 1]]
        good = mine[counted[mine]]
        sums, turn_share = _sums(values[good], took[good], events)
        on = float(enabled[mine].sum())
        rows.append(
            {
                "kind": kind[mine[0]],
                "operation": str(label),
                "nested": bool(nested[mine].all()),
                "intervals": len(mine),
                "counted": len(good),
                "total_ns": float(took[good].sum()),
                "running_share": float(running[mine].sum()) / on if on else np.nan,
                "turn_share": turn_share,
                **dict(zip(events, sums, strict=True)),
            }
        )
    table = pd.DataFrame(rows, columns=[*BASE, *events])
    derived = formulas.clip_shares(formulas.metrics(table[events], cpu, known))
    table = pd.concat([table, derived[[name for name in derived if name not in table]]], axis=1)
    kinds = table["kind"].map({"operation": 0, "collate": 1, "fetch": 2})
    return (
        table.assign(_kind=kinds)
        .sort_values(["_kind", "total_ns"], ascending=[True, False], kind="stable")
        .drop(columns="_kind")
        .reset_index(drop=True)
    )


def _sums(values: Floats, took: Floats, events: list[str]) -> tuple[Floats, float]:
    """Return sums of events over intervals, and the least share of these that one was counted in.

    An event that was not counted in all of them is scaled by the cycles that those have in which it
    was: so all that is divided by cycles is as it was in the turns of its own group.
    """
    if not len(values):
        return np.full(len(events), np.nan), float("nan")
    known = ~np.isnan(values)
    weight = took
    if "cycles" in events and known[:, events.index("cycles")].all():
        weight = values[:, events.index("cycles")]
    sums = np.where(known, values, 0.0).sum(axis=0)
    covered = (known * weight[:, None]).sum(axis=0)
    share = known.mean(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = sums * np.where(share < 1, weight.sum() / covered, 1.0)
    return np.where(share > 0, scaled, np.nan), float(share.min())


def _rest(
    counters: pd.DataFrame,
    values: Floats,
    took: Floats,
    counted: Any,
    fetch: Any,
    nested: Any,
) -> tuple[Floats, Floats, Any]:
    """Subtract from each fetch what lies in it, so that no count stands in two rows."""
    key = pd.factorize(
        pd.MultiIndex.from_arrays(
            [counters[column].to_numpy() for column in ("pid", "tid", "loader", "epoch", "batch")]
        )
    )[0]
    size = int(key.max()) + 1
    inner = ~fetch & ~nested
    values, took, counted = values.copy(), took.copy(), counted.copy()
    for event in range(values.shape[1]):
        inside = values[inner, event]
        whole = np.bincount(key[inner], np.nan_to_num(inside), minlength=size)
        incomplete = np.bincount(key[inner], np.isnan(inside), minlength=size) > 0
        values[fetch, event] -= whole[key[fetch]]
        values[fetch, event] = np.where(incomplete[key[fetch]], np.nan, values[fetch, event])
    counted[fetch] = ~np.isnan(values[fetch]).all(axis=1)
    took[fetch] -= np.bincount(key[inner], took[inner], minlength=size)[key[fetch]]
    return values, took, counted


def turn_shares(counters: pd.DataFrame) -> list[tuple[list[str], float]]:
    """Return groups of events that took turns by batch, and the share of batches that each got.

    Of the fetches that were counted at all; an event that was counted in all of them is in none.
    """
    events = events_of(counters)
    fetches = counters[counters["kind"] == "fetch"] if len(counters) else counters
    known = ~np.isnan(fetches[events].to_numpy(np.float64))
    known = known[known.any(axis=1)]
    groups: dict[bytes, tuple[list[str], float]] = {}
    for index, event in enumerate(events):
        share = float(known[:, index].mean()) if len(known) else 1.0
        if 0 < share < 1:
            groups.setdefault(known[:, index].tobytes(), ([], share))[0].append(event)
    return list(groups.values())


def helper_share(counters: pd.DataFrame) -> float:
    """Return the CPU time of helper threads over that of all threads, during fetches.

    Helpers are other threads of the fetching processes (pools that operations start). NaN where the
    thread's own time was not counted.
    """
    if "task_clock" not in counters.columns:
        return float("nan")
    fetch = counters[counters["kind"] == "fetch"]
    helper, own = fetch["helper_ns"].sum(), fetch["task_clock"].sum()
    return float(helper / (helper + own)) if helper + own else float("nan")
