"""Intervals of each thread's work, to which native_map joins samples."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from lotus.common.numbers.array_types import Ints
from lotus.reading.logs.frame_scanner import Array
from lotus.reading.logs.process_tree import Assembly
from lotus.reading.tables.batch_tables import categories, signed

OPERATION = "operation"
KINDS = (OPERATION, "collate", "fetch", "send", "idle", "start-up", "wait", "step")


def intervals(
    a: Assembly,
    ops: pd.DataFrame,
    waits: pd.DataFrame,
    epochs: pd.DataFrame,
    workers: pd.DataFrame,
) -> pd.DataFrame:
    """Return a row per interval: pid, tid, start_ns, end_ns, kind, operation, worker, row.

    Intervals of a thread nest or are disjoint. `kind` is a category of KINDS. Time belongs to the
    innermost interval: "fetch" is the data set's own code, and "wait" without workers is what torch
    does around a fetch. `operation` is a category, "" for other kinds. `row` is the row in `ops` of
    an operation, in Assembly.batch of a fetch or collate, else -1. Operations come first, in the
    order of `ops`.
    """
    batch = a.batch
    pid = a.places["pid"][a.batch_process]
    tid, worker = signed(batch["tid"]), signed(batch["worker"])
    parts = []

    def add(kind: str, pid: Any, tid: Any, start: Any, took: Any, worker: Any, row: Any) -> None:
        start, took = np.asarray(start, np.float64), np.asarray(took, np.float64)
        good = ~np.isnan(start) & ~np.isnan(took) & (start > 0) & (np.asarray(tid) > 0)
        columns = [np.asarray(column)[good] for column in (pid, tid, start, took, worker, row)]
        parts.append((kind, columns))

    rows = np.arange(len(batch))
    for kind in ("collate", "fetch"):
        took = signed(batch[f"{kind}_ns"])
        made = took > 0
        start = np.where(made, signed(batch[f"{kind}_start_ns"]), 0)
        add(kind, pid, tid, start, took, worker, rows)
    none = np.full(len(batch), -1)
    add("idle", pid, tid, signed(batch["idle_start_ns"]), signed(batch["idle_ns"]), worker, none)
    sends, _ = a.sends
    counts = [len(process.log.sends) for process in a.processes]
    owner = np.repeat(np.arange(len(counts)), counts)
    length = signed(sends["pickle_ns"]) + signed(sends["lock_ns"]) + signed(sends["write_ns"])
    own_worker = np.array([process.worker for process in a.processes], np.int64)
    nowhere = np.full(len(sends), -1)
    add(
        "send", a.places["pid"][owner], signed(sends["tid"]), signed(sends["start_ns"]), length,
        own_worker[owner] if len(own_worker) else nowhere, nowhere,
    )  # fmt: skip
    main = np.full(len(waits), -1)
    start, took, step = (waits[name].to_numpy() for name in ("start_ns", "wait_ns", "step_ns"))
    add("wait", waits["pid"], waits["tid"], start, took, main, main)
    add("step", waits["pid"], waits["tid"], start + took, step, main, main)
    # A worker's loop runs on its main thread, whose tid is the pid.
    ready = workers["ready_ns"] - workers["loop_ns"]
    number = np.full(len(workers), -1)
    add(
        "start-up", workers["pid"], workers["pid"], workers["loop_ns"], ready, workers["worker"],
        number,
    )  # fmt: skip
    # The thread that waits is the one that began the iteration.
    first = waits.drop_duplicates(["pid", "loader", "epoch"])[["pid", "loader", "epoch", "tid"]]
    begun = epochs.merge(first, on=["pid", "loader", "epoch"], how="left")
    missing = np.full(len(begun), -1)
    add(
        "start-up", begun["pid"], begun["tid"].fillna(0).to_numpy(np.int64), begun["start_ns"],
        begun["iter_ns"], missing, missing,
    )  # fmt: skip
    return _table(ops, parts)


def _table(ops: pd.DataFrame, parts: Iterable[tuple[str, list[Array]]]) -> pd.DataFrame:
    parts = list(parts)
    operation = ops["operation"].astype("category")
    known = [str(name) for name in operation.cat.categories]
    numbers = {"": 0}  # other kinds; an operation may also have an empty name
    places = np.array([0, *(numbers.setdefault(name, len(numbers)) for name in known)], np.int32)
    names = list(numbers)
    others = sum(len(columns[0]) for _, columns in parts)

    def column(own: Any, place: int, kind: Any) -> Array:
        return np.concatenate([own, *(columns[place] for _, columns in parts)]).astype(kind)

    start: Ints = column(ops["start_ns"], 2, np.int64)
    codes = places[operation.cat.codes.to_numpy().astype(np.int32) + 1]
    kinds = [np.zeros(len(ops), np.int8)]
    kinds += [np.full(len(columns[0]), KINDS.index(kind), np.int8) for kind, columns in parts]
    return pd.DataFrame(
        {
            "pid": column(ops["pid"], 0, np.int32),
            "tid": column(ops["tid"], 1, np.int32),
            "start_ns": start,
            "end_ns": start + column(ops["duration_ns"], 3, np.int64),
            "kind": categories(np.concatenate(kinds), KINDS),
            "operation": categories(np.concatenate((codes, np.zeros(others, np.int32))), names),
            "worker": column(ops["worker"], 4, np.int32),
            "row": column(np.arange(len(ops)), 5, np.int64),
        },
        copy=False,
    )


def exact(
    table: pd.DataFrame, counters: pd.DataFrame, batch_rows: Ints, events: list[str]
) -> pd.DataFrame:
    """Return the counts as (intervals, events), NaN if not counted, and `scaled`.

    `batch_rows` has the row of Assembly.batch of each row of `counters`. Counts include those of
    nested intervals.
    """
    counts = {name: np.full(len(table), np.nan) for name in events}
    scaled = np.zeros(len(table), np.bool_)
    kind = table["kind"].to_numpy()
    row = table["row"].to_numpy()
    for name in (OPERATION, "fetch", "collate"):
        mine = (counters["kind"] == name).to_numpy()
        target = np.flatnonzero(kind == name)
        if not mine.any() or not len(target):
            continue
        source = counters["row"].to_numpy()[mine] if name == OPERATION else batch_rows[mine]
        place = np.full(int(max(row[target].max(), source.max())) + 1, -1, np.int64)
        place[row[target]] = target
        at = place[source]
        known = (at >= 0) & (source >= 0)
        for event in events:
            counts[event][at[known]] = counters[event].to_numpy()[mine][known]
        scaled[at[known]] = counters["scaled"].to_numpy()[mine][known]
    return pd.DataFrame({**counts, "scaled": scaled}, copy=False)
