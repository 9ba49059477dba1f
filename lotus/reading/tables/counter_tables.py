"""Exact counts of a run, from the readings that the recorder kept."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lotus.common.numbers.array_types import Ints
from lotus.inside.common.perf_event import HEADER
from lotus.reading.logs.event_log import Lost
from lotus.reading.logs.frame_scanner import Array, ranges
from lotus.reading.logs.process_tree import Assembly, Process, is_a, match
from lotus.reading.tables.batch_tables import categories, frame, repeat, signed, whose
from lotus.reading.tables.process_contents import counted_rows
from lotus.reading.tables.sample_tables import Names

KINDS = ("operation", "fetch", "collate")
OPERATION, FETCH, COLLATE = range(3)
_MOST_EVENTS = 64  # size of the counts of a reading in memory, relative to their size in a log
_AT_ONCE = 1 << 16  # rows whose readings are in memory at the same time
_LONGEST = 200  # characters of an event's name
_COLUMNS = (
    "tid worker loader epoch batch kind operation nested row start_ns duration_ns readings "
    "enabled_ns running_ns scaled helper_ns"
).split()
# Invalid names of events: tables have columns with these names.
_TAKEN = {*_COLUMNS, "rank", "local_rank", "world_size", "host", "pid", "end_ns"}


class RecordedEvent(NamedTuple):
    """A counted event: the place of its count in a reading, and what a reading adds to it."""

    name: str
    word: int
    group_word: int  # where its group begins: number of events, enabled ns, running ns
    cost: float


class CountedIntervals(NamedTuple):
    """Counted intervals of a process, an element per interval; counts as (intervals, events)."""

    kind: Array
    batch_row: Ints  # of the process's batch frames
    ops_row: Ints  # of the process's operations, -1: not an operation
    readings: Ints  # number of readings whose cost is in it
    enabled_ns: Ints  # of the group that ran for the shortest time
    running_ns: Ints
    helper_ns: Array  # float64, NaN but for FETCH
    counts: Array  # float64, less the cost of the readings, scaled if multiplexed


def names_of(a: Assembly) -> list[str]:
    """Return the events that were counted, in the order in which they were requested."""
    names: dict[str, None] = {}
    for process in a.processes:
        names.update(dict.fromkeys(event.name for event in _layout(process)[0]))
    return list(names)


def events_of(a: Assembly) -> list[dict[str, Any]]:
    """Return the kernel's definitions of the events, each name once, as in perf_event.Event."""
    by_name: dict[str, dict[str, Any]] = {}
    needed = {"name": str, "type": int, "config": int, "config1": int, "flags": str}
    for process in a.processes:
        for announced in process.events["counters"][:1] if _layout(process)[0] else ():
            for event in announced["events"]:
                if all(is_a(event.get(k), t) for k, t in needed.items()):
                    by_name.setdefault(event["name"], {key: event[key] for key in needed})
    return list(by_name.values())


def _layout(process: Process) -> tuple[list[RecordedEvent], int]:
    """Return the events of a process and the words of a reading; ([], 0) if none or damaged."""
    announced = process.events["counters"]
    return _events(announced[0]) if announced else ([], 0)


def _events(announced: dict[str, Any]) -> tuple[list[RecordedEvent], int]:
    """Return the same for one `counters` event."""
    events: list[RecordedEvent] = []
    word, group_word = 0, 0
    group: Any = None
    if len(announced["events"]) > _MOST_EVENTS:
        return [], 0
    for event in announced["events"]:
        name = event.get("name") if isinstance(event, dict) else None
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST or name in _TAKEN:
            return [], 0
        if not name.isprintable():
            return [], 0
        cost = event.get("read_count")
        if not events or event.get("group") != group:
            group, group_word, word = event.get("group"), word, word + HEADER
        known = is_a(cost, int) or (isinstance(cost, float) and math.isfinite(cost))
        events.append(RecordedEvent(name, word, group_word, float(cost) if known else 0.0))
        word += 1
    return events, word


def _costs(process: Process, tids: Array, names: list[str]) -> Array:
    """Return what a reading adds to each count, as (rows, events): the thread's latest value."""
    distinct, place = np.unique(tids, return_inverse=True)
    costs = np.zeros((len(distinct), len(names)))
    at = {tid: row for row, tid in enumerate(distinct.tolist())}
    latest = {record["tid"]: record for record in process.events["counters"] if record["tid"] in at}
    for tid, announced in latest.items():
        events, _ = _events(announced)
        if [event.name for event in events] == names:
            costs[at[tid]] = [event.cost for event in events]
    return costs[place]


class _Frames(NamedTuple):
    """The usable parts of the frames, an element per frame."""

    row: Ints  # of the process's batch frames; -1: not known, or used by an earlier frame
    good: Array  # its readings can be used
    full: Array  # the readings at its operations can be used, too


def _frames(process: Process, words: int) -> _Frames:
    fixed, batch = process.log.fixed["counts"], process.log.fixed["batch"]
    row = match(
        (fixed["fetch_start_ns"], fixed["tid"]), (batch["fetch_start_ns"], batch["tid"]), last=True
    )
    _, first = np.unique(row, return_index=True)
    again = np.ones(len(row), np.bool_)
    again[first] = False
    row = np.where(again, -1, row)
    sizes = signed(fixed["n_readings"])
    good = (fixed["words"] == words) & (sizes % max(words, 1) == 0) & (sizes > 0) & (row >= 0)
    full = np.zeros(len(row), np.bool_)
    # An operation without counts would shift the counts of all that follow.
    full[good] = (signed(fixed["n_edges"])[good]) == signed(batch["n_ops"])[row[good]]
    return _Frames(row, good & (words > 0), full & (words > 0))


def losses(process: Process) -> list[Lost]:
    """Return the losses: counts that were recorded and cannot be used.

    Counts that only single intervals lack are NaN in their rows instead.
    """
    fixed, batch = process.log.fixed["counts"], process.log.fixed["batch"]
    if not len(fixed):
        return []
    _, words = _layout(process)
    frames = _frames(process, words)
    lost = []
    bad = int((~frames.good).sum())
    if bad:
        size = int(8 * signed(fixed["n_readings"])[~frames.good].sum())
        lost.append(Lost("counts of a batch that cannot be used", process.pid, bad, size))
    apart = frames.good & ~frames.full
    if apart.any():
        ops = np.maximum(signed(batch["n_ops"])[frames.row[apart]], signed(fixed["n_edges"])[apart])
        what = "counts that do not match their operations"
        lost.append(Lost(what, process.pid, int(ops.sum()), 0))
    return lost


def counted(process: Process, op_place: Ints | None) -> CountedIntervals | None:
    """Return the counts of a process, or None if none of them can be read."""
    fixed, batch = process.log.fixed["counts"], process.log.fixed["batch"]
    if not len(fixed) or not len(batch):
        return None
    events, words = _layout(process)
    if not events:
        return None
    row, good, full = _frames(process, words)
    if not good.any():
        return None
    names = [event.name for event in events]
    arrays = process.log.arrays("counts", ("readings", "edges"))
    sizes, edge_counts = signed(fixed["n_readings"]), signed(fixed["n_edges"])
    readings = arrays["readings"]["word"][np.repeat(good, sizes)].reshape(-1, words)
    in_frame = np.where(good, sizes // words, 0)
    first_reading = np.cumsum(in_frame) - in_frame
    last_reading = first_reading + in_frame - 1

    # Readings at operations, then at fetches, then at collates.
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
        # Operations outside all samples are not in the table.
        where = np.full(int(ops.sum()) + 1, -1, np.int64)
        where[op_place] = np.arange(len(op_place))
        rows = where[rows]
    known = (kind != OPERATION) | (rows >= 0)
    begin, end, kind, rows, owner = (column[known] for column in (begin, end, kind, rows, owner))
    # A missing reading or a damaged place: these counts are NaN.
    inside = (begin <= end) & (end <= last_reading[owner])
    begin = np.where(inside, begin, first_reading[owner])
    end = np.where(inside, end, begin)

    parts = []
    for first in range(0, len(kind), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        costs = _costs(process, fixed["tid"][owner[some]], names)
        parts.append(_subtract(readings, begin[some], end[some], inside[some], events, costs))
    enabled_ns, running_ns, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
    helper = np.where(kind == FETCH, fixed["helper_ns"][owner].astype(np.float64), np.nan)
    return CountedIntervals(
        kind, row[owner], rows, end - begin, enabled_ns, running_ns, helper, counts
    )


def _subtract(
    readings: Array, begin: Ints, end: Ints, known: Array, events: list[RecordedEvent], costs: Array
) -> tuple[Ints, Ints, Array]:
    """Return enabled and running ns of the group that ran least, and counts, NaN if not `known`."""
    before, after = readings[begin], readings[end]
    delta = (after - before).view(np.int64)
    counts = delta[:, [event.word for event in events]].astype(np.float64)
    least = np.full(len(begin), np.inf)
    enabled_ns, running_ns = np.zeros(len(begin), np.int64), np.zeros(len(begin), np.int64)
    for group_word in sorted({event.group_word for event in events}):
        mine = [at for at, event in enumerate(events) if event.group_word == group_word]
        size = len(mine)
        made = known & (before[:, group_word] == size) & (after[:, group_word] == size)
        # A counter never decreases.
        made &= (delta[:, group_word + 1 : group_word + HEADER + size] >= 0).all(axis=1)
        enabled, running = (np.where(made, delta[:, group_word + at], 0) for at in (1, 2))
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.where(running < enabled, enabled / running, 1.0)
            # A group that waited for its turn does not affect the others.
            ran = np.where(enabled > 0, running / enabled, np.where(made, 1.0, np.inf))
        scale[~made | ((running <= 0) & (enabled > 0))] = np.nan
        counts[:, mine] *= scale[:, None]
        lower = ran < least
        least = np.where(lower, ran, least)
        enabled_ns = np.where(lower, enabled, enabled_ns)
        running_ns = np.where(lower, running, running_ns)
    # Scaled counts are those of all readings; a reading outside a group's turn cost it nothing.
    counts -= (end - begin)[:, None] * costs
    return enabled_ns, running_ns, counts


def _mean(counts: Array) -> Array:
    """Combine an event of several groups, per row over those that counted it; NaN if none did."""
    known = ~np.isnan(counts)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, counts, 0.0).sum(axis=1) / known.sum(axis=1))


def counters(a: Assembly) -> tuple[pd.DataFrame, Ints]:
    """Return (the table `Run.counters`, the row in `a.batch` of each interval's batch)."""
    events = names_of(a)
    parts: list[dict[str, Any]] = []
    rows_of: list[int] = []
    batch_rows: list[Ints] = []
    names: dict[str, int] = {"": 0}
    before = 0  # rows of run.ops of earlier processes
    # Without counts nothing needs the rows of `ops`, which take long to find.
    any_counts = any(len(process.log.fixed["counts"]) for process in a.processes)
    for process, own in zip(a.processes, a.slices, strict=True):
        if not any_counts:
            rows_of.append(0)
            continue
        rows = counted_rows(process)
        own_counts = counted(process, rows.op_place)
        rows_of.append(0 if own_counts is None else len(own_counts.kind))
        if own_counts is not None and rows_of[-1]:
            batch, row = a.batch[own], own_counts.batch_row
            is_op = own_counts.ops_row >= 0
            place = np.maximum(own_counts.ops_row, 0)
            part: dict[str, Any] = {
                "tid": batch["tid"][row].astype(np.int32),
                "worker": batch["worker"][row],
                "loader": a.batch_loader[own][row].astype(np.int32),
                "epoch": a.batch_epoch[own][row].astype(np.int32),
                "batch": signed(batch["batch"])[row],
                "kind": own_counts.kind,
                "row": np.where(is_op, before + own_counts.ops_row, -1),
            }
            codes = Names(process, names).code
            some = len(rows.start_ns) > 0
            part["operation"] = np.zeros(len(row), np.int32)
            part["nested"] = np.zeros(len(row), np.bool_)
            start = signed(batch["fetch_start_ns"])[row]
            took = signed(batch["fetch_ns"])[row]
            collate = own_counts.kind == COLLATE
            start = np.where(collate, signed(batch["collate_start_ns"])[row], start)
            took = np.where(collate, signed(batch["collate_ns"])[row], took)
            if some:
                ids = np.minimum(rows.operation, len(codes) - 1)
                part["operation"] = np.where(is_op, codes[ids][place], 0).astype(np.int32)
                part["nested"] = is_op & rows.nested[place]
                fetch_start, fetch_end = start, start + took
                start = np.where(is_op, rows.start_ns[place], start)
                took = np.where(is_op, rows.duration_ns[place], took)
                # A span that began in another fetch: its first reading does not belong to this one.
                out = is_op & ((start < fetch_start) | (start + took > fetch_end))
                own_counts.counts[out] = np.nan
            part |= {"start_ns": start, "duration_ns": took, "readings": own_counts.readings}
            part |= {"enabled_ns": own_counts.enabled_ns, "running_ns": own_counts.running_ns}
            part |= {
                "scaled": own_counts.running_ns < own_counts.enabled_ns,
                "helper_ns": own_counts.helper_ns,
            }
            mine = [event.name for event in _layout(process)[0]]
            for event in events:
                missing = np.full(len(row), np.nan)
                places = [at for at, name in enumerate(mine) if name == event]
                part[event] = _mean(own_counts.counts[:, places]) if places else missing
            parts.append(part)
            batch_rows.append(row + own.start)
        before += rows.total
    columns = _joined(parts, events)
    columns["kind"] = categories(columns["kind"].astype(np.int8), KINDS)
    columns["operation"] = categories(columns["operation"].astype(np.int32), list(names))
    owners = np.concatenate([np.empty(0, np.int64), *batch_rows])
    return frame({**whose(a, repeat(rows_of)), **columns}), owners


def _joined(parts: Sequence[Mapping[str, Any]], events: Sequence[str]) -> dict[str, Any]:
    """Return the columns of all processes; of the right types also where there is none."""
    columns: dict[str, Any] = {}
    for name in [*_COLUMNS, *events]:
        columns[name] = np.concatenate([part[name] for part in parts]) if parts else np.empty(0)
    if not parts:
        columns |= {name: np.empty(0, np.int64) for name in _COLUMNS[:12]}
        columns["nested"] = columns["scaled"] = np.empty(0, np.bool_)
    return columns
