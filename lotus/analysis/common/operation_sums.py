"""Sums of a run's operations from one pass over them, and the addition of two such results.

A run may have a thousand million operations. Everything that a report shows of them follows from
sums, of which there are as many as batches, and a distribution per operation.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import (
    KEYS,
    ShortInts,
    flag,
    float_column,
    int_column,
    short,
    starts_of_runs,
    stored,
)
from lotus.analysis.common.durations import NONE, Durations
from lotus.common.numbers.array_types import Floats, Ints
from lotus.common.storage import long_arrays

# The longest that storage can plausibly take: a disc that seeks for every 4 KiB and every fault.
STORAGE_NS_PER_BYTE, STORAGE_NS_PER_FAULT = 2000.0, 20e6
# Columns of `Run.ops` that are added up, with how many rows had a value: `known_NAME`.
MEASURED = (
    "duration_ns", "cpu_ns", "minor_faults", "major_faults", "read_bytes", "run_delay_ns",
    "process_cpu_ns",
)  # fmt: skip
_CELL = ["loader", "parent", "operation", "in_batch", "in_sample", "nested"]
_MANY = 256
LONG_AFTER = 1 << 62  # any time of a run
_SUMS = ["count", *MEASURED, *(f"known_{name}" for name in MEASURED)]


@dataclass(frozen=True)
class BatchSums:
    """Operations in samples that are not nested, of the batches of one piece: (b, o).

    `keys` (b, 4) are the columns KEYS of each batch, once. What was not measured at all is None.
    """

    piece: int
    keys: ShortInts
    names: list[str]
    took: Floats
    cpu: Floats | None
    measured: Floats | None  # how many calls have a CPU time
    unmeasured: Floats | None  # and how many have none
    stalled: Floats | None  # the longest that storage can have taken

    def kept(self) -> "BatchSums":
        """Return the same, in a file if it is long."""
        cpu, measured, unmeasured, stalled = (
            None if values is None else long_arrays.kept(values)
            for values in (self.cpu, self.measured, self.unmeasured, self.stalled)
        )
        keys, took = long_arrays.kept(self.keys), long_arrays.kept(self.took)
        return BatchSums(self.piece, keys, self.names, took, cpu, measured, unmeasured, stalled)


@dataclass(frozen=True)
class OperationSums:
    """Sums of the operations of some pieces, of all their loaders.

    cells       a row per loader, parent, operation, in_batch, in_sample, nested: the columns _SUMS
    durations   by loader and operation
    batches     per piece
    pieces      by loader: the numbers of the pieces that have operations of it
    begin_ns, end_ns   when the first began and the last ended; LONG_AFTER and 0 of nothing
    """

    cells: pd.DataFrame
    durations: Mapping[tuple[int, str], Durations]
    batches: list[BatchSums]
    pieces: Mapping[int, list[int]]
    begin_ns: int = LONG_AFTER
    end_ns: int = 0


def added(parts: Iterable[OperationSums]) -> OperationSums:
    """Return the sum of all of these, in whatever order; no part is kept."""
    cells: list[pd.DataFrame] = []
    durations: dict[tuple[int, str], Durations] = {}
    batches: list[BatchSums] = []
    pieces: dict[int, list[int]] = {}
    begin, end = LONG_AFTER, 0
    for part in parts:
        begin, end = min(begin, part.begin_ns), max(end, part.end_ns)
        cells.append(part.cells)
        if len(cells) >= _MANY:  # adding up tables takes milliseconds, however short they are
            cells = [_added(cells)]
        for key, more in part.durations.items():
            durations[key] = durations.get(key, NONE) + more
        batches += [each.kept() for each in part.batches]
        for loader, numbers in part.pieces.items():
            pieces.setdefault(loader, []).extend(numbers)
    return OperationSums(_added(cells), durations, batches, pieces, begin, end)


def _added(cells: list[pd.DataFrame]) -> pd.DataFrame:
    known = [part for part in cells if len(part)]
    if len(known) <= 1:
        return known[0] if known else pd.DataFrame(columns=[*_CELL, *_SUMS])
    return pd.concat(known).groupby(_CELL, as_index=False, sort=False).sum()


def sums_of(ops: pd.DataFrame, piece: int = 0) -> OperationSums:
    """Reduce rows of `Run.ops`; `piece` is the number by which they can be read again."""
    if not len(ops):
        return OperationSums(_added([]), {}, [], {})
    names, code = _names(ops, "operation")
    loaders, loader = _places(stored(ops, "loader"))
    values = {name: float_column(ops, name) for name in MEASURED if name in ops.columns}
    inside = stored(ops, "position") >= 0
    top = inside & ~flag(ops, "nested")
    start = int_column(ops, "start_ns")
    return OperationSums(
        _cells(ops, names, code, loaders, loader, inside, values),
        _durations(names, code, loaders, loader, values["duration_ns"]),
        [_of_batches(ops, piece, names, code, top, values)] if top.any() else [],
        {int(number): [piece] for number in loaders},
        int(start.min()),
        int((start + int_column(ops, "duration_ns")).max()),
    )


def known_sum(cells: pd.DataFrame, name: str) -> float:
    """Return the sum of a measure over rows of `OperationSums.cells`; NaN: nothing was measured."""
    return float(cells[name].sum()) if cells[f"known_{name}"].any() else float("nan")


def storage_ns(read_bytes: Floats, major_faults: Floats) -> Floats:
    """Return the longest that reading so much can have taken; NaN counts as not read."""
    read = np.nan_to_num(read_bytes) * STORAGE_NS_PER_BYTE
    faults = np.nan_to_num(major_faults) * STORAGE_NS_PER_FAULT
    return np.maximum(read, faults)  # a fault's own bytes are among those read


def _names(ops: pd.DataFrame, name: str) -> tuple[list[str], Ints]:
    if name not in ops.columns:
        return [""], np.zeros(len(ops), np.int64)
    column = ops[name].astype("category")
    return [str(each) for each in column.cat.categories], np.asarray(column.cat.codes, np.int64)


def _places(values: ShortInts) -> tuple[Ints, Ints]:
    """Return the different values, and which of them each is; equal ones are not sorted."""
    if (values == values[0]).all():
        return values[:1].astype(np.int64), np.zeros(len(values), np.int64)
    known, places = np.unique(values, return_inverse=True)
    return known.astype(np.int64), places.reshape(-1).astype(np.int64)


def _cells(
    ops: pd.DataFrame,
    names: list[str],
    code: Ints,
    loaders: Ints,
    loader: Ints,
    inside: np.ndarray,
    values: Mapping[str, Floats],
) -> pd.DataFrame:
    parents, parent = _names(ops, "parent")
    key = code
    if len(loaders) > 1:
        key = key * len(loaders) + loader
    if len(parents) > 1:
        key = key * len(parents) + parent
    in_batch, nested = stored(ops, "batch") >= 0, flag(ops, "nested")
    key = key * 8 + (in_batch.astype(np.int8) * 4 + inside.astype(np.int8) * 2 + nested)
    known, key = _compact(key, len(loaders) * len(parents) * len(names) * 8)
    rest, flags = np.divmod(known, 8)
    rest, of_parent = np.divmod(rest, len(parents))
    of_code, of_loader = np.divmod(rest, len(loaders))
    cells: dict[str, object] = {
        "loader": loaders[of_loader],
        "parent": [parents[place] for place in of_parent],
        "operation": [names[place] for place in of_code],
        "in_batch": flags >= 4,
        "in_sample": flags % 4 >= 2,
        "nested": flags % 2 == 1,
        "count": np.bincount(key, minlength=len(known)),
    }
    for name in MEASURED:
        sums: Floats = np.zeros(len(known))
        counts: Ints = np.zeros(len(known), np.int64)
        if name in values:
            missing = np.isnan(values[name])
            if missing.any():
                sums = _sums(key, np.where(missing, 0.0, values[name]), len(known))
                counts = np.bincount(key[~missing], minlength=len(known))
            else:
                sums = _sums(key, values[name], len(known))
                counts = np.asarray(cells["count"])
        cells[name], cells[f"known_{name}"] = sums, counts
    return pd.DataFrame(cells, columns=[*_CELL, *_SUMS])


def _sums(places: Ints, weights: Floats, size: int) -> Floats:
    return np.asarray(np.bincount(places, weights, size), np.float64)


def _compact(key: Ints, size: int) -> tuple[Ints, Ints]:
    """Return the keys that occur, and which of them each is; they are below `size`."""
    if size > 4 * len(key) + (1 << 16):
        known, places = np.unique(key, return_inverse=True)
        return known, places.reshape(-1).astype(np.int64)
    occurs = np.bincount(key, minlength=size) > 0
    if occurs.all():
        return np.arange(size), key
    return np.flatnonzero(occurs), (np.cumsum(occurs) - 1)[key]


def _durations(
    names: list[str], code: Ints, loaders: Ints, loader: Ints, took: Floats
) -> dict[tuple[int, str], Durations]:
    of_loader = loader * len(names) + code if len(loaders) > 1 else code
    known, key = _compact(of_loader, len(loaders) * len(names))
    # Of 16 bits, numpy sorts by radix.
    order = np.argsort(key.astype(np.uint16) if len(known) < 1 << 16 else key, kind="stable")
    ends = np.cumsum(np.bincount(key, minlength=len(known)))
    parts = np.split(took[order], ends[:-1])
    return {
        (int(loaders[each // len(names)]), names[each % len(names)]): Durations.of(part)
        for each, part in zip(known.tolist(), parts, strict=True)
    }


def _of_batches(
    ops: pd.DataFrame,
    piece: int,
    names: list[str],
    code: Ints,
    top: np.ndarray,
    values: Mapping[str, Floats],
) -> BatchSums:
    keys, row = _batches(ops)
    count, width = len(keys), len(names)
    chosen = slice(None) if top.all() else top
    place = (row * width + code)[chosen]
    took = values["duration_ns"][chosen]

    def sums(weights: Floats) -> Floats:
        return _sums(place, weights, count * width).reshape(count, width)

    cpu = measured = unmeasured = stalled = None
    if "cpu_ns" in values:
        used = values["cpu_ns"][chosen]
        missing = np.isnan(used)
        cpu = sums(np.where(missing, 0.0, used))
        measured, unmeasured = sums(1.0 - missing), sums(missing * 1.0)
        none = np.full(len(used), np.nan)
        read, faults = (
            values[name][chosen] if name in values else none
            for name in ("read_bytes", "major_faults")
        )
        off = np.maximum(took - used, 0.0)
        stalled = sums(np.where(missing, 0.0, np.minimum(off, storage_ns(read, faults))))
    return BatchSums(piece, keys, names, sums(took), cpu, measured, unmeasured, stalled)


def _batches(ops: pd.DataFrame) -> tuple[ShortInts, Ints]:
    """Return the batches of the rows, and which of them each row is of.

    Most rows have the batch of the row before: only where it changes are keys compared.
    """
    columns = [stored(ops, name) for name in KEYS]
    first = starts_of_runs(columns)
    runs = np.stack([column[first].astype(np.int64) for column in columns], axis=1)
    order = np.lexsort(runs.T)
    differs = np.ones(len(order), np.bool_)
    differs[1:] = (runs[order][1:] != runs[order][:-1]).any(axis=1)
    number_of = np.empty(len(order), np.int64)
    number_of[order] = np.cumsum(differs) - 1
    return short(runs[order][differs]), np.repeat(number_of, np.diff(np.append(first, len(ops))))
