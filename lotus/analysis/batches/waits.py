"""The parts of a loop's time, and the phases of each wait.

`loop_times` adds up an epoch as the training loop saw it. `wait_phases` cuts every wait
[wait_start, taken] at what happened to the awaited batch, and `paced` charges the stage that set
the pace. Both keep the sum of all waits; the phases of a wait add up to it.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from lotus.analysis.common.columns import (
    blocks,
    busy_within,
    flag,
    float_column,
    int_column,
    process_keys,
    process_rows,
    rows_by,
    starts_of_runs,
)
from lotus.analysis.common.warm_up import WARM_UP
from lotus.common.numbers.array_types import Bools, Floats, Ints
from lotus.common.storage import long_arrays

Array = npt.NDArray[Any]
Columns = dict[str, Array]  # by name, of equal lengths

_EPOCH = ("rank", "loader", "epoch")

# In the order in which a batch goes through them.
PHASES = (
    "startup",  # its worker was not ready yet
    "making",  # being fetched, or its worker busy with another batch or a snapshot
    "index",  # its worker idle: nobody had asked for the batch yet
    "sending",  # waiting for the feeder thread, pickled, written, read, unpickled
    "pinning",  # copied by the pin thread, or queued for it
    "handover",  # it was here: sampler, index queues and bookkeeping of the main process
    "unseen",  # no record of how it was made
)

# The longest that sending may take undelayed: one tensor, pickled bytes, the copy of tensors to
# shared memory.
SEND_NS, SEND_NS_PER_PIPE_BYTE, SEND_NS_PER_SHARED_BYTE = 0.5e6, 1e3, 2.0


def loop_times(epochs: pd.DataFrame, waits: pd.DataFrame) -> pd.DataFrame:
    """Add up each epoch: one row per (rank, loader, epoch), nanoseconds.

    iter_ns (blocked in `iter()`), wait_ns (in `next`), step_ns (the training step), own_ns
    (lotus's own work, part of step_ns), first_ns (the wait for the first batch, part of
    wait_ns), tail_ns (the `next` that found no more batches, with the shut-down), loop_ns
    (their sum), waits (how many `next`). An epoch of which no `iter()` was recorded has iter_ns
    0. warm_up_ns, where the waits have it, is not part of loop_ns, nor is callback_ns, which is
    as `Run.epochs` has it, like iter_run_delay_ns and iter_sampler_ns.
    """
    begun = {
        **{name: int_column(epochs, name) for name in (*_EPOCH, "pid")},
        **{
            name: float_column(epochs, name)
            for name in ("start_ns", "startup_ns", "iter_ns", "own_ns")
        },
        **{name: float_column(epochs, name) for name in ("end_ns", "shutdown_ns", "callback_ns")},
        **{name: float_column(epochs, name) for name in ("iter_run_delay_ns", "iter_sampler_ns")},
        "exhausted": flag(epochs, "exhausted"),
        "batches": float_column(epochs, "batches"),
    }
    begun["own_ns"] = np.fmax(begun["own_ns"], 0.0)
    loop = _joined(begun, _waits_of_epochs(waits))
    for name in ("own_ns", "iter_ns", "wait_ns", "step_ns", WARM_UP, "first_ns", "shutdown_ns"):
        loop[name] = np.nan_to_num(loop[name])
    loop["waits"] = np.nan_to_num(loop["waits"]).astype(np.int64)
    after = loop["end_ns"] - loop["last_ns"]
    tail = np.where(loop["exhausted"] & (after > 0), after, 0.0)
    # The records of a partly recorded epoch end early: only what was the shut-down is certain.
    tail = np.where(loop["batches"] > loop["waits"], 0.0, tail)
    loop["tail_ns"] = np.maximum(tail, loop["shutdown_ns"])
    loop["loop_ns"] = loop["iter_ns"] + loop["wait_ns"] + loop["step_ns"] + loop["tail_ns"]
    return pd.DataFrame(loop)


def _joined(begun: Columns, waited: Columns) -> Columns:
    """Return the columns of both for each epoch that either has, sorted.

    Of an epoch that `begun` has twice, the first row. Where one has none: NaN, False, or -1 of a
    column of integers. Not by pandas, whose merge takes five milliseconds of two short tables.
    """
    count = len(begun["epoch"])
    of = [np.concatenate((begun[name], waited[name])) for name in _EPOCH]
    order = np.lexsort(of[::-1])
    of = [column[order] for column in of]
    first = starts_of_runs(of) if len(order) else order
    last = order[np.append(first[1:], len(order)) - 1] if len(order) else order
    of_begun, of_waited = order[first], last - count
    joined = {name: column[first] for name, column in zip(_EPOCH, of, strict=True)}
    for columns, rows, known in (
        (begun, of_begun, of_begun < count),
        (waited, of_waited, of_waited >= 0),
    ):
        for name in [name for name in columns if name not in _EPOCH]:
            joined[name] = _of_rows(columns[name], rows, known)
    return joined


def _of_rows(column: Array, rows: Ints, known: Bools) -> Array:
    missing = {"b": False, "i": -1}.get(column.dtype.kind, np.nan)
    result = np.full(len(rows), missing, column.dtype)
    result[known] = column[rows[known]]
    return result


def _waits_of_epochs(waits: pd.DataFrame) -> Columns:
    """Add up the waits of each epoch, as columns of `loop_times`.

    Not by pandas, whose groupby takes ten milliseconds however short the table is.
    """
    start, wait = float_column(waits, "start_ns"), float_column(waits, "wait_ns")
    of = [int_column(waits, name) for name in _EPOCH]
    order = np.lexsort((start, np.isnan(wait), *reversed(of)))
    order = order[of[1][order] >= 0]
    of = [column[order] for column in of]
    first = starts_of_runs(of) if len(order) else order
    start, wait = start[order], wait[order]
    step, warm_up = (
        np.nan_to_num(float_column(waits, name))[order] for name in ("step_ns", WARM_UP)
    )

    def whole(ufunc: np.ufunc, values: Floats) -> Floats:
        return ufunc.reduceat(values, first) if len(first) else np.zeros(0)

    return {
        **{name: column[first] for name, column in zip(_EPOCH, of, strict=True)},
        "wait_ns": whole(np.add, np.nan_to_num(wait)),
        "step_ns": whole(np.add, step),
        WARM_UP: whole(np.add, warm_up),
        "waits": np.diff(np.append(first, len(order))).astype(np.float64),
        "begin_ns": whole(np.fmin, start),
        "first_ns": wait[first],
        "last_ns": whole(np.fmax, start + wait + step + warm_up),
    }


def wait_phases(batches: pd.DataFrame, workers: pd.DataFrame) -> pd.DataFrame:
    """Cut each wait at the events of its batch: one float column per phase, one row per batch.

    Rows without a wait are all 0; every other row adds up to its wait_ns.
    """
    phases = {name: long_arrays.zeros((len(batches),)) for name in PHASES}
    for some in _blocks(len(batches)):
        for name, values in _cut(batches.iloc[some], workers).items():
            phases[name][some] = values
    _behind_pin_thread(phases, batches)
    return pd.DataFrame(phases, copy=False)


def _blocks(count: int) -> Iterator[slice]:
    """Yield so many rows in blocks, none of which stay in memory."""
    for some in blocks(count):
        yield some
        long_arrays.let_go()


def _cut(batches: pd.DataFrame, workers: pd.DataFrame) -> Columns:
    """Return the columns of `wait_phases`, before queues of the pin thread."""
    wait, begin = float_column(batches, "wait_ns"), float_column(batches, "wait_start_ns")
    length = np.where(_waited(batches), wait, 0.0)

    def since(time: Floats) -> Floats:
        return time - begin

    ready = float_column(workers, "ready_ns")
    process = process_rows(workers, batches)
    if len(workers):
        ready = np.where(process >= 0, ready[np.maximum(process, 0)], np.nan)
    else:
        ready = np.full(len(batches), np.nan)
    fetch = float_column(batches, "fetch_start_ns")
    made = (
        fetch
        + float_column(batches, "fetch_ns")
        + np.nan_to_num(float_column(batches, "snapshot_ns"))
    )
    idle = np.nan_to_num(float_column(batches, "idle_ns"))
    in_worker = int_column(batches, "worker") >= 0
    pin, pinned = float_column(batches, "pin_start_ns"), float_column(batches, "pin_ns")
    # Pinned: the pin thread takes it off the queue. Otherwise the main process does.
    arrival = np.where(np.isnan(pin) & in_worker, float_column(batches, "arrival_ns"), np.nan)
    cuts = [
        ("startup", ready),
        ("handover", np.where(in_worker, np.nan, fetch)),  # the sampler
        ("making", fetch - idle),
        ("index", fetch),
        ("making", made),
        ("sending", _pickled(batches)),
        ("sending", arrival),
        ("sending", pin),
        ("pinning", pin + pinned),
    ]
    phases = {name: np.zeros(len(batches)) for name in PHASES}
    position = np.zeros(len(batches))
    seen = ~np.isnan(fetch)
    for name, time in cuts:
        known = np.where(seen, since(time), 0.0)
        cut = np.clip(np.nan_to_num(known, nan=0.0), position, length)
        phases[name] += cut - position
        position = cut
    phases["handover"] += np.where(seen, length - position, 0.0)
    phases["unseen"] = np.where(seen, 0.0, length - position)
    return phases


def _waited(batches: pd.DataFrame) -> Bools:
    """Return which batches were waited for, as far as that was recorded."""
    return ~np.isnan(float_column(batches, "wait_ns")) & ~np.isnan(
        float_column(batches, "wait_start_ns")
    )


def _pickled(batches: pd.DataFrame) -> Floats:
    """Return when each batch was ready to be sent; NaN without workers or a record of it."""
    pickled = float_column(batches, "send_start_ns") + float_column(batches, "pickle_ns")
    return np.where(int_column(batches, "worker") >= 0, pickled, np.nan)


def _behind_pin_thread(phases: Columns, batches: pd.DataFrame) -> None:
    """Charge the pinning with waits for a pickled batch while the pin thread copied another one."""
    pin = float_column(batches, "pin_start_ns")
    if np.isnan(pin).all():
        return
    group = int_column(batches, "rank") * 1_000_003 + int_column(batches, "loader")
    begin = np.where(_waited(batches), float_column(batches, "wait_start_ns"), np.nan)
    start = np.fmax(begin, _pickled(batches))
    queued = busy_within(group, start, pin, group, pin, float_column(batches, "pin_ns"))
    queued = np.minimum(queued, phases["sending"])
    phases["sending"] -= queued
    phases["pinning"] += queued


def paced(
    phases: pd.DataFrame, batches: pd.DataFrame, first_of_process: np.ndarray
) -> pd.DataFrame:
    """Charge the waits to the stage that set the pace; columns and their sum as `wait_phases`.

    With several workers the end of a batch's way (collate, send) is what the loop happens to
    watch, because the beginning passed while it waited for other workers' batches. But a stage
    that has time to spare does not set the pace. A worker with no idle time before the batch could
    not have been earlier however short the sending; if moreover the loop came before the batch
    was ready, the making set the pace, and the whole wait is charged to it. A batch that was ready
    before anybody wanted it was not late by its making. In between, the charge is in between: the
    part that the worker's idle time does not cover, times the step's share of the spare time.

    Where a batch was not sent because its worker was fetching others, the making of these is
    charged.
    """
    due, arrived = _until_arrival(batches)
    held = _held_by_worker(batches, due, arrived)
    # What a process loads to send its first batch is no work of its data set.
    held[first_of_process] = 0.0
    result = {name: long_arrays.zeros((len(batches),)) for name in PHASES}
    for some in _blocks(len(batches)):
        charged = _paced(phases.iloc[some], batches.iloc[some], first_of_process[some], held[some])
        for name, values in charged.items():
            result[name][some] = values
    held = np.minimum(held, result["making"])
    result["making"] += shared_out(
        held,
        due,
        arrived,
        process_keys(batches),
        float_column(batches, "fetch_start_ns"),
        float_column(batches, "fetch_ns"),
    )
    result["making"] -= held
    return pd.DataFrame(result, copy=False)


def _paced(
    phases: pd.DataFrame, batches: pd.DataFrame, first_of_process: Bools, held: Floats
) -> Columns:
    """Return the columns of `paced`; `held`: as `_held_by_worker` returns it."""
    result = {name: phases[name].to_numpy(copy=True) for name in PHASES}
    held = np.minimum(held, result["sending"])
    result["sending"] -= held
    result["making"] += held
    idle = np.nan_to_num(float_column(batches, "idle_ns"))
    stages = ["making", "sending", "pinning", "handover"]
    open_ns = phases[stages].to_numpy().sum(axis=1)
    pickled = _pickled(batches)
    ready = np.where(np.isnan(pickled), float_column(batches, "ready_ns"), pickled)
    spare = np.fmax(ready - float_column(batches, "wait_start_ns"), 0.0)
    spare = np.minimum(np.nan_to_num(spare), open_ns)
    share = spare / np.where(spare > 0, spare + idle, 1.0)
    busy = share * np.clip(1.0 - idle / np.where(open_ns > 0, open_ns, 1.0), 0.0, 1.0)
    # The main process has no queue of indices; a process's first batch comes from no full pipeline.
    busy[(int_column(batches, "worker") < 0) | first_of_process] = 0.0
    for name in stages:
        result[name] *= 1.0 - busy
    result["making"] += open_ns * busy
    return result


def _until_arrival(batches: pd.DataFrame) -> tuple[Floats, Floats]:
    """Return from when to when each batch that was made and waited for was on its way (n,), ns."""
    made = float_column(batches, "fetch_start_ns") + float_column(batches, "fetch_ns")
    arrival, pin = float_column(batches, "arrival_ns"), float_column(batches, "pin_start_ns")
    start = np.fmax(float_column(batches, "wait_start_ns"), made)
    return start, np.where(np.isnan(pin), arrival, pin)


def _held_by_worker(batches: pd.DataFrame, start: Floats, end: Floats) -> Floats:
    """Return how long each batch was not sent because its worker's Python code kept running (n,).

    The thread that pickles a batch, and the one that the receiver asks for a tensor in shared
    memory, need the worker's interpreter. So a batch of few bytes in the pipe that takes long to
    arrive while its worker fetches the next one is held by that fetch.
    """
    group = process_keys(batches)
    fetching = busy_within(
        group,
        start,
        end,
        group,
        float_column(batches, "fetch_start_ns"),
        float_column(batches, "fetch_ns"),
    )
    expected = SEND_NS + SEND_NS_PER_PIPE_BYTE * float_column(batches, "send_bytes")
    expected += SEND_NS_PER_SHARED_BYTE * np.nan_to_num(float_column(batches, "bytes"))
    # Sending itself may take the time between two fetches.
    held: Floats = np.clip(np.minimum(fetching, end - start - expected), 0.0, None)
    return np.nan_to_num(held)


def shared_out(
    ns: Floats, start: Floats, end: Floats, group: Ints, busy_start: Floats, busy_ns: Floats
) -> Floats:
    """Move the time of each [start, end] to the busy intervals of its group there (n,), ns.

    Each interval gets its part of the time in which any of them was busy. The busy intervals of one
    group must not overlap. Time that meets none stays where it is.
    """
    result = np.where(ns > 0, ns, 0.0)
    usable = ~np.isnan(busy_start) & ~np.isnan(busy_ns)
    asked, busy = rows_by(group, result > 0), rows_by(group, usable)
    for name in asked.keys() & busy.keys():
        rows, mine = asked[name], busy[name]
        mine = mine[np.argsort(busy_start[mine], kind="stable")]
        begins, lengths = busy_start[mine], busy_ns[mine]
        place = np.maximum(np.searchsorted(begins, start[rows], side="right") - 1, 0)
        within = busy_within(group[rows], start[rows], end[rows], group[mine], begins, lengths)
        rows, place, within = rows[within > 0], place[within > 0], within[within > 0]
        given = ns[rows] / within
        result[rows] -= ns[rows]
        while len(rows):
            stop = np.minimum(begins[place] + lengths[place], end[rows])
            inside = np.maximum(stop - np.maximum(begins[place], start[rows]), 0.0)
            np.add.at(result, mine[place], given * inside)
            place = place + 1
            more = place < len(mine)
            more[more] = begins[place[more]] < end[rows[more]]
            rows, place, given = rows[more], place[more], given[more]
    return result
