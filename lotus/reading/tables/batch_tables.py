"""Batches and waits of a run: batches that workers made, joined with those the loop took."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from lotus.common.numbers.array_types import Ints
from lotus.common.storage import long_arrays
from lotus.inside.trace.log.log_format import FAILED, SENDS, UNMEASURED
from lotus.reading.logs.frame_scanner import Array
from lotus.reading.logs.process_tree import Assembly, groups, match

ORDERS = ("early", "in turn", "late")
# Time of a thread on a core and ready to run without one; CPU time of its whole process.
CPU_COLUMNS = ("cpu_ns", "run_delay_ns", "process_cpu_ns")
_I32 = np.dtype(np.int32)
LONG = 1 << 16  # rows of a table from which on its memory matters


def frame(columns: Mapping[str, Any]) -> pd.DataFrame:
    """Return a DataFrame that uses the arrays without copying them, one block per column.

    A long column of one value, as of what was not measured, takes the memory of that value; other
    long columns lie in files (`long_arrays`).
    """
    return pd.DataFrame({name: thin(values) for name, values in columns.items()}, copy=False)


def thin(values: Array) -> Array:
    """Return the values, in a file if they are many; equal ones read-only, stored once."""
    if not isinstance(values, np.ndarray) or len(values) < LONG or values.dtype.kind not in "biuf":
        return values
    if values.strides == (0,):  # they are already
        return values
    for some in (values[:16], values):  # most columns differ at once
        one = some == some[0] if some[0] == some[0] else np.isnan(some)
        if not one.all():
            return long_arrays.kept(values)
    return np.broadcast_to(values[:1].copy(), values.shape)


def alike(values: Array) -> bool:
    """Return True if all of them are one value; False if there are none."""
    return len(values) > 0 and bool((values == values[0]).all())


def categories(codes: Array, names: Sequence[str]) -> Any:
    """Return a category column from signed codes; -1 is missing."""
    return pd.Categorical.from_codes(codes, pd.Index(list(names), dtype=object))


def whose(a: Assembly, spread: Callable[[Array], Array], kind: Any = np.int32) -> dict[str, Any]:
    """Return the columns rank, local_rank, world_size, host and pid; rank and pid of type `kind`.

    `spread` turns an array with a value per process into one with a value per row.
    """
    short = np.min_scalar_type(-len(a.hosts) - 1)
    types = {"rank": kind, "local_rank": _I32, "world_size": _I32, "host": short, "pid": kind}
    columns: dict[str, Any] = {
        name: spread(a.places[name].astype(dtype)) for name, dtype in types.items()
    }
    columns["host"] = categories(columns["host"], a.hosts)
    return columns


def repeat(counts: Sequence[int]) -> Callable[[Array], Array]:
    """Return the `spread` of `whose` for processes with these numbers of consecutive rows."""
    if len(counts) == 1 and counts[0] >= LONG:
        return lambda values: np.broadcast_to(values, (counts[0],))  # as `thin` would make it
    return lambda values: np.repeat(values, counts)


def signed(values: Array) -> Ints:
    """Return unsigned values of a log as int64."""
    if len(values) < LONG or values.flags.c_contiguous:
        return values.astype(np.int64)
    result = np.empty(len(values), np.int64)
    for some in _some(len(values)):
        result[some] = values[some]
    return result


def _rows(values: Array, rows: Ints) -> Array:
    """Return values[rows]."""
    if len(rows) < LONG:
        return values[rows]
    result = np.empty(len(rows), values.dtype)
    for some in _some(len(rows)):
        result[some] = values[rows[some]]
    return result


def _some(count: int) -> Iterator[slice]:
    """Yield so many rows in blocks: a field of all frames has a part in each page of their file."""
    for at in range(0, count, LONG):
        yield slice(at, at + LONG)
        long_arrays.let_go()


def measured(values: Array, where: Any = True) -> Array:
    """Return the values as float64, NaN where `where` is False."""
    return np.where(where, values.astype(np.float64), np.nan)


def pick(values: Array, rows: Ints) -> Array:
    """Return values[rows] as float64, NaN where a row is -1."""
    if not len(values):
        return np.full(len(rows), np.nan)
    return thin(measured(_rows(values, rows), rows >= 0))


def known_time(values: Array, rows: Ints) -> Array:
    """Return what `pick` does, but NaN also where the kernel did not report the time."""
    if not len(values):
        return np.full(len(rows), np.nan)
    picked = _rows(values, rows)
    return thin(measured(picked, (rows >= 0) & (picked != UNMEASURED)))


def _passed(wait: Array, name: str) -> Array:
    """Return by how much one of the CPU_COLUMNS grew during each `next`."""
    rows = np.arange(len(wait))
    return thin(known_time(wait[f"end_{name}"], rows) - known_time(wait[f"start_{name}"], rows))


def pick_int(values: Array, rows: Ints, missing: int) -> Ints:
    """Return values[rows] as int64 (n,), `missing` where a row is -1."""
    if not len(values):
        return np.full(len(rows), missing, np.int64)
    return np.where(rows >= 0, signed(_rows(values, rows)), missing)


class Waits(NamedTuple):
    """The columns that are computed from the `next` calls alone, one element per call."""

    step_ns: Array  # float64
    step_cores: dict[str, Array]  # of the step: CPU_COLUMNS, float64
    order: Array  # index into ORDERS
    first: Array  # bool: the first of its epoch


def follow(a: Assembly) -> Waits:
    """Compute the step, the order and `first` of every recorded `next`."""
    wait = a.wait
    size = len(wait)
    start, end, arrival = (signed(wait[name]) for name in ("start_ns", "end_ns", "arrival_ns"))
    batch = signed(wait["batch"])
    group = groups(a.wait_process, a.wait_loader, a.wait_epoch)
    order = np.lexsort((start, group))
    same = group[order][1:] == group[order][:-1]
    after = np.full(size, -1, np.int64)  # the next call of `next`
    after[order[:-1][same]] = order[1:][same]
    # If frames were lost, neighbours in the log need not be neighbours in time.
    gapped = np.array([process.gapped for process in a.processes], np.bool_)[a.wait_process]
    neighbour = after >= 0
    neighbour &= ~gapped | (batch[after] == batch + 1) if size else neighbour
    step = measured(start[after] - end if size else start, neighbour)
    ends = _by_epoch(a, "epoch_end", ("last_next_ns", "batches"))
    row = match((a.wait_process, a.wait_loader, a.wait_epoch), ends[:3])
    last = pick_int(ends[3], row, 0)
    ended = (after < 0) & (last > 0) & (~gapped | (pick_int(ends[4], row, -1) == batch + 1))
    step = np.where(ended, last - end, step)

    # The CPU clocks of different threads cannot be compared.
    alike = neighbour & (wait["tid"][after] == wait["tid"]) if size else neighbour
    cores = {}
    for name in CPU_COLUMNS:
        following = known_time(wait[f"start_{name}"], np.where(alike, after, -1))
        cores[name] = thin(following - known_time(wait[f"end_{name}"], np.arange(size)))
    first = np.zeros(size, np.bool_)
    first[order[np.concatenate(([True], ~same))[: len(order)]]] = True
    first &= ~gapped | (batch == 0)

    early = (arrival > 0) & (arrival < start)
    late = (arrival > 0) & ~early & (_arrived_between(group, start, arrival) > 0)
    # Without in_order the loop waits for no particular batch, so the order of taking decides.
    taken = batch[order] + (group[order] << 32)  # a number that increases from group to group
    if size and int(batch.max()) < 1 << 31 and int(batch.min()) >= 0:
        late[order[1:]] |= same & (batch[order][1:] < _before(taken, batch[order])[1:])
        early[order[:-1]] |= same & (batch[order][:-1] > _behind(taken, batch[order])[:-1])
    early &= ~late
    code = np.where(early, 0, np.where(late, 2, 1)).astype(np.int8)
    return Waits(thin(step), cores, code, first)


def _before(grouped: Ints, batch: Ints) -> Ints:
    """Return the highest batch taken before each in its group (rows sorted by group and time)."""
    highest = np.maximum.accumulate(grouped)
    return np.concatenate(([-1], highest[:-1] - (grouped - batch)[:-1]))


def _behind(grouped: Ints, batch: Ints) -> Ints:
    """Return the lowest batch taken after each in its group."""
    lowest = np.minimum.accumulate(grouped[::-1])[::-1]
    return np.concatenate((lowest[1:] - (grouped - batch)[1:], [np.iinfo(np.int64).max]))


def _arrived_between(group: Ints, start: Ints, arrival: Ints) -> Ints:
    """Count the other batches of the group that arrived between `start` and `arrival`."""
    count, rows = np.zeros(len(group), np.int64), np.argsort(group, kind="stable")
    for mine in np.split(rows, np.flatnonzero(np.diff(group[rows])) + 1):
        arrives = arrival[mine]
        known = np.sort(arrives[arrives > 0])
        count[mine] = np.searchsorted(known, arrives) - np.searchsorted(known, start[mine])
    return count


def _by_epoch(a: Assembly, event: str, names: Sequence[str]) -> list[Ints]:
    """Return columns of events with a loader and epoch: process, loader, epoch, then `names`."""
    rows = [
        (number, process.base + item["loader"], item["epoch"], *(item[name] for name in names))
        for number, process in enumerate(a.processes)
        for item in process.events[event]
    ]
    table = np.array(rows, np.int64).reshape(-1, 3 + len(names))
    return list(table.T)


def waits(a: Assembly, follows: Waits) -> pd.DataFrame:
    """Return the table `Run.waits`."""
    wait = a.wait
    start, arrival = signed(wait["start_ns"]), signed(wait["arrival_ns"])
    return frame(
        {
            **whose(a, lambda values: values[a.wait_process]),
            "tid": wait["tid"].astype(_I32),
            "loader": a.wait_loader.astype(_I32),
            "epoch": a.wait_epoch.astype(_I32),
            "batch": signed(wait["batch"]),
            "start_ns": start,
            "wait_ns": thin(signed(wait["end_ns"]) - start),
            "step_ns": follows.step_ns,
            **{f"wait_{name}": _passed(wait, name) for name in CPU_COLUMNS},
            **{f"step_{name}": follows.step_cores[name] for name in CPU_COLUMNS},
            "snapshot_ns": known_time(wait["snapshot_ns"], np.arange(len(wait))),
            "sampler_ns": known_time(wait["sampler_ns"], np.arange(len(wait))),
            "arrival_ns": thin(measured(arrival, arrival > 0)),
            **on_device(a, np.arange(len(wait))),
            "failed": (signed(wait["flags"]) & FAILED) != 0,
        }
    )


def on_device(a: Assembly, taken: Ints) -> dict[str, Array]:
    """Return the columns of device times; None if none was timed; `taken`: rows of a.wait."""
    parts = [process.log.fixed["device"] for process in a.processes]
    counts = [len(part) for part in parts]
    if not any(counts):
        return {}
    device = np.concatenate(parts)
    keys = (np.repeat(np.arange(len(parts)), counts), signed(device["start_ns"]))
    step = match((a.wait_process, signed(a.wait["start_ns"])), keys)
    row = np.where(taken >= 0, step[taken], -1) if len(step) else np.full(len(taken), -1, np.int64)
    return {f"device_{name}": known_time(device[name], row) for name in ("idle_ns", "busy_ns")}


class _Joined(NamedTuple):
    """Batches as they were made and as they were taken, in the order of their keys."""

    made: Ints  # row of a.batch; -1: its making was not recorded
    taken: Ints  # row of a.wait; -1: it was not taken
    rank: Ints
    loader: Ints
    epoch: Ints
    batch: Ints


def batches(a: Assembly, follows: Waits) -> pd.DataFrame:
    """Return a row per batch that was made or taken; the side that is not recorded is NaN."""
    joined = _join(a)
    made, taken = joined.made, joined.taken
    owner = np.where(
        made >= 0, pick_int(a.batch_process, made, -1), pick_int(a.wait_process, taken, -1)
    )
    flags = pick_int(a.batch["flags"], made, 0) | pick_int(a.wait["flags"], taken, 0)
    making, sending = _making(a, made), _sending(a, made)
    pin_start, pin_end = _pinned(a, joined)
    ready = np.where(
        pick_int(a.batch["loader"], made, -1) >= 0,
        making["fetch_start_ns"] + making["fetch_ns"],
        making["put_ns"],
    )
    sent = sending["send_start_ns"] + sending["pickle_ns"]
    ready = np.where(np.isnan(sent), ready, sent)
    ready = thin(np.where(np.isnan(pin_end), ready, pin_end))
    del sent
    return frame(
        {
            **whose(a, lambda values: thin(values[owner])),
            "pid": thin(np.where(made >= 0, a.places["pid"][owner], -1).astype(_I32)),
            "tid": thin(pick_int(a.batch["tid"], made, -1).astype(_I32)),
            "worker": thin(pick_int(a.batch["worker"], made, -1).astype(_I32)),
            "loader": thin(joined.loader.astype(_I32)),
            "epoch": thin(joined.epoch.astype(_I32)),
            "batch": joined.batch,
            "size": making.pop("size"),
            "bytes": making.pop("bytes"),
            "flags": flags.astype(_I32),
            **making,
            **sending,
            "pin_start_ns": pin_start,
            "pin_ns": thin(pin_end - pin_start),
            "ready_ns": ready,
            **_taking(a, joined, follows, ready),
        }
    )


def _join(a: Assembly) -> _Joined:
    made = np.flatnonzero((signed(a.batch["flags"]) & SENDS) == 0)
    wait_keys = _wait_keys(a)
    rank = a.ranks[a.batch_process[made]]
    keys = (rank, a.batch_loader[made], a.batch_epoch[made], signed(_rows(a.batch["batch"], made)))
    taken = match(keys, wait_keys)
    # A key that occurs twice is joined only once.
    known, place = np.unique(taken, return_index=True)
    once = np.zeros(len(taken), np.bool_)
    once[place] = known >= 0
    taken = np.where(once, taken, -1)
    left = np.ones(len(a.wait), np.bool_)
    left[taken[taken >= 0]] = False
    alone = np.flatnonzero(left)
    rows = (
        np.concatenate((made, np.full(len(alone), -1, np.int64))),
        np.concatenate((taken, alone)),
    )
    key = [
        np.concatenate((mine, theirs[alone])) for mine, theirs in zip(keys, wait_keys, strict=True)
    ]
    order = np.lexsort((key[3], key[2], key[1], key[0]))
    return _Joined(*(thin(values[order]) for values in (*rows, *key)))


def _wait_keys(a: Assembly) -> tuple[Ints, Ints, Ints, Ints]:
    return a.ranks[a.wait_process], a.wait_loader, a.wait_epoch, signed(a.wait["batch"])


def _making(a: Assembly, made: Ints) -> dict[str, Array]:
    """Return the columns that the maker of each batch recorded; `made`: rows of a.batch."""
    fixed = a.batch

    def maker(name: str) -> Array:
        return pick(fixed[name], made)

    def time(name: str) -> Array:
        values = maker(name)
        return thin(np.where(values > 0, values, np.nan))

    sampled = (signed(fixed["n_samples"]) > 0) | (signed(fixed["size"]) == 0)
    samples_ns = pick(_samples_ns(a), made)
    samples_ns = thin(np.where(pick_int(sampled, made, 0) > 0, samples_ns, np.nan))
    fetch, collate = maker("fetch_ns"), maker("collate_ns")
    counted = ("cpu_ns", "minor_faults", "major_faults", "read_bytes")
    switched = ("voluntary_switches", "involuntary_switches")
    return {
        "size": maker("size"),
        "bytes": maker("bytes"),
        "idle_ns": thin(np.where(np.isnan(time("idle_start_ns")), np.nan, maker("idle_ns"))),
        "fetch_start_ns": maker("fetch_start_ns"),
        "fetch_ns": fetch,
        "samples_ns": samples_ns,
        "collate_start_ns": time("collate_start_ns"),
        "collate_ns": collate,
        "self_ns": thin(fetch - samples_ns - collate),
        **{name: maker(name) for name in (*counted, *switched)},
        "run_delay_ns": known_time(fixed["run_delay_ns"], made),
        "process_cpu_ns": known_time(fixed["process_cpu_ns"], made),
        "snapshot_ns": known_time(fixed["snapshot_ns"], made),
        "put_ns": time("put_ns"),
    }


def _sending(a: Assembly, made: Ints) -> dict[str, Array]:
    """Return the columns of how each batch was sent; `made`: rows of a.batch."""
    sends, of_batch = a.sends
    send = pick_int(of_batch, made, -1)
    pickle, lock, write = (pick(sends[f"{name}_ns"], send) for name in ("pickle", "lock", "write"))
    return {
        "send_start_ns": pick(sends["start_ns"], send),
        "pickle_ns": pickle,
        "lock_ns": lock,
        "write_ns": write,
        "send_ns": thin(pickle + lock + write),
        "send_bytes": pick(sends["bytes"], send),
        "send_tid": pick(sends["tid"], send),
    }


def _pinned(a: Assembly, joined: _Joined) -> tuple[Array, Array]:
    """Return when the copy of each batch to pinned memory began and ended; NaN without one."""
    pins, pin_keys = _pins(a)
    keys = (joined.rank, joined.loader, joined.epoch, joined.batch)
    pin = match(keys, pin_keys, last=True)
    return pick(pins["start_ns"], pin), pick(pins["end_ns"], pin)


def _taking(a: Assembly, joined: _Joined, follows: Waits, ready: Array) -> dict[str, Array]:
    """Return the columns of how the training loop took each batch; `ready`: when it could have."""
    wait, taken = a.wait, joined.taken
    end, arrival = pick(wait["end_ns"], taken), pick(wait["arrival_ns"], taken)
    code = pick_int(follows.order, taken, -1).astype(np.int8)
    # Not taken: the first of its epoch only if no batch of the epoch was taken.
    alone = (joined.batch == 0) & (taken < 0)
    if alone.any():
        keys = (joined.rank[alone], joined.loader[alone], joined.epoch[alone])
        alone[alone] = match(keys, _wait_keys(a)[:3]) < 0
    return {
        "arrival_ns": thin(np.where(arrival > 0, arrival, np.nan)),
        "wait_start_ns": pick(wait["start_ns"], taken),
        "wait_ns": pick(signed(wait["end_ns"]) - signed(wait["start_ns"]), taken),
        "sampler_ns": known_time(wait["sampler_ns"], taken),
        "taken_ns": end,
        "delay_ns": thin(np.maximum(end - ready, 0.0)),
        "step_ns": pick(follows.step_ns, taken),
        **on_device(a, taken),
        "out_of_order": code == ORDERS.index("early"),
        "order": categories(code, ORDERS),
        "first": np.where(taken >= 0, pick_int(follows.first, taken, 0) > 0, alone),
    }


def _samples_ns(a: Assembly) -> Ints:
    return np.concatenate(
        [np.empty(0, np.int64), *(process.log.samples_ns for process in a.processes)]
    )


def _pins(a: Assembly) -> tuple[Array, tuple[Array, Array, Array, Array]]:
    """Return (pin records, their rank, loader, epoch, batch)."""
    parts = [process.log.pins for process in a.processes]
    empty = np.empty(0, [(name, "<u8") for name in ("batch", "start_ns", "end_ns")])
    pins = np.concatenate([empty, *parts])
    row = np.repeat(np.arange(len(a.wait)), a.wait["n_pins"])
    rank = a.ranks[a.wait_process[row]]
    return pins, (rank, a.wait_loader[row], a.wait_epoch[row], signed(pins["batch"]))
