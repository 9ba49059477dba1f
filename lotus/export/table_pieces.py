"""Reads samples and operations of a run in pieces that fit in memory.

`Run.ops` of ten million operations takes a gigabyte, while an export needs only the part that it
writes. A piece is a few batch frames of one process, which are read separately from its log.
"""

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from lotus.reading import sample_tables
from lotus.reading.batch_tables import signed
from lotus.reading.frame_scanner import Array
from lotus.reading.process_tree import Assembly, Ints

if TYPE_CHECKING:
    from lotus.reading.run import Run
ROWS = 1 << 18  # samples and operations of a piece


class Piece(NamedTuple):
    """Some batch frames of one process, and their contents."""

    number: int  # of the process in the assembly
    rows: slice  # of Assembly.batch
    samples: pd.DataFrame  # as Run.samples
    ops: pd.DataFrame  # as Run.ops


def whole(run: "Run") -> int:
    """Return the number of batches, samples and operations, as the total of a progress bar."""
    batch = run._assembly.batch
    return len(batch) + int(signed(batch["n_samples"]).sum() + signed(batch["n_ops"]).sum())


def size(piece: Piece) -> int:
    """Rows of a piece: batches, samples and operations."""
    return int(piece.rows.stop - piece.rows.start) + len(piece.samples) + len(piece.ops)


def of_process(run: "Run", number: int, loose: bool = True) -> Iterator[Piece]:
    """Yield the batches of one process with their samples and operations, in order.

    The samples of all processes make up Run.samples. Without `loose` the operations are those in
    samples only; followed by those of `loose_of` they make up Run.ops.
    """
    a = run._assembly
    own = a.slices[number]
    batch = a.batch[own]
    # Reading a piece costs a look at every operation that is defined.
    most = max(ROWS, 4 * len(a.processes[number].operations()))
    sizes = 1 + signed(batch["n_samples"]) + signed(batch["n_ops"])
    for first, last in _runs(sizes, most):
        part = _part(a, number, np.arange(first, last), loose=False)
        yield Piece(
            number,
            slice(own.start + first, own.start + last),
            sample_tables.samples(part),
            sample_tables.operations(part, run._with_cpu()) if loose else _in_samples(run, part),
        )


def empty(run: "Run") -> Piece:
    """Return empty tables with all columns."""
    a = run._assembly
    part = copy.copy(a)
    part.processes, part.slices = [], []
    part.batch, part.batch_loader, part.batch_epoch = (
        values[:0] for values in (a.batch, a.batch_loader, a.batch_epoch)
    )
    part.places = {name: values[:0] for name, values in a.places.items()}
    ops = sample_tables.operations(part, run._with_cpu())
    return Piece(-1, slice(0, 0), sample_tables.samples(part), ops)


def loose_of(run: "Run", number: int) -> pd.DataFrame:
    """Return the operations of one process outside samples, as in Run.ops."""
    a = run._assembly
    own = a.slices[number]
    frames = np.flatnonzero(a.batch["n_loose"][own] > 0)
    part = _part(a, number, frames, loose=True)
    count = sum(int(signed(part.processes[0].log.fixed[k]["n_loose"]).sum()) for k in _LOOSE)
    if not count:
        return empty(run).ops
    ops = sample_tables.operations(part, run._with_cpu())
    return ops.iloc[len(ops) - count :]


_LOOSE = ("batch", "wait", "loose")


def _in_samples(run: "Run", part: Assembly) -> pd.DataFrame:
    ops = sample_tables.operations(part, run._with_cpu())
    loose = int(signed(part.batch["n_loose"]).sum())
    return ops.iloc[: len(ops) - loose]


def _runs(sizes: Ints, most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges [first, last) whose sum is limited; a range has at least one element."""
    ends = np.cumsum(sizes)
    first = 0
    while first < len(sizes):
        before = int(ends[first - 1]) if first else 0
        last = max(int(np.searchsorted(ends, before + most, side="right")), first + 1)
        yield first, last
        first = last


def _part(a: Assembly, number: int, frames: Array, loose: bool) -> Assembly:
    """The assembly reduced to one process and these batch frames.

    Its operations outside batches are included with `loose` only.
    """
    process, own = a.processes[number], a.slices[number]
    part, mine = copy.copy(a), copy.copy(process)
    keep = {"batch": frames}
    if not loose:
        keep |= {name: np.empty(0, np.int64) for name in ("wait", "loose")}
    mine.log = process.log.part(keep)
    part.processes = [mine]
    part.slices = [slice(0, len(frames))]
    part.batch = a.batch[own][frames]
    part.batch_loader = a.batch_loader[own][frames]
    part.batch_epoch = a.batch_epoch[own][frames]
    part.places = {name: values[number : number + 1] for name, values in a.places.items()}
    return part
