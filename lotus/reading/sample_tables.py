"""Samples and operations of a run: the long tables, built one process at a time."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lotus.inside.trace.log.log_format import MANY
from lotus.reading.batch_tables import categories, frame, repeat, signed, whose
from lotus.reading.frame_scanner import EXPECTED, Array, ranges
from lotus.reading.process_tree import Assembly, Ints, Process, groups

CPU = ("cpu_ns", "minor_faults", "major_faults", "read_bytes")
UNNAMED = "(unnamed)"  # an operation whose definition is lost
_INT_COLUMNS = ("worker", "loader", "epoch")


class SampleTable(NamedTuple):
    """The samples of one process, one element each, and the operations in them."""

    row: Ints  # of the process's batch frames
    position: Ints
    sample: Ints  # -1: not known
    start_ns: Ints
    duration_ns: Ints
    many: Array
    ops_before: Ints  # operations of earlier samples; its own: ops_before + range(ops_count)
    ops_count: Ints
    op_place: Ints | None  # places in the array `ops` where some are in no sample; None: all


_NONE = np.empty(0, np.int64)
_NO_SAMPLES = SampleTable(
    _NONE, _NONE, _NONE, _NONE, _NONE, np.empty(0, np.bool_), _NONE, _NONE, None
)


def _timed(process: Process, samples: Array, index: Array, index64: Array) -> SampleTable:
    """Return the samples of a process's batches and the position of each, without operations."""
    fixed = process.log.fixed["batch"]
    counts = signed(fixed["n_samples"])
    row = np.repeat(np.arange(len(fixed)), counts)
    position = ranges(np.zeros(len(counts), np.int64), counts)
    many = (fixed["flags"] & MANY) != 0
    return SampleTable(
        row,
        position,
        _indices(fixed, row, position, index["sample"], index64["sample"], many),
        signed(samples["start_ns"]),
        signed(samples["duration_ns"]),
        many[row],
        _NONE,
        _NONE,
        None,
    )


def _sampled(process: Process, samples: Array, index: Array, index64: Array) -> SampleTable:
    """Return the samples of a process's batches: the position of each, and its operations."""
    timed = _timed(process, samples, index, index64)
    row, ops = timed.row, signed(process.log.fixed["batch"]["n_ops"])
    first_op = np.cumsum(ops) - ops
    # The end of each sample's operations; a damaged count must not make samples overlap.
    reach = np.clip(signed(samples["ops"]), 0, ops[row]) + first_op[row]
    reach = np.maximum.accumulate(reach)
    before = np.concatenate(([0], reach[:-1]))[: len(reach)]
    before = np.where(timed.position == 0, first_op[row], before)
    ops_count = reach - before
    whole = int(ops_count.sum()) == int(ops.sum())
    return timed._replace(
        ops_before=np.cumsum(ops_count) - ops_count,
        ops_count=ops_count,
        op_place=None if whole else ranges(before, ops_count),
    )


def _indices(
    fixed: Array, row: Ints, position: Ints, narrow: Array, wide: Array, many: Array
) -> Ints:
    """The data set's index of each sample, -1 where it is not known."""
    if (
        len(narrow) == len(row)
        and not many.any()
        and (fixed["n_index"] == fixed["n_samples"]).all()
    ):
        return narrow.astype(np.int64)  # the usual case
    indices = np.full(len(row), -1, np.int64)
    for name, values in (("n_index64", wide), ("n_index", narrow)):
        counts = signed(fixed[name])
        first = np.cumsum(counts) - counts
        # One row for a whole batch has no index, unless the batch is a single sample.
        known = (position < counts[row]) & (~many[row] | (counts[row] == 1))
        indices[known] = values[(first[row] + position)[known]].astype(np.int64)
    return indices


def nested(segment: Ints, start: Ints, duration: Ints) -> Array:
    """Select operations nested in another one of the same segment.

    Rows are sorted by segment and then by completion: an operation that contains another comes
    later and did not start later. `start` must be small (relative to the segment, or a rank).
    """
    if not len(start):
        return np.zeros(0, np.bool_)
    width = int(start.max()) - int(start.min()) + 1
    key = start + segment * width
    lowest = key
    if (key[1:] < key[:-1]).any():
        # In reverse order every segment is below the previous one: one running minimum suffices.
        lowest = np.minimum.accumulate(key[::-1])[::-1]
    inside = np.zeros(len(start), np.bool_)
    # Of two with the same start the later contains the earlier, unless it took no time.
    inside[:-1] = (lowest[1:] < key[:-1]) | ((lowest[1:] == key[:-1]) & (duration[:-1] > 0))
    return inside


class Loose(NamedTuple):
    """The operations of one process that are not in its array `ops`."""

    rows: Array  # structured
    row: Ints  # batch frame whose batch it belongs to; -1: none
    sample: Ints  # place in SampleTable, -1: none
    fetching: Array  # bool: on the fetch thread inside a sample
    cpu: Array  # structured, as long as rows; or empty
    with_cpu: Array  # bool: its element of cpu is measured


LOOSE = ("batch", "wait", "loose")  # frames with operations in no sample
_NO_LOOSE = Loose(
    np.empty(0, dict(EXPECTED["batch"].arrays)["loose"]),
    _NONE,
    _NONE,
    np.empty(0, np.bool_),
    np.empty(0, dict(EXPECTED["batch"].arrays)["loose_cpu"]),
    np.empty(0, np.bool_),
)


def loose(process: Process, samples: SampleTable) -> Loose:
    """Return the operations of a process that are in no sample."""
    if not any(process.log.fixed[name]["n_loose"].any() for name in LOOSE):
        return _NO_LOOSE
    parts: list[Array] = []
    cpus: list[Array] = []
    known: list[Array] = []
    batch_row: list[Ints] = []
    for name in LOOSE:
        fixed = process.log.fixed[name]
        arrays = process.log.arrays(name, ("loose", "loose_cpu"))
        counts, cpu_counts = signed(fixed["n_loose"]), signed(fixed["n_loose_cpu"])
        parts.append(arrays["loose"])
        owner = np.repeat(np.arange(len(fixed)), counts)
        batch_row.append(owner if name == "batch" else np.full(len(owner), -1, np.int64))
        known.append((cpu_counts == counts)[owner])
        cpus.append(_parallel(arrays["loose_cpu"], cpu_counts, counts))
    rows: Array = np.concatenate(parts)
    row: Ints = np.concatenate(batch_row)
    batch = process.log.fixed["batch"]
    sample = np.full(len(rows), -1, np.int64)
    fetching = np.zeros(len(rows), np.bool_)
    if len(batch) and len(rows):
        start, end = signed(rows["start_ns"]), signed(rows["start_ns"] + rows["duration_ns"])
        counts = signed(batch["n_samples"])
        inside = (row >= 0) & (rows["position"] >= 0) & (rows["position"] < counts[row])
        sample = np.where(inside, (np.cumsum(counts) - counts)[row] + rows["position"], -1)
        own_thread = rows["tid"] == batch["tid"][row]
        if len(samples.row):
            # The recorder names the next sample: a region need not be in it.
            begin, took = samples.start_ns[sample], samples.duration_ns[sample]
            inside &= ~own_thread | ((start >= begin) & (end <= begin + took))
            sample = np.where(inside, sample, -1)
        fetching = inside & own_thread
        # Outside a sample it belongs to the batch if the fetch thread ran it during the fetch.
        begin, took = signed(batch["fetch_start_ns"])[row], signed(batch["fetch_ns"])[row]
        during = own_thread & (start >= begin) & (end <= begin + took)
        row = np.where(inside | during, row, -1)
    return Loose(rows, row, sample, fetching, np.concatenate(cpus), np.concatenate(known))


def _parallel(cpu: Array, counts: Ints, wanted: Ints) -> Array:
    """Return the rows of `cpu`, parallel to the operations; zeros if a frame has none."""
    if len(cpu) == int(wanted.sum()) and (counts == wanted).all():
        return cpu
    result = np.zeros(int(wanted.sum()), cpu.dtype)
    good = counts == wanted
    result[np.repeat(good, wanted)] = cpu[np.repeat(good, counts)]
    return result


class Operations(NamedTuple):
    """Times and nesting of one process's operations."""

    start_ns: Ints  # of `ops`
    duration_ns: Ints
    nested: Array
    loose_nested: Array
    ops_ns: Ints  # of each sample: time in top-level operations


def nesting(samples: SampleTable, ops: Array, apart: Loose) -> Operations:
    """Return start and duration of each operation (ns), and which are nested in another one."""
    owner = np.repeat(np.arange(len(samples.row)), samples.ops_count)
    # Times are stored modulo 2^32; the time since the start of the sample is less than that.
    offset = signed(ops["start_low"] - samples.start_ns.astype(np.uint32)[owner])
    # An operation that seems to begin after the end of its sample began before the sample: it is a
    # region around a generator's `yield`.
    early = offset > samples.duration_ns[owner]
    if early.any():
        offset = np.where(early, offset - (1 << 32), offset)
    duration = signed(ops["end_low"] - ops["start_low"])
    start = samples.start_ns[owner] + offset
    inner = nested(owner, offset, duration)
    loose_inner = np.zeros(len(apart.rows), np.bool_)
    if len(apart.rows):
        # Samples with loose operations are computed again, with both kinds in order of completion;
        # other loose operations can only be nested in each other, on their own thread.
        touched = np.zeros(len(samples.row) + 1, np.bool_)
        touched[apart.sample[apart.fetching]] = True
        touched[-1] = False
        mine = np.flatnonzero(touched[owner]) if len(owner) else owner
        begin = np.concatenate((start[mine], signed(apart.rows["start_ns"])))
        took = np.concatenate((duration[mine], signed(apart.rows["duration_ns"])))
        sample = np.concatenate((owner[mine], apart.sample))
        thread = np.concatenate((np.full(len(mine), -1), signed(apart.rows["tid"])))
        thread[len(mine) :][apart.fetching] = -1
        segment = groups(sample, thread)
        _, place = np.unique(begin, return_inverse=True)
        order = np.lexsort((took, begin + took, segment))
        flags = np.zeros(len(begin), np.bool_)
        flags[order] = nested(segment[order], place.reshape(-1)[order], took[order])
        inner[mine], loose_inner = flags[: len(mine)], flags[len(mine) :]
    total = np.concatenate(([0], np.cumsum(np.where(inner, 0, duration))))
    ops_ns = total[samples.ops_before + samples.ops_count] - total[samples.ops_before]
    top = apart.fetching & ~loose_inner
    np.add.at(ops_ns, apart.sample[top], signed(apart.rows["duration_ns"])[top])
    return Operations(start, duration, inner, loose_inner, ops_ns)


def _load(process: Process, *more: str) -> tuple[SampleTable, Array, dict[str, Array]]:
    """(samples, operations in them, further arrays) of one process."""
    names = ("samples", "index", "index64", "ops", *more)
    arrays = process.log.arrays("batch", names)
    samples = _sampled(process, arrays["samples"], arrays["index"], arrays["index64"])
    ops = arrays["ops"] if samples.op_place is None else arrays["ops"][samples.op_place]
    return samples, ops, arrays


class Loaded(NamedTuple):
    """What the tables of one process are made of."""

    samples: SampleTable
    ops: Array  # in samples
    arrays: dict[str, Array]
    apart: Loose
    inner: Operations


def loaded(process: Process, *more: str) -> Loaded:
    """Read a process's samples, its operations and the arrays `more`."""
    samples, ops, arrays = _load(process, *more)
    apart = loose(process, samples)
    return Loaded(samples, ops, arrays, apart, nesting(samples, ops, apart))


def loaded_all(a: Assembly, with_cpu: bool) -> Iterator[Loaded]:
    """What both tables are made of, of one process after the other."""
    for process in a.processes:
        yield loaded(process, *(("ops_cpu",) if with_cpu else ()))


def samples(a: Assembly, contents: Iterable[Loaded] | None = None) -> pd.DataFrame:
    """One row per sample; with `many`, per batch that was fetched in one call.

    `contents`: those of the processes, where they are read already.
    """
    ops_ns: list[Array] = []  # each process

    def tables() -> Iterator[SampleTable]:
        read = loaded_all(a, False) if contents is None else contents
        for process, content in zip(a.processes, read, strict=True):
            ops_ns.append(_in_operations(process, content))
            yield content.samples

    table = times(a, tables())
    within = np.concatenate([np.empty(0), *ops_ns])
    place = len(table.columns) - 1  # before `many`
    table.insert(place, "ops_ns", within)
    table.insert(place + 1, "self_ns", table["duration_ns"] - within)
    return table


def _in_operations(process: Process, content: Loaded) -> Array:
    """The time of each sample in top-level operations."""
    if process.log.header.get("level") in ("batch", "sample"):
        return np.full(len(content.inner.ops_ns), np.nan)  # not recorded, unlike 0 operations
    return content.inner.ops_ns.astype(np.float64)


def times(a: Assembly, contents: Iterable[SampleTable] | None = None) -> pd.DataFrame:
    """The table of samples without ops_ns and self_ns, for which no operation is read."""
    size = int(signed(a.batch["n_samples"]).sum())
    out = _columns(size, _INT_COLUMNS)
    out["batch"] = np.empty(size, np.int64)
    out["position"] = np.empty(size, np.int32)
    for name in ("sample", "start_ns", "duration_ns"):
        out[name] = np.empty(size, np.int64)
    out["many"] = np.empty(size, np.bool_)
    last = 0
    rows_of: list[int] = []  # each process
    read = map(_load_samples, a.processes) if contents is None else contents
    for own, mine in zip(a.slices, read, strict=True):
        rows_of.append(len(mine.row))
        here = slice(last, last + len(mine.row))
        last = here.stop
        _fill(out, here, a, own, signed(a.batch[own]["n_samples"]))
        out["position"][here] = mine.position
        out["sample"][here] = mine.sample
        out["start_ns"][here] = mine.start_ns
        out["duration_ns"][here] = mine.duration_ns
        out["many"][here] = mine.many
    return frame({**whose(a, repeat(rows_of)), **out})


def _load_samples(process: Process) -> SampleTable:
    if not process.log.fixed["batch"]["n_samples"].any():
        return _NO_SAMPLES
    arrays = process.log.arrays("batch", ("samples", "index", "index64"))
    return _timed(process, arrays["samples"], arrays["index"], arrays["index64"])


def operations(
    a: Assembly, with_cpu: bool, contents: Iterable[Loaded] | None = None
) -> pd.DataFrame:
    """One row per operation: first those in samples by process and time, then the loose ones.

    `contents`: those of the processes, where they are read already.
    """
    loose_count = sum(
        int(signed(process.log.fixed[name]["n_loose"]).sum())
        for process in a.processes
        for name in LOOSE
    )
    size = int(signed(a.batch["n_ops"]).sum()) + loose_count
    out = _columns(size, ("tid", *_INT_COLUMNS))
    for name in ("batch", "sample", "start_ns", "duration_ns"):
        out[name] = np.empty(size, np.int64)
    out["position"], out["index"] = np.empty(size, np.int32), np.empty(size, np.int32)
    out["operation"], out["parent"] = np.empty(size, np.int32), np.empty(size, np.int32)
    out["nested"] = np.empty(size, np.bool_)
    for name in CPU if with_cpu else ():
        out[name] = np.empty(size)
    names: dict[str, int] = {"": 0}
    last = 0
    rows_of: list[int] = []  # each process
    read = loaded_all(a, with_cpu) if contents is None else contents
    for process, own, (mine, ops, arrays, apart, inner) in zip(
        a.processes, a.slices, read, strict=True
    ):
        table = Names(process, names)
        # Those in samples.
        here = slice(last, last + len(ops))
        if len(ops):
            in_batch = np.bincount(mine.row, mine.ops_count, own.stop - own.start)
            _fill(out, here, a, own, in_batch.astype(np.int64), tid=True)
            out["position"][here] = np.repeat(mine.position.astype(np.int32), mine.ops_count)
            out["sample"][here] = np.repeat(mine.sample, mine.ops_count)
            out["start_ns"][here], out["duration_ns"][here] = inner.start_ns, inner.duration_ns
            out["nested"][here] = inner.nested
            table.fill(out, here, ops["operation"])
            if with_cpu:
                counts = signed(a.batch["n_ops"][own])
                with_values = signed(a.batch["n_ops_cpu"][own])
                cpu = _parallel(arrays["ops_cpu"], with_values, counts)
                known = np.repeat(with_values == counts, counts)
                if mine.op_place is not None:
                    cpu, known = cpu[mine.op_place], known[mine.op_place]
                _fill_cpu(out, here, cpu, known)
        # Loose ones.
        there = slice(here.stop, here.stop + len(apart.rows))
        if len(apart.rows):
            _fill_loose(out, there, a, process, own, mine, apart)
            out["nested"][there] = inner.loose_nested
            table.fill(out, there, apart.rows["operation"])
            if with_cpu:
                _fill_cpu(out, there, apart.cpu, apart.with_cpu)
        rows_of.append(there.stop - last)
        last = there.stop
    order = ("tid", *_INT_COLUMNS, "batch", "position", "sample", "operation", "parent", "index")
    order = (*order, "nested", "start_ns", "duration_ns", *(CPU if with_cpu else ()))
    columns: dict[str, Any] = {name: out.pop(name)[:last] for name in order}
    columns["operation"] = _used(columns["operation"], list(names))
    columns["parent"] = _used(columns["parent"], list(names))
    return frame({**whose(a, repeat(rows_of)), **columns})


class OperationRows(NamedTuple):
    """The operations in samples of one process, as in the table of operations."""

    op_place: Ints | None  # see SampleTable
    operation: Array  # ids
    start_ns: Ints
    duration_ns: Ints
    nested: Array
    total: int  # rows of the process in the table, those outside samples included


def counted_rows(process: Process) -> OperationRows:
    """The columns of a process's operations that its counts need."""
    mine, ops, _, apart, inner = loaded(process)
    total = len(ops) + len(apart.rows)
    return OperationRows(
        mine.op_place, ops["operation"], inner.start_ns, inner.duration_ns, inner.nested, total
    )


def _used(codes: Array, names: Sequence[str]) -> Any:
    """Return a category column with only the categories that occur (and "" for no container)."""
    if len(codes) and (codes == codes[0]).all():
        return categories(np.zeros(len(codes), np.int8), [names[codes[0]]])
    occurs = np.bincount(codes, minlength=len(names)) > 0
    renumber = np.cumsum(occurs) - 1
    small = np.int8 if occurs.sum() < 127 else np.int32
    return categories(
        renumber.astype(small)[codes],
        [name for name, use in zip(names, occurs, strict=True) if use],
    )


class Names:
    """Return the operation ids of one process as codes of the run's names."""

    def __init__(self, process: Process, names: dict[str, int]) -> None:
        defined = process.operations()
        size = max([operation["id"] for operation in defined], default=0) + 2
        unnamed = names.setdefault(UNNAMED, len(names))
        self.code = np.full(size, unnamed, np.int32)
        self.parent = np.zeros(size, np.int32)
        self.index = np.full(size, -1, np.int32)
        by_id = {operation["id"]: operation["name"] for operation in defined}
        for operation in defined:
            number = operation["id"]
            self.code[number] = names.setdefault(operation["name"], len(names))
            parent = by_id.get(operation["parent"], "")
            self.parent[number] = names.setdefault(parent, len(names))
            self.index[number] = operation["index"]

    def fill(self, out: dict[str, Array], here: slice, ids: Array) -> None:
        """Write the names of operations `ids` into the columns of `out`."""
        # The last place is that of all unknown ids.
        places = np.minimum(ids, len(self.code) - 1).astype(np.intp)
        tables = {"operation": self.code, "parent": self.parent, "index": self.index}
        for name, table in tables.items():
            alike = (table == table[0]).all()
            out[name][here] = table[0] if alike else table[places]


def _columns(size: int, names: Sequence[str]) -> dict[str, Array]:
    return {name: np.empty(size, np.int32) for name in names}


def _fill(
    out: dict[str, Array], here: slice, a: Assembly, own: slice, counts: Ints, tid: bool = False
) -> None:
    """Fill in the columns that rows inherit from their batch; `counts` rows per batch."""
    batch = a.batch[own]
    columns = {
        "worker": batch["worker"],
        "loader": a.batch_loader[own].astype(np.int32),
        "epoch": a.batch_epoch[own].astype(np.int32),
        "batch": signed(batch["batch"]),
    }
    if tid:
        columns["tid"] = batch["tid"].astype(np.int32)
    for name, values in columns.items():
        alike = len(values) > 0 and (values == values[0]).all()
        out[name][here] = values[0] if alike else np.repeat(values, counts)


def _fill_cpu(out: dict[str, Array], here: slice, cpu: Array, known: Array) -> None:
    for name in CPU:
        out[name][here] = np.where(known, cpu[name], np.nan)


def _fill_loose(
    out: dict[str, Array],
    here: slice,
    a: Assembly,
    process: Process,
    own: slice,
    samples: SampleTable,
    apart: Loose,
) -> None:
    row, rows = apart.row, apart.rows
    origin = process.origin
    # Other operations of a worker belong to its only loader; a main process may have several.
    loader = -1 if origin is None else origin.process.base + origin.loader
    batch = a.batch[own]

    def of_batch(values: Array, missing: int) -> Array:
        return np.where(row >= 0, values[row], missing) if len(values) else missing + 0 * row

    out["worker"][here] = of_batch(batch["worker"], process.worker)
    out["loader"][here] = of_batch(a.batch_loader[own], loader)
    out["epoch"][here] = of_batch(a.batch_epoch[own], -1)
    out["batch"][here] = of_batch(signed(batch["batch"]), -1)
    out["tid"][here] = rows["tid"].astype(np.int32)
    out["position"][here] = np.where(apart.sample >= 0, rows["position"], -1)
    index = samples.sample if len(samples.sample) else np.full(1, -1, np.int64)
    out["sample"][here] = np.where(apart.sample >= 0, index[apart.sample], -1)
    out["start_ns"][here] = signed(rows["start_ns"])
    out["duration_ns"][here] = signed(rows["duration_ns"])
