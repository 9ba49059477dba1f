"""Exact counts of a run, from the readings that the recorder kept."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lotus.assemble import Assembly, Ints, Process, match
from lotus.batches import categories, frame, repeat, signed, whose
from lotus.details import Names, counted_rows
from lotus.frames import Array
from lotus.inside.perf_event import HEADER

KINDS = ("operation", "fetch", "collate")
OPERATION, FETCH, COLLATE = range(3)


class Counted(NamedTuple):
    """Counted intervals of one process, one element each; counts as (intervals, events)."""

    kind: Array
    batch_row: Ints  # of the process's batch frames
    ops_row: Ints  # of the process's operations, -1: not one
    readings: Ints  # how many readings cost something in it
    enabled_ns: Ints
    running_ns: Ints
    helper_ns: Array  # float64, NaN but for FETCH
    counts: Array  # float64, cost of reading taken off, scaled where multiplexed


def names_of(a: Assembly) -> list[str]:
    """The events that were counted, in the order in which they were asked for."""
    names: dict[str, None] = {}
    for process in a.processes:
        for event in process.events["counters"]:
            names.update(dict.fromkeys(_names(event)))
    return list(names)


def _names(event: dict[str, Any]) -> list[str]:
    return [str(one.get("name")) for one in event["events"] if isinstance(one, dict)]


def _costs(process: Process, tids: Array, events: int) -> Array:
    """What a reading adds to each count, as (rows, events): by thread, the last that was told."""
    costs = np.zeros((len(tids), events))
    for event in process.events["counters"]:
        told = event["read_counts"]
        if len(told) == events and all(isinstance(one, (int, float)) for one in told):
            costs[tids == event["tid"]] = told
    return costs


def counted(process: Process, op_place: Ints | None) -> Counted | None:
    """The counts of a process; None where there are none that can be read."""
    fixed, batch = process.log.fixed["counts"], process.log.fixed["batch"]
    if not len(fixed) or not len(batch) or not process.events["counters"]:
        return None
    names = _names(process.events["counters"][0])
    words = HEADER + len(names)
    arrays = process.log.arrays("counts", ("readings", "edges"))
    sizes, edge_counts = signed(fixed["n_readings"]), signed(fixed["n_edges"])
    row = match(
        (fixed["fetch_start_ns"], fixed["tid"]), (batch["fetch_start_ns"], batch["tid"]), last=True
    )
    good = (fixed["words"] == words) & (sizes % words == 0) & (sizes > 0) & (row >= 0)
    # An operation that was not counted would shift all that follow it.
    full = good & (edge_counts == signed(batch["n_ops"])[row])
    if not good.any():
        return None
    readings = arrays["readings"]["word"][np.repeat(good, sizes)].reshape(-1, words)
    first_reading = np.cumsum(np.where(good, sizes // words, 0)) - np.where(good, sizes // words, 0)
    last_reading = first_reading + sizes // words - 1

    # Edges of operations, then of fetches, then of collates.
    use = np.repeat(full, edge_counts)
    frame_of = np.repeat(np.arange(len(fixed)), edge_counts)[use]
    place = (np.arange(len(use)) - np.repeat(np.cumsum(edge_counts) - edge_counts, edge_counts))[
        use
    ]
    ops = signed(batch["n_ops"])
    ops_row = (np.cumsum(ops) - ops)[row[frame_of]] + place
    begin = first_reading[frame_of] + signed(arrays["edges"]["first"])[use]
    end = first_reading[frame_of] + signed(arrays["edges"]["last"])[use]
    fetches = np.flatnonzero(good)
    collates = np.flatnonzero(good & (fixed["collate_last"] > 0))
    owner = np.concatenate((frame_of, fetches, collates))
    begin = np.concatenate(
        (begin, first_reading[fetches], (first_reading + fixed["collate_first"])[collates])
    ).astype(np.int64)
    end = np.concatenate(
        (end, last_reading[fetches], (first_reading + fixed["collate_last"])[collates])
    ).astype(np.int64)
    kind = np.repeat(
        np.array([OPERATION, FETCH, COLLATE], np.int8), (len(frame_of), len(fetches), len(collates))
    )
    rows = np.concatenate((ops_row, np.full(len(fetches) + len(collates), -1, np.int64)))
    if op_place is not None:
        # Operations that lie in no sample are not in the table.
        where = np.full(int(ops.sum()), -1, np.int64)
        where[op_place] = np.arange(len(op_place))
        known = where[np.maximum(rows, 0)] if len(where) else rows
        rows = np.where(rows >= 0, known, -1)
    inside = (begin <= end) & (end <= last_reading[owner])
    inside &= (kind != OPERATION) | (rows >= 0)
    begin, end, kind, rows, owner = (one[inside] for one in (begin, end, kind, rows, owner))

    delta = (readings[end] - readings[begin]).view(np.int64)
    made = (readings[end, 0] > 0) & (readings[begin, 0] > 0)
    steps = end - begin
    counts = delta[:, HEADER:] - steps[:, None] * _costs(process, fixed["tid"][owner], len(names))
    enabled, running = delta[:, 1], delta[:, 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        counts *= np.where(running < enabled, enabled / running, 1.0)[:, None]
    counts[~made | ((running <= 0) & (enabled > 0))] = np.nan
    helper = np.where(kind == FETCH, fixed["helper_ns"][owner].astype(np.float64), np.nan)
    return Counted(kind, row[owner], rows, steps, enabled, running, helper, counts)


def counters(a: Assembly) -> tuple[pd.DataFrame, Ints]:
    """(one row per counted interval: see Run.counters, row of each one's batch in `a.batch`)."""
    events = names_of(a)
    parts: list[dict[str, Any]] = []
    rows_of: list[int] = []
    batch_rows: list[Ints] = []
    names: dict[str, int] = {"": 0}
    before = 0  # rows of run.ops of earlier processes
    for process, own in zip(a.processes, a.slices, strict=True):
        rows = counted_rows(process)
        found = counted(process, rows.op_place)
        rows_of.append(0 if found is None else len(found.kind))
        if found is not None and rows_of[-1]:
            batch, row = a.batch[own], found.batch_row
            is_op = found.ops_row >= 0
            place = np.maximum(found.ops_row, 0)
            part: dict[str, Any] = {
                "tid": batch["tid"][row].astype(np.int32),
                "worker": batch["worker"][row],
                "loader": a.batch_loader[own][row].astype(np.int32),
                "epoch": a.batch_epoch[own][row].astype(np.int32),
                "batch": signed(batch["batch"])[row],
                "kind": found.kind,
                "row": np.where(is_op, before + found.ops_row, -1),
            }
            codes = Names(process, names).code
            some = len(rows.start_ns) > 0
            part["operation"] = np.zeros(len(row), np.int32)
            part["nested"] = np.zeros(len(row), np.bool_)
            start = signed(batch["fetch_start_ns"])[row]
            took = signed(batch["fetch_ns"])[row]
            collate = found.kind == COLLATE
            start = np.where(collate, signed(batch["collate_start_ns"])[row], start)
            took = np.where(collate, signed(batch["collate_ns"])[row], took)
            if some:
                ids = np.minimum(rows.operation, len(codes) - 1)
                part["operation"] = np.where(is_op, codes[ids][place], 0).astype(np.int32)
                part["nested"] = is_op & rows.nested[place]
                start = np.where(is_op, rows.start_ns[place], start)
                took = np.where(is_op, rows.duration_ns[place], took)
            part |= {"start_ns": start, "duration_ns": took, "readings": found.readings}
            part |= {"enabled_ns": found.enabled_ns, "running_ns": found.running_ns}
            part |= {"scaled": found.running_ns < found.enabled_ns, "helper_ns": found.helper_ns}
            mine = _names(process.events["counters"][0])
            for event in events:
                missing = np.full(len(row), np.nan)
                at = mine.index(event) if event in mine else -1
                part[event] = found.counts[:, at] if at >= 0 else missing
            parts.append(part)
            batch_rows.append(row + own.start)
        before += rows.total
    columns: dict[str, Any] = {}
    order = "tid worker loader epoch batch kind operation nested row start_ns duration_ns readings"
    for name in [*order.split(), "enabled_ns", "running_ns", "scaled", "helper_ns", *events]:
        columns[name] = np.concatenate([part[name] for part in parts]) if parts else np.empty(0)
    if not parts:
        columns |= {name: np.empty(0, np.int64) for name in order.split()}
        columns["nested"] = columns["scaled"] = np.empty(0, np.bool_)
    columns["kind"] = categories(columns["kind"].astype(np.int8), KINDS)
    columns["operation"] = categories(columns["operation"].astype(np.int32), list(names))
    owners = np.concatenate([np.empty(0, np.int64), *batch_rows])
    return frame({**whose(a, repeat(rows_of)), **columns}), owners
