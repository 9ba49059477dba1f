"""Access to tables: numbers, batch keys, joins by time, overlaps.

Times are float64 nanoseconds here (NaN: not measured). CLOCK_MONOTONIC counts from the boot of the
machine, so they are exact to 2 ns for the first 200 days.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from lotus.common.numbers.array_types import Bools, Floats, Ints
from lotus.common.storage import long_arrays

ShortInts = npt.NDArray[np.signedinteger[Any]]  # int32 or int64

KEYS = ("rank", "loader", "epoch", "batch")
_LARGEST_CODE = 1 << 62
_BLOCK = 1 << 16  # rows that are processed at a time


def float_column(frame: pd.DataFrame, name: str) -> Floats:
    """Return column `name` as float64; NaN where it, or the whole column, is missing."""
    if name not in frame.columns:
        return np.full(len(frame), np.nan)
    column = frame[name]
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        values = np.array(column.to_numpy(), np.float64)  # a copy, as below
        long_arrays.keep_few(values)
        return values
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def int_column(frame: pd.DataFrame, name: str, missing: int = -1) -> Ints:
    """Return column `name` as int64; `missing` where it, or the whole column, is missing."""
    if name not in frame.columns:
        return np.full(len(frame), missing, np.int64)
    column = frame[name]
    if not isinstance(column.dtype, np.dtype) or column.dtype.kind != "i":
        column = column.astype("Int64").fillna(missing)
    values = np.asarray(column.to_numpy(), dtype=np.int64)
    long_arrays.keep_few(values)
    return values


def stored(frame: pd.DataFrame, name: str) -> ShortInts:
    """Return column `name` as `int_column` does, but as narrow as it is in the table."""
    column = frame[name] if name in frame.columns else None
    if column is None or not isinstance(column.dtype, np.dtype) or column.dtype.kind != "i":
        return int_column(frame, name)
    values = column.to_numpy()
    long_arrays.keep_few(values)
    return values


def short(values: Ints) -> ShortInts:
    """Return the values as int32 if all of them fit: tables with a row per batch are long."""
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


def blocks(count: int) -> Iterator[slice]:
    """Yield so many rows in blocks: computing with all at once takes more memory than they do."""
    return (slice(at, at + _BLOCK) for at in range(0, count, _BLOCK))


def total(values: Floats) -> float:
    """Return the sum of what was measured; 0.0 of nothing."""
    # As nansum, which copies its argument.
    missing = np.isnan(values)
    return float(np.nansum(values) if missing.any() else values.sum())


def median(values: Floats) -> float:
    """Return the median of what was measured; NaN of nothing."""
    measured = values[~np.isnan(values)]
    return float(np.median(measured)) if measured.size else float("nan")


def ratio(part: float, whole: float) -> float:
    """Return part / whole; NaN if there is no whole."""
    return part / whole if whole > 0 else float("nan")


def ratios(parts: Floats, wholes: Floats) -> Floats:
    """Return `ratio` of arrays."""
    return np.where(wholes > 0, parts / np.where(wholes > 0, wholes, 1.0), np.nan)


def with_columns(frame: pd.DataFrame, columns: Mapping[str, Floats]) -> pd.DataFrame:
    """Return the table with these columns, new or replaced, in files if they are long."""
    return frame.assign(
        **{
            name: pd.Series(long_arrays.kept(values), frame.index, copy=False)
            for name, values in columns.items()
        }
    )


def batch_rows(batches: pd.DataFrame, frame: pd.DataFrame, keys: Sequence[str] = KEYS) -> Ints:
    """Return the position in `batches` of the batch of each row of `frame`; -1: there is none."""
    if not len(frame):
        return np.zeros(0, np.int64)
    return BatchPlaces(batches, keys).rows(frame)


class BatchPlaces:
    """An index of a table of batches, to find many rows of other tables in it."""

    def __init__(self, batches: pd.DataFrame, keys: Sequence[str] = KEYS) -> None:
        # One column at a time: together they take much memory.
        spans = {name: _span(int_column(batches, name)) for name in keys}
        # Values of damaged logs may lie far apart: their ranks do not.
        apart = math.prod(span.stop - span.start for span in spans.values()) >= _LARGEST_CODE
        self._scales = {
            name: _Scale(span, np.unique(int_column(batches, name)) if apart else None)
            for name, span in spans.items()
        }
        wanted, _ = self._codes(batches, slice(None))
        self._order = np.argsort(wanted, kind="stable")
        self._wanted = wanted[self._order]

    def rows(self, frame: pd.DataFrame) -> Ints:
        """Return the position of each row's batch; -1: there is none."""
        if not len(self._order) or not len(frame):
            return np.full(len(frame), -1, np.int64)
        # Most rows have the batch of the row before.
        first = starts_of_runs(stored(frame, name) for name in self._scales)
        code, known = self._codes(frame, first)
        place = np.minimum(np.searchsorted(self._wanted, code), len(self._order) - 1)
        known &= self._wanted[place] == code
        rows = np.where(known, self._order[place], -1)
        return np.repeat(rows, np.diff(np.append(first, len(frame))))

    def _codes(self, frame: pd.DataFrame, rows: Ints | slice) -> tuple[Ints, Bools]:
        """Return a number for the values of each row, and which rows have values of the table."""
        code, known = np.zeros(len(frame), np.int64)[rows], np.ones(len(frame), np.bool_)[rows]
        for name, scale in self._scales.items():
            step, there = scale.steps(stored(frame, name)[rows].astype(np.int64))
            code *= scale.size
            code += step
            known &= there
        return code, known


class _Scale(NamedTuple):
    """The values of a key: all of a span, or these `values` alone."""

    span: range
    values: Ints | None

    @property
    def size(self) -> int:
        """The number of these values."""
        return len(self.span) if self.values is None else len(self.values)

    def steps(self, column: Ints) -> tuple[Ints, Bools]:
        """Return which of the values each is, and which are none of them (False; any number)."""
        if self.values is None:
            known = (column >= self.span.start) & (column < self.span.stop)
            return np.where(known, column - self.span.start, 0), known
        nearest = np.minimum(np.searchsorted(self.values, column), len(self.values) - 1)
        return nearest, self.values[nearest] == column


def _span(column: Ints) -> range:
    return range(int(column.min()), int(column.max()) + 1) if len(column) else range(1)


def starts_of_runs(columns: Iterable[ShortInts]) -> Ints:
    """Return where each run of rows begins in which no column changes; at least one row."""
    changes = np.ones(1, np.bool_)
    for column in columns:
        if len(changes) < len(column):
            changes = np.zeros(len(column), np.bool_)
            changes[0] = True
        if column.strides != (0,):  # a column of one value
            changes[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changes)


def process_rows(workers: pd.DataFrame, batches: pd.DataFrame) -> Ints:
    """Return the position in `workers` of the process that made each batch; -1: not known.

    A pid may have been used twice: the process is the latest one that had begun by then.
    """
    rows = np.full(len(batches), -1, np.int64)
    start = float_column(batches, "fetch_start_ns")
    usable = ~np.isnan(start) & (int_column(batches, "worker") >= 0)
    begun = np.fmin(float_column(workers, "loop_ns"), float_column(workers, "ready_ns"))
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
    """Return one number for the rank and process of each row."""
    return int_column(frame, "rank") * 4_194_304 + int_column(frame, "pid")  # Linux: pid < 2^22


def busy_within(
    group: Ints, start: Floats, end: Floats, busy_group: Ints, busy_start: Floats, busy_ns: Floats
) -> Floats:
    """Return how much of each [start, end] lies in the busy intervals of its own group.

    The busy intervals of one group must not overlap (they are those of one thread).
    """
    result = np.zeros(len(group))
    usable = ~np.isnan(busy_start) & ~np.isnan(busy_ns)
    known = ~np.isnan(start) & ~np.isnan(end) & (end > start)
    asked, busy = rows_by(group, known), rows_by(busy_group, usable)
    for name in asked.keys() & busy.keys():
        mine, rows = busy[name], asked[name]
        mine = mine[np.argsort(busy_start[mine], kind="stable")]
        begins, lengths = busy_start[mine], busy_ns[mine]
        until = [_busy_until(times[rows], begins, lengths) for times in (start, end)]
        result[rows] = until[1] - until[0]
    return np.maximum(result, 0.0)


def _busy_until(times: Floats, begins: Floats, lengths: Floats) -> Floats:
    """Return how much of the intervals, which are in their order, lies before each time."""
    before = np.concatenate(([0.0], np.cumsum(lengths)))
    place = np.searchsorted(begins, times, side="right") - 1
    inside = np.minimum(times - begins[place], lengths[place])
    return np.where(place < 0, 0.0, before[np.maximum(place, 0)] + inside)


def rows_by(groups: Ints, chosen: Bools) -> dict[int, Ints]:
    """Return the chosen rows of each group, in their order."""
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return {}
    mine = groups[rows]
    if not (mine[1:] >= mine[:-1]).all():
        order = np.argsort(mine, kind="stable")
        rows, mine = rows[order], mine[order]
    first = np.flatnonzero(np.append(True, mine[1:] != mine[:-1]))
    return dict(zip(mine[first].tolist(), np.split(rows, first[1:]), strict=True))


def covered(start: Floats, end: Floats) -> float:
    """Return how much of time lies in any of these intervals; those with a NaN do not count."""
    known = end > start
    order = np.argsort(start[known])
    start, end = start[known][order], np.maximum.accumulate(end[known][order])
    new = np.maximum(start[1:], end[:-1])
    return total(end[1:] - new) + total(end[:1] - start[:1])


def mean(values: Floats) -> float:
    """Return the mean of what was measured; NaN of nothing."""
    measured = values[~np.isnan(values)]
    return float(measured.mean()) if measured.size else float("nan")


def distribution(values: Floats) -> dict[str, float]:
    """Return count, total, mean, p50, p95, p99, std and max of what was measured (NaN of nothing).

    The standard deviation of one value is NaN.
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
    """Return rows as dictionaries of plain Python values; None where nothing was measured."""
    rows: list[dict[str, Any]] = []
    for row in frame.to_dict("records"):
        rows.append({str(name): plain_value(value) for name, value in row.items()})
    return rows


def plain_value(value: Any) -> Any:
    """Return the Python value of a numpy or pandas scalar; None for NaN, <NA> and infinities."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is pd.NA or value is pd.NaT or value is None:
        return None
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
