"""Reads samples and operations of a run in pieces that fit in memory.

`Run.ops` of ten million operations takes a gigabyte, while an export needs only the part that it
writes, and a report only sums. A piece is a few batch frames of one process, which are read
separately from its log.
"""

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, overload

import numpy as np
import pandas as pd

from lotus.common.numbers.array_types import Ints
from lotus.common.storage import long_arrays
from lotus.reading.logs.frame_scanner import Array
from lotus.reading.logs.process_tree import Assembly
from lotus.reading.tables import process_contents, sample_tables
from lotus.reading.tables.batch_tables import signed

ROWS = 1 << 18  # samples and operations of a piece


class InProcesses(Protocol):
    """The part of a `Run` that pieces need."""

    @property
    def _outline(self) -> Assembly: ...

    def _with_cpu(self) -> bool: ...


class Piece(NamedTuple):
    """Some batch frames of one process, or all of several, and their contents."""

    number: int  # of the process in the assembly, or of the first of several
    rows: slice  # of Assembly.batch
    samples: pd.DataFrame  # as Run.samples
    ops: pd.DataFrame  # as Run.ops


def whole(run: InProcesses) -> int:
    """Return the number of batches, samples and operations, as the total of a progress bar."""
    batch = run._outline.batch
    return len(batch) + int(signed(batch["n_samples"]).sum() + signed(batch["n_ops"]).sum())


def size(piece: Piece) -> int:
    """Return rows of a piece: batches, samples and operations."""
    return int(piece.rows.stop - piece.rows.start) + len(piece.samples) + len(piece.ops)


def of_process(run: InProcesses, number: int, loose: bool = True) -> Iterator[Piece]:
    """Yield the batches of one process with their samples and operations, in order.

    The samples of all processes make up Run.samples. Without `loose` the operations are those in
    samples only; followed by those of `loose_of` they make up Run.ops.
    """
    a = run._outline
    own = a.slices[number]
    for first, last in _ranges(a, number, ROWS // 2):  # exports make text of each row
        part = _part(a, number, np.arange(first, last), loose=False)
        with long_arrays.short_lived():
            samples = sample_tables.samples(part)
            if loose:
                ops = sample_tables.operations(part, run._with_cpu())
            else:
                ops = _in_samples(run, part)
        yield Piece(number, slice(own.start + first, own.start + last), samples, ops)


class _Place(NamedTuple):
    """The contents of a piece of `Pieces`."""

    number: int  # of the process, or the first of several
    until: int  # the process after the last one
    frames: slice | None = None  # of one process; None: all of them, or with `loose` none
    loose: bool = True  # operations outside samples


class Pieces(Sequence[Piece]):
    """All samples and operations of a run; a piece is read each time that it is asked for.

    Together, in this order, the tables `samples` of all pieces are `Run.samples`, and the tables
    `ops` are `Run.ops`. Their categories are those of the piece. Small processes are together in
    one piece, and of a large one the operations outside samples are a piece, however many they are.
    """

    def __init__(self, run: InProcesses, rows: int = 0) -> None:
        """`rows`: about how many rows of both tables a piece has, at most; 0: 2^18."""
        self.run, self.rows = run, rows or ROWS
        self._places = list(_places(run._outline, self.rows))

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> Piece: ...
    @overload
    def __getitem__(self, place: slice) -> list[Piece]: ...
    def __getitem__(self, place: int | slice) -> Piece | list[Piece]:
        """Read one piece, or a list of them."""
        if isinstance(place, slice):
            return [self[each] for each in range(len(self))[place]]
        with long_arrays.short_lived():
            return self._read(place)

    def times(self, place: int) -> pd.DataFrame:
        """Read the samples of a piece without what is known of their operations, which is quick.

        As `samples`, without ops_ns and self_ns.
        """
        with long_arrays.short_lived():
            return sample_tables.times(self._part(place))

    def _read(self, place: int) -> Piece:
        number, until, frames, loose = self._places[place]
        a, with_cpu = self.run._outline, self.run._with_cpu()
        if loose and frames is not None:
            return Piece(number, slice(0, 0), empty(self.run).samples, loose_of(self.run, number))
        part = self._part(place)
        contents = list(process_contents.loaded_all(part, with_cpu))
        samples = sample_tables.samples(part, contents)
        if frames is not None:
            start = a.slices[number].start
            rows = slice(start + frames.start, start + frames.stop)
            return Piece(number, rows, samples, _in_samples(self.run, part, contents))
        rows = slice(a.slices[number].start, a.slices[until - 1].stop)
        return Piece(number, rows, samples, sample_tables.operations(part, with_cpu, contents))

    def _part(self, place: int) -> Assembly:
        a, (number, until, frames, _) = self.run._outline, self._places[place]
        if frames is None:
            return _processes(a, number, until)
        return _part(a, number, np.arange(frames.start, frames.stop), loose=False)


def _places(a: Assembly, rows: int) -> Iterator[_Place]:
    """Divide a run into pieces of about so many rows."""
    first, held = 0, 0  # processes that wait for a piece, and their rows
    for number, own in enumerate(a.slices):
        batch, loose = a.batch[own], process_contents.loose_count(a.processes[number])
        size = len(batch) + int(signed(batch["n_samples"]).sum() + signed(batch["n_ops"]).sum())
        if held and held + size + loose > rows:
            yield _Place(first, number)
            first, held = number, 0
        if size + loose <= rows:
            held += size + loose
            continue
        for begin, end in _ranges(a, number, rows):
            yield _Place(number, number + 1, slice(begin, end), loose=False)
        if loose:
            yield _Place(number, number + 1, slice(0, 0))
        first, held = number + 1, 0
    if held:
        yield _Place(first, len(a.slices))


def _processes(a: Assembly, first: int, last: int) -> Assembly:
    """Return the assembly reduced to the processes [first, last)."""
    part, own = copy.copy(a), a.slices[first:last]
    start, stop = (own[0].start, own[-1].stop) if own else (0, 0)
    part.processes = a.processes[first:last]
    part.slices = [slice(each.start - start, each.stop - start) for each in own]
    part.batch, part.batch_loader, part.batch_epoch = (
        values[start:stop] for values in (a.batch, a.batch_loader, a.batch_epoch)
    )
    part.places = {name: values[first:last] for name, values in a.places.items()}
    return part


def empty(run: InProcesses) -> Piece:
    """Return empty tables with all columns."""
    part = _processes(run._outline, 0, 0)
    ops = sample_tables.operations(part, run._with_cpu())
    return Piece(-1, slice(0, 0), sample_tables.samples(part), ops)


def loose_of(run: InProcesses, number: int) -> pd.DataFrame:
    """Return the operations of one process outside samples, as in Run.ops."""
    a = run._outline
    own = a.slices[number]
    frames = np.flatnonzero(a.batch["n_loose"][own] > 0)
    part = _part(a, number, frames, loose=True)
    count = process_contents.loose_count(a.processes[number])
    if not count:
        return empty(run).ops
    ops = sample_tables.operations(part, run._with_cpu())
    return ops.iloc[len(ops) - count :]


def _in_samples(
    run: InProcesses, part: Assembly, contents: Iterable[process_contents.Loaded] | None = None
) -> pd.DataFrame:
    ops = sample_tables.operations(part, run._with_cpu(), contents)
    loose = int(signed(part.batch["n_loose"]).sum())
    return ops.iloc[: len(ops) - loose]


def _ranges(a: Assembly, number: int, rows: int) -> Iterator[tuple[int, int]]:
    """Yield ranges [first, last) of a process's batch frames that are a piece each."""
    batch = a.batch[a.slices[number]]
    # Reading a piece costs a look at every operation that is defined.
    most = max(rows, 4 * len(a.processes[number].operations()))
    return _runs(1 + signed(batch["n_samples"]) + signed(batch["n_ops"]), most)


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
    """Return the assembly reduced to one process and these batch frames.

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
