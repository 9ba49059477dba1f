"""What every analysis needs of the tables: numbers, batch keys, joins by time, overlaps.

Times are float64 nanoseconds here (NaN: not measured). CLOCK_MONOTONIC counts from the boot of the
machine, so they are exact to 2 ns for the first 200 days.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
ShortInts = npt.NDArray[np.signedinteger[Any]]  # int32 or int64

KEYS = ("rank", "loader", "epoch", "batch")


def number(frame: pd.DataFrame, name: str) -> Floats:
    """Return column `name` as float64; NaN where it, or the whole column, is missing."""
    if name not in frame.columns:
        return np.full(len(frame), np.nan)
    column = frame[name]
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        return np.array(column.to_numpy(), np.float64)  # a copy, as below
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def integer(frame: pd.DataFrame, name: str, missing: int = -1) -> Ints:
    """Return column `name` as int64; `missing` where it, or the whole column, is missing."""
    if name not in frame.columns:
        return np.full(len(frame), missing, np.int64)
    column = frame[name]
    if not isinstance(column.dtype, np.dtype) or column.dtype.kind != "i":
        column = column.astype("Int64").fillna(missing)
    return np.asarray(column.to_numpy(), dtype=np.int64)


def short(values: Ints) -> ShortInts:
    """The values as int32 where all of them fit: tables of a row a batch are long."""
    limit = np.iinfo(np.int32)
    fits = not values.size or (values.min() >= limit.min and values.max() <= limit.max)
    return values.astype(np.int32) if fits else values


def flag(frame: pd.DataFrame, name: str) -> Bools:
    """Return column `name` as bool; False where it, or the whole column, is missing."""
    if name not in frame.columns:
        return np.zeros(len(frame), np.bool_)
    column = frame[name]
    if column.dtype == np.bool_:
        return column.to_numpy()
    # Not fillna: what it does with the type of an object column depends on the pandas version.
    return np.where(column.isna(), False, column.to_numpy(dtype=object)).astype(np.bool_)


def total(values: Floats) -> float:
    """Sum of what was measured; 0.0 of nothing."""
    # As nansum, which copies its argument.
    missing = np.isnan(values)
    return float(np.nansum(values) if missing.any() else values.sum())


def median(values: Floats) -> float:
    """Median of what was measured; NaN of nothing."""
    measured = values[~np.isnan(values)]
    return float(np.median(measured)) if measured.size else float("nan")


def ratio(part: float, whole: float) -> float:
    """part / whole; NaN where there is no whole."""
    return part / whole if whole > 0 else float("nan")


def ratios(parts: Floats, wholes: Floats) -> Floats:
    """As `ratio`, of arrays."""
    return np.where(wholes > 0, parts / np.where(wholes > 0, wholes, 1.0), np.nan)


def batch_rows(batches: pd.DataFrame, frame: pd.DataFrame, keys: Sequence[str] = KEYS) -> Ints:
    """For each row of `frame`, the position of its batch in `batches`; -1 where there is none."""
    if not len(frame):
        return np.zeros(0, np.int64)
    return BatchPlaces(batches, keys).rows(frame)


class BatchPlaces:
    """A table of batches, made ready to find many rows of other tables in it."""

    def __init__(self, batches: pd.DataFrame, keys: Sequence[str] = KEYS) -> None:
        self._keys, self._values = keys, []
        wanted = np.zeros(len(batches), np.int64)
        for name in keys:
            # Ranks of values instead of values: the product of the ranges stays small.
            values, places = np.unique(integer(batches, name), return_inverse=True)
            self._values.append(values)
            wanted = wanted * len(values) + places
        self._order = np.argsort(wanted, kind="stable")
        self._wanted = wanted[self._order]

    def rows(self, frame: pd.DataFrame) -> Ints:
        """For each row of `frame`, the position of its batch; -1 where there is none."""
        if not len(self._order) or not len(frame):
            return np.full(len(frame), -1, np.int64)
        columns = [integer(frame, name) for name in self._keys]
        first = starts_of_runs(columns)  # most rows have the batch of the row before
        code, known = np.zeros(len(first), np.int64), np.ones(len(first), np.bool_)
        for values, column in zip(self._values, columns, strict=True):
            mine = column[first]
            nearest = np.minimum(np.searchsorted(values, mine), len(values) - 1)
            known &= values[nearest] == mine
            code = code * len(values) + nearest
        place = np.minimum(np.searchsorted(self._wanted, code), len(self._order) - 1)
        known &= self._wanted[place] == code
        rows = np.where(known, self._order[place], -1)
        return np.repeat(rows, np.diff(np.append(first, len(frame))))


def starts_of_runs(columns: Sequence[Ints]) -> Ints:
    """Where each run of rows begins in which no column changes; there is at least one row."""
    changes = np.zeros(len(columns[0]), np.bool_)
    changes[0] = True
    for column in columns:
        changes[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changes)


def process_rows(workers: pd.DataFrame, batches: pd.DataFrame) -> Ints:
    """For each batch, the position in `workers` of the process that made it; -1: not known.

    A pid may have been used twice: the process is the latest one that had begun by then.
    """
    rows = np.full(len(batches), -1, np.int64)
    start = number(batches, "fetch_start_ns")
    usable = ~np.isnan(start) & (integer(batches, "worker") >= 0)
    begun = np.fmin(number(workers, "loop_ns"), number(workers, "ready_ns"))
    begun = np.where(np.isnan(begun), -np.inf, begun)
    if not len(workers) or not usable.any():
        return rows
    # One number for each process and place in time. Not pandas' merge_asof, whose setting up takes
    # longer than all else here.
    known, process = np.unique(process_keys(workers), return_inverse=True)
    times = np.sort(begun)
    later = len(times) + 1
    of_process = process.reshape(-1) * later + np.searchsorted(times, begun, side="right")
    order = np.argsort(of_process, kind="stable")
    mine = process_keys(batches)[usable]
    nearest = np.minimum(np.searchsorted(known, mine), len(known) - 1)
    wanted = nearest * later + np.searchsorted(times, start[usable], side="right")
    place = np.searchsorted(of_process[order], wanted, side="right") - 1
    found = order[np.maximum(place, 0)]
    right = (place >= 0) & (known[nearest] == mine) & (process.reshape(-1)[found] == nearest)
    rows[usable] = np.where(right, found, -1)
    return rows


def process_keys(frame: pd.DataFrame) -> Ints:
    """One number for the rank and process of each row."""
    return integer(frame, "rank") * 4_194_304 + integer(frame, "pid")  # Linux: pid < 2^22


def busy_within(
    group: Ints, start: Floats, end: Floats, busy_group: Ints, busy_start: Floats, busy_ns: Floats
) -> Floats:
    """Length of each [start, end] that lies in the busy intervals of its own group.

    The busy intervals of one group must not overlap (they are those of one thread).
    """
    result = np.zeros(len(group))
    usable = ~np.isnan(busy_start) & ~np.isnan(busy_ns)
    known = ~np.isnan(start) & ~np.isnan(end) & (end > start)
    for name in np.intersect1d(group[known], busy_group[usable]):
        mine = np.flatnonzero(usable & (busy_group == name))
        mine = mine[np.argsort(busy_start[mine], kind="stable")]
        begins, lengths = busy_start[mine], busy_ns[mine]
        before = np.concatenate(([0.0], np.cumsum(lengths)))

        def busy_until(
            time: Floats,
            begins: Floats = begins,
            lengths: Floats = lengths,
            before: Floats = before,
        ) -> Floats:
            place = np.searchsorted(begins, time, side="right") - 1
            inside = np.minimum(time - begins[place], lengths[place])
            return np.where(place < 0, 0.0, before[np.maximum(place, 0)] + inside)

        rows = np.flatnonzero(known & (group == name))
        result[rows] = busy_until(end[rows]) - busy_until(start[rows])
    return np.maximum(result, 0.0)


def distribution(values: Floats) -> dict[str, float]:
    """count, total, mean, p50, p95, p99, std, max of what was measured (NaN of nothing).

    Of one value std is NaN: it says nothing of how values vary.
    """
    measured = values[~np.isnan(values)]
    if not measured.size:
        empty = dict.fromkeys(("total", "mean", "p50", "p95", "p99", "std", "max"), float("nan"))
        return {"count": 0, **empty}
    p50, p95, p99 = np.percentile(measured, (50, 95, 99))
    return {
        "count": int(measured.size),
        "total": float(measured.sum()),
        "mean": float(measured.mean()),
        "p50": float(p50),
        "p95": float(p95),
        "p99": float(p99),
        "std": float(measured.std()) if measured.size > 1 else float("nan"),
        "max": float(measured.max()),
    }


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as dictionaries of plain Python values; None where nothing was measured."""
    rows: list[dict[str, Any]] = []
    for row in frame.to_dict("records"):
        rows.append({str(name): plain_value(value) for name, value in row.items()})
    return rows


def plain_value(value: Any) -> Any:
    """The Python value of a numpy or pandas scalar; None for NaN, <NA> and infinities."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is pd.NA or value is pd.NaT or value is None:
        return None
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
