"""The samples of one process and the operations in and beside them, as its log has them."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from lotus.common.numbers.array_types import Ints
from lotus.inside.trace.log.log_format import MANY
from lotus.reading.logs.frame_scanner import EXPECTED, Array, ranges
from lotus.reading.logs.process_tree import Assembly, Process, groups
from lotus.reading.tables.batch_tables import signed


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
    """Return the data set's index of each sample, -1 where it is not known."""
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


def loose_count(process: Process) -> int:
    """Return the number of a process's operations that are in no sample."""
    return sum(int(signed(process.log.fixed[name]["n_loose"]).sum()) for name in LOOSE)


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
        cpus.append(parallel(arrays["loose_cpu"], cpu_counts, counts))
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


def parallel(cpu: Array, counts: Ints, wanted: Ints) -> Array:
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
    """Return (samples, operations in them, further arrays) of one process."""
    names = ("samples", "index", "index64", "ops", *more)
    arrays = process.log.arrays("batch", names)
    samples = _sampled(process, arrays["samples"], arrays["index"], arrays["index64"])
    ops = arrays["ops"] if samples.op_place is None else arrays["ops"][samples.op_place]
    return samples, ops, arrays


class Loaded(NamedTuple):
    """The arrays from which the tables of one process are made."""

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
    """Yield the arrays for both tables, of one process after the other."""
    for process in a.processes:
        yield loaded(process, *(("ops_cpu",) if with_cpu else ()))


def load_samples(process: Process) -> SampleTable:
    """Return the samples that a worker prepared, and when; empty if the log has none."""
    if not process.log.fixed["batch"]["n_samples"].any():
        return _NO_SAMPLES
    arrays = process.log.arrays("batch", ("samples", "index", "index64"))
    return _timed(process, arrays["samples"], arrays["index"], arrays["index64"])


class OperationRows(NamedTuple):
    """The operations in samples of one process, as in the table of operations."""

    op_place: Ints | None  # see SampleTable
    operation: Array  # ids
    start_ns: Ints
    duration_ns: Ints
    nested: Array
    total: int  # rows of the process in the table, those outside samples included


def counted_rows(process: Process) -> OperationRows:
    """Return the columns of a process's operations that its counts need."""
    mine, ops, _, apart, inner = loaded(process)
    total = len(ops) + len(apart.rows)
    return OperationRows(
        mine.op_place, ops["operation"], inner.start_ns, inner.duration_ns, inner.nested, total
    )
