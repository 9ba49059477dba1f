"""The steps of each rank of a job, a row of each, in the numbers of rank_steps.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import flag, float_column, int_column
from lotus.analysis.common.scope import RunLike, table
from lotus.common.numbers.array_types import Bools, Ints

_FEEDS = 0.5  # of the steps


@dataclass(frozen=True)
class RankRows:
    """frame: rank host step warm wait step_ns sync ready (0: not known), one row each."""

    frame: pd.DataFrame
    loaders: list[int]


def is_partial(run: RunLike) -> bool:
    """Return True if not every batch was to be recorded."""
    return bool(run.manifest.get("batches")) or (run.manifest.get("every") or 1) != 1


def outer_waits(run: RunLike) -> pd.DataFrame:
    """Return the outermost waits of main processes, by rank, process and time.

    rank pid host world_size loader epoch batch start end step_ns; int64 nanoseconds but for
    step_ns. Of a process whose main thread waited, that thread's only.
    """
    waits = table(run, "waits")
    columns = {
        name: int_column(waits, name) for name in ("rank", "pid", "loader", "epoch", "batch")
    }
    start = int_column(waits, "start_ns")
    frame = pd.DataFrame(
        {
            **columns,
            "host": _texts(waits, "host"),
            "world_size": int_column(waits, "world_size", 1),
            "start": start,
            "end": start + int_column(waits, "wait_ns", 0),
            "step_ns": float_column(waits, "step_ns"),
            "main": int_column(waits, "tid") == columns["pid"],
        }
    )[~flag(waits, "failed")]
    workers = table(run, "workers")
    if len(workers):  # they may iterate loaders of their own
        made = _pairs(int_column(workers, "rank"), int_column(workers, "pid"))
        frame = frame[~np.isin(_pairs(frame["rank"].to_numpy(), frame["pid"].to_numpy()), made)]
    whose = [frame["rank"], frame["pid"]]
    frame = frame[frame["main"] | ~frame["main"].groupby(whose).transform("any")]
    order = np.lexsort((-frame["end"], frame["start"], frame["pid"], frame["rank"]))
    frame = frame.iloc[order].reset_index(drop=True)
    # A wait that ends in an earlier one is of a loader inside of a loader.
    before = frame.groupby(["rank", "pid"])["end"].cummax().groupby([frame["rank"], frame["pid"]])
    outer = frame["end"] > before.shift(1, fill_value=-1)
    return frame[outer].reset_index(drop=True)


def _pairs(rank: Ints, pid: Ints) -> Ints:
    return np.asarray((rank << 32) + pid)


def _places(first: Ints, then: Ints) -> Ints:
    """Return the place of each pair among all distinct ones, sorted."""
    a, b = (pd.factorize(column, sort=True)[0].astype(np.int64) for column in (first, then))
    joint = a * (int(b.max(initial=0)) + 1) + b
    return np.asarray(pd.factorize(joint, sort=True)[0], np.int64)


def _texts(frame: pd.DataFrame, name: str) -> pd.Series:
    if name not in frame:
        return pd.Series([""] * len(frame), dtype="category")
    return frame[name].astype("category")


def synced_rows(syncs: pd.DataFrame, waits: pd.DataFrame, partial: bool) -> RankRows:
    """Return a row of each synchronisation of each rank."""
    frame = pd.DataFrame(
        {
            **{name: int_column(syncs, name) for name in ("rank", "pid", "step")},
            "host": _texts(syncs, "host"),
            "begin": int_column(syncs, "start_ns"),
            "ready": int_column(syncs, "ready_ns"),
            "end": int_column(syncs, "end_ns"),
            "sync": float_column(syncs, "exposed_ns"),
        }
    )
    frame = frame[(frame["step"] >= 0) & (frame["ready"] > 0)]
    frame = frame.sort_values(["rank", "pid", "step"], kind="stable")
    frame = frame.drop_duplicates(["rank", "pid", "step"]).reset_index(drop=True)
    frame = _generations(frame)
    whose = frame.groupby(["rank", "pid"], sort=False)
    previous = whose["end"].shift(1, fill_value=-1).to_numpy(np.int64)
    follows = whose["step"].shift(1, fill_value=-2).to_numpy(np.int64) + 1 == frame["step"]
    previous = np.where(follows, previous, -1)
    fed = _fed(frame, waits, previous)
    own = np.where(fed.since >= 0, frame["ready"].to_numpy() - fed.since, np.nan)
    wait = np.where(fed.waited, np.clip(fed.wait, 0, np.fmax(own, 0)), np.nan)
    if partial:  # a batch that was not recorded had a wait as well
        wait = np.where(fed.count > 0, wait, np.nan)
        own = np.where(fed.waited & (fed.count == 0), np.nan, own)
    frame["wait"] = np.where(np.isnan(own), np.nan, wait)
    frame["step_ns"] = own - np.nan_to_num(wait)
    frame["samples_of"] = np.where(fed.count > 0, fed.count, 0)
    return RankRows(frame, fed.loaders)


def _generations(frame: pd.DataFrame) -> pd.DataFrame:
    """Count `step` on over processes that replaced each other, and add `warm`.

    Processes of one generation (of an elastic job) overlap in time, those of the next begin when
    all of them are over. Of a rank with two processes in one, that with more steps counts.
    """
    each = frame.groupby(["rank", "pid"], as_index=False).agg(
        first=("begin", "min"), over=("end", "max"), low=("step", "min"), rows=("step", "size")
    )
    each = each.sort_values("first", ignore_index=True)
    begins = each["first"] >= each["over"].cummax().shift(1, fill_value=-1)
    # Only a process that counts from 0 can begin a generation: a late joiner does not.
    each["generation"] = (begins & (each["low"] == 0)).cumsum() - 1
    each = each.sort_values("rows", ascending=False, kind="stable")
    each = each.drop_duplicates(["rank", "generation"])
    frame = frame.merge(each[["rank", "pid", "generation"]], on=["rank", "pid"])
    frame["step"] = _places(frame["generation"].to_numpy(), frame["step"].to_numpy())
    frame = frame.sort_values(["rank", "step"], ignore_index=True)
    frame["warm"] = frame.groupby(["rank", "pid"]).cumcount() > 0
    return frame


@dataclass(frozen=True)
class _Fed:
    since: Ints  # when the rank's own time began, -1: not known
    wait: Ints
    count: Ints  # batches taken
    waited: Bools  # the process has waits at all
    loaders: list[int]


def _fed(frame: pd.DataFrame, waits: pd.DataFrame, previous: Ints) -> _Fed:
    """Assign to each row the waits that ended between the backward pass before and this one."""
    row = _next_row(frame, waits)
    known = row >= 0
    waits, row = waits[known], row[known]
    loader = waits["loader"].to_numpy(np.int64)
    # The number of windows in which each loader gave a batch.
    windows = pd.DataFrame({"loader": loader, "row": row}).drop_duplicates()
    fed = windows.groupby("loader").size()
    whole = np.count_nonzero(np.bincount(row))
    loaders = sorted(int(loader) for loader in fed.index[fed >= _FEEDS * whole]) or [
        int(loader) for loader in fed.sort_values().index[-1:]
    ]
    mine = np.isin(loader, loaders)
    waits, row = waits[mine], row[mine]
    size = len(frame)
    start, end = waits["start"].to_numpy(), waits["end"].to_numpy()
    # The process's own start is used where no synchronisation came before.
    first = np.full(size, np.iinfo(np.int64).max)
    np.minimum.at(first, row, start)
    since = np.where(previous >= 0, previous, np.where(first < np.iinfo(np.int64).max, first, -1))
    inside = np.maximum(end - np.maximum(start, since[row]), 0)
    wait = np.bincount(row, weights=inside, minlength=size).astype(np.int64)
    count = np.bincount(row, minlength=size)
    process = frame.groupby(["rank", "pid"], sort=False).ngroup().to_numpy()
    has = np.bincount(process, weights=count, minlength=int(process.max(initial=0)) + 1) > 0
    return _Fed(since, wait, count, has[process], loaders)


def _next_row(frame: pd.DataFrame, waits: pd.DataFrame) -> Ints:
    """Return the row of the backward pass that begins next after each wait; -1: none does."""
    result = np.full(len(waits), -1, np.int64)
    rows_of: Mapping[Any, Any] = frame.groupby(["rank", "pid"], sort=False).indices
    for key, mine in waits.groupby(["rank", "pid"], sort=False).indices.items():
        rows = rows_of.get(key)
        if rows is None:
            continue
        begins = frame["begin"].to_numpy()[rows]
        order = np.argsort(begins, kind="stable")
        at = np.searchsorted(begins[order], waits["end"].to_numpy()[mine])
        result[mine] = np.where(at < len(rows), rows[order][np.minimum(at, len(rows) - 1)], -1)
    return result


def unsynced_rows(waits: pd.DataFrame) -> RankRows:
    """Return a row of each batch, of the loader that gave the most."""
    if not len(waits):
        return RankRows(waits, [])
    loader = int(waits["loader"].value_counts().index[0])
    frame = waits[waits["loader"] == loader]
    frame = frame.drop_duplicates(["rank", "epoch", "batch"], keep="last")
    first = frame.groupby("epoch")["batch"].transform("min")
    made = frame.assign(
        step=_places(frame["epoch"].to_numpy(), frame["batch"].to_numpy()),
        warm=frame["batch"] > first,
        wait=(frame["end"] - frame["start"]).astype(np.float64),
        sync=np.nan,
        ready=0,
        samples_of=1,
    )
    return RankRows(made.reset_index(drop=True), [loader])
