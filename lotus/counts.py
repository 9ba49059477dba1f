"""Exact counts of a run, from the readings that the recorder kept."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lotus.assemble import Assembly, Ints, Process, is_a, match
from lotus.batches import categories, frame, repeat, signed, whose
from lotus.details import Names, counted_rows
from lotus.frames import Array, ranges
from lotus.inside.perf_event import HEADER

KINDS = ("operation", "fetch", "collate")
OPERATION, FETCH, COLLATE = range(3)


class Event(NamedTuple):
    """A counted event: where its count stands in a reading, and what a reading adds to it."""

    name: str
    word: int
    group_word: int  # where its group begins: how many events, enabled ns, running ns
    cost: float


class Counted(NamedTuple):
    """Counted intervals of one process, one element each; counts as (intervals, events)."""

    kind: Array
    batch_row: Ints  # of the process's batch frames
    ops_row: Ints  # of the process's operations, -1: not one
    readings: Ints  # how many readings cost something in it
    enabled_ns: Ints  # of the group that ran least
    running_ns: Ints
    helper_ns: Array  # float64, NaN but for FETCH
    counts: Array  # float64, cost of reading taken off, scaled where multiplexed


def names_of(a: Assembly) -> list[str]:
    """The events that were counted, in the order in which they were asked for."""
    names: dict[str, None] = {}
    for process in a.processes:
        for told in process.events["counters"]:
            names.update(dict.fromkeys(event.name for event in _layout(told)[0]))
    return list(names)


def events_of(a: Assembly) -> list[dict[str, Any]]:
    """What the events are to the kernel, each name once: as perf_event.Event has it."""
    found: dict[str, dict[str, Any]] = {}
    needed = {"name": str, "type": int, "config": int, "config1": int, "flags": str}
    for process in a.processes:
        for told in process.events["counters"]:
            for one in told["events"]:
                if isinstance(one, dict) and all(is_a(one.get(k), t) for k, t in needed.items()):
                    found.setdefault(one["name"], {key: one[key] for key in needed})
    return list(found.values())


def _layout(told: dict[str, Any]) -> tuple[list[Event], int]:
    """The events of a `counters` event and how many words a reading has; ([], 0) if damaged."""
    events: list[Event] = []
    word, group_word = 0, 0
    group: Any = None
    for one in told["events"]:
        if not isinstance(one, dict) or not is_a(one.get("name"), str):
            return [], 0
        cost = one.get("read_count")
        if one.get("group") != group:
            group, group_word, word = one.get("group"), word, word + HEADER
        known = isinstance(cost, (int, float)) and not isinstance(cost, bool)
        events.append(Event(one["name"], word, group_word, float(cost or 0) if known else 0.0))
        word += 1
    return events, word


def _costs(process: Process, tids: Array, names: list[str]) -> Array:
    """What a reading adds to each count, as (rows, events): by thread, the last that was told."""
    costs = np.zeros((len(tids), len(names)))
    for told in process.events["counters"]:
        events, _ = _layout(told)
        if [event.name for event in events] == names:
            costs[tids == told["tid"]] = [event.cost for event in events]
    return costs


def counted(process: Process, op_place: Ints | None) -> Counted | None:
    """The counts of a process; None where there are none that can be read."""
    fixed, batch = process.log.fixed["counts"], process.log.fixed["batch"]
    if not len(fixed) or not len(batch) or not process.events["counters"]:
        return None
    events, words = _layout(process.events["counters"][0])
    if not events:
        return None
    names = [event.name for event in events]
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
    in_frame = np.where(good, sizes // words, 0)
    first_reading = np.cumsum(in_frame) - in_frame
    last_reading = first_reading + in_frame - 1

    # Edges of operations, then of fetches, then of collates.
    use = np.repeat(full, edge_counts)
    frame_of = np.repeat(np.arange(len(fixed)), edge_counts)[use]
    place = ranges(np.zeros(len(fixed), np.int64), edge_counts)[use]
    ops = signed(batch["n_ops"])
    ops_row = (np.cumsum(ops) - ops)[row[frame_of]] + place
    fetches = np.flatnonzero(good)
    collates = np.flatnonzero(good & (fixed["collate_last"] > 0))
    owner = np.concatenate((frame_of, fetches, collates))
    begin = first_reading[owner]
    end = last_reading[owner]
    inner, outer = slice(0, len(frame_of)), slice(len(frame_of) + len(fetches), None)
    for some, first, last in (
        (inner, arrays["edges"]["first"][use], arrays["edges"]["last"][use]),
        (outer, fixed["collate_first"][collates], fixed["collate_last"][collates]),
    ):
        end[some] = begin[some] + signed(last)
        begin[some] += signed(first)
    sizes_of = (len(frame_of), len(fetches), len(collates))
    kind = np.repeat(np.array([OPERATION, FETCH, COLLATE], np.int8), sizes_of)
    rows = np.concatenate((ops_row, np.full(len(fetches) + len(collates), -1, np.int64)))
    if op_place is not None:
        # Operations that lie in no sample are not in the table.
        where = np.full(int(ops.sum()) + 1, -1, np.int64)
        where[op_place] = np.arange(len(op_place))
        rows = where[rows]
    inside = (begin <= end) & (end <= last_reading[owner])
    inside &= (kind != OPERATION) | (rows >= 0)
    begin, end, kind, rows, owner = (one[inside] for one in (begin, end, kind, rows, owner))

    delta = (readings[end] - readings[begin]).view(np.int64)
    steps = end - begin
    counts = delta[:, [event.word for event in events]].astype(np.float64)
    counts -= steps[:, None] * _costs(process, fixed["tid"][owner], names)
    least = np.full(len(kind), np.inf)
    enabled_ns, running_ns = np.zeros(len(kind), np.int64), np.zeros(len(kind), np.int64)
    for group_word in sorted({event.group_word for event in events}):
        mine = [at for at, event in enumerate(events) if event.group_word == group_word]
        made = (readings[end, group_word] > 0) & (readings[begin, group_word] > 0)
        enabled, running = delta[:, group_word + 1], delta[:, group_word + 2]
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.where(running < enabled, enabled / running, 1.0)
            ran = np.where(enabled > 0, running / enabled, 1.0)
        # A clock that went back is another group's, opened where the program closed the first.
        scale[~made | (enabled < 0) | ((running <= 0) & (enabled > 0))] = np.nan
        counts[:, mine] *= scale[:, None]
        lower = ran < least
        least = np.where(lower, ran, least)
        enabled_ns = np.where(lower, enabled, enabled_ns)
        running_ns = np.where(lower, running, running_ns)
    helper = np.where(kind == FETCH, fixed["helper_ns"][owner].astype(np.float64), np.nan)
    return Counted(kind, row[owner], rows, steps, enabled_ns, running_ns, helper, counts)


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
                fetch_start, fetch_end = start, start + took
                start = np.where(is_op, rows.start_ns[place], start)
                took = np.where(is_op, rows.duration_ns[place], took)
                # A span that was begun in another fetch: its first reading is not of this one.
                out = is_op & ((start < fetch_start) | (start + took > fetch_end))
                found.counts[out] = np.nan
            part |= {"start_ns": start, "duration_ns": took, "readings": found.readings}
            part |= {"enabled_ns": found.enabled_ns, "running_ns": found.running_ns}
            part |= {"scaled": found.running_ns < found.enabled_ns, "helper_ns": found.helper_ns}
            mine = [event.name for event in _layout(process.events["counters"][0])[0]]
            for event in events:
                missing = np.full(len(row), np.nan)
                places = [at for at, name in enumerate(mine) if name == event]
                # One that is in several groups was counted several times.
                part[event] = found.counts[:, places].mean(axis=1) if places else missing
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
