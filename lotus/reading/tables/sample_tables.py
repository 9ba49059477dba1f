"""The tables of samples and operations, which are long: built one process at a time."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lotus.common.numbers.array_types import Ints
from lotus.inside.trace.log import log_format
from lotus.reading.logs.frame_scanner import Array
from lotus.reading.logs.process_tree import Assembly, Process
from lotus.reading.tables.batch_tables import alike, categories, frame, repeat, signed, whose
from lotus.reading.tables.process_contents import (
    Loaded,
    Loose,
    SampleTable,
    load_samples,
    loaded_all,
    loose_count,
    parallel,
)

CPU = tuple(name for name, _ in log_format.CPU)
UNNAMED = "(unnamed)"  # an operation whose definition is lost
_INT_COLUMNS = ("worker", "loader", "epoch")


def samples(a: Assembly, contents: Iterable[Loaded] | None = None) -> pd.DataFrame:
    """Yield one row per sample; with `many`, per batch that was fetched in one call.

    `contents`: those of the processes, where they are read already.
    """
    ops_ns: list[Array] = []  # of each process

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
    """Return the time of each sample in top-level operations."""
    if process.log.header.get("level") in ("batch", "sample"):
        return np.full(len(content.inner.ops_ns), np.nan)  # not recorded, unlike 0 operations
    return content.inner.ops_ns.astype(np.float64)


def times(a: Assembly, contents: Iterable[SampleTable] | None = None) -> pd.DataFrame:
    """Return the table of samples without ops_ns and self_ns, for which no operation is read."""
    size = int(signed(a.batch["n_samples"]).sum())
    out = _columns(size, _INT_COLUMNS)
    out["batch"] = np.empty(size, np.int64)
    out["position"] = np.empty(size, np.int32)
    for name in ("sample", "start_ns", "duration_ns"):
        out[name] = np.empty(size, np.int64)
    out["many"] = np.empty(size, np.bool_)
    last = 0
    rows_of: list[int] = []  # of each process
    read = map(load_samples, a.processes) if contents is None else contents
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


def operations(
    a: Assembly, with_cpu: bool, contents: Iterable[Loaded] | None = None
) -> pd.DataFrame:
    """Return one row per operation: those in samples by process and time, then loose ones.

    `contents`: those of the processes, where they are read already.
    """
    size = int(signed(a.batch["n_ops"]).sum()) + sum(map(loose_count, a.processes))
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
    rows_of: list[int] = []  # of each process
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
                cpu = parallel(arrays["ops_cpu"], with_values, counts)
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
    order: tuple[str, ...]
    order = ("tid", *_INT_COLUMNS, "batch", "position", "sample", "operation", "parent", "index")
    order = (*order, "nested", "start_ns", "duration_ns", *(CPU if with_cpu else ()))
    columns: dict[str, Any] = {name: out.pop(name)[:last] for name in order}
    columns["operation"] = _used(columns["operation"], list(names))
    columns["parent"] = _used(columns["parent"], list(names))
    return frame({**whose(a, repeat(rows_of)), **columns})


def _used(codes: Array, names: Sequence[str]) -> Any:
    """Return a category column with only the categories that occur (and "" for no container)."""
    if alike(codes):
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
            out[name][here] = table[0] if alike(table) else table[places]


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
        out[name][here] = values[0] if alike(values) else np.repeat(values, counts)


def _fill_cpu(out: dict[str, Array], here: slice, cpu: Array, known: Array) -> None:
    for name in CPU:
        values = cpu[name]
        out[name][here] = np.where(known & (values != log_format.UNMEASURED), values, np.nan)


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
