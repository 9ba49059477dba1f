"""The samples and operations of a run, of which there may be more than fit in memory."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import KEYS, BatchPlaces
from lotus.analysis.common.operation_sums import OperationSums, added, sums_of
from lotus.analysis.common.sample_sums import sample_sums
from lotus.common.storage import long_arrays
from lotus.common.terminal.progress import Advance

Read = TypeVar("Read")
Change = Callable[[pd.DataFrame], pd.DataFrame]
# So many samples take 35 MB; several passes read them.
MOST_KEPT = 1 << 19


class PartRows(Protocol):
    """A part of both tables, as `Run.pieces` has them."""

    @property
    def samples(self) -> pd.DataFrame: ...

    @property
    def ops(self) -> pd.DataFrame: ...


class Parts(Protocol):
    """Both tables in parts, each read when it is asked for, as `Run.pieces`."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: int) -> PartRows: ...

    def times(self, place: int) -> pd.DataFrame:
        """Return the samples without what is known of their operations."""


class TwoTables(NamedTuple):
    """PartRows of both tables."""

    samples: pd.DataFrame
    ops: pd.DataFrame


class WholeTables:
    """Tables in memory as one part."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def __len__(self) -> int:
        return 1

    def __getitem__(self, place: int) -> TwoTables:
        """Return all rows."""
        return TwoTables(self.times(place), self._table("ops"))

    def times(self, place: int) -> pd.DataFrame:
        """Return all samples."""
        return self._table("samples")

    def _table(self, name: str) -> pd.DataFrame:
        frame = getattr(self._run, name, None)
        return frame if isinstance(frame, pd.DataFrame) else pd.DataFrame()


class ChangedParts:
    """Parts with a change to the rows of each."""

    def __init__(self, parts: Parts, change: Change) -> None:
        self.parts, self.change = parts, change

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, place: int) -> TwoTables:
        """Return one part, changed."""
        rows = self.parts[place]
        return TwoTables(self.change(rows.samples), self.change(rows.ops))

    def times(self, place: int) -> pd.DataFrame:
        """Return the samples of one part, changed."""
        return self.change(self.parts.times(place))


def parts_of(run: Any) -> Parts:
    """Return the tables of a run in parts; in one part if it has no pieces, or was read already."""
    if "ops" not in getattr(run, "__dict__", {}) and hasattr(run, "pieces"):
        pieces: Parts = run.pieces
        return pieces
    return WholeTables(run)


class ChangedRun:
    """A run with a change to the rows of its tables, each changed when it is first needed."""

    def __init__(self, run: Any, change: Change) -> None:
        self._run, self._change = run, change
        self._tables: dict[str, pd.DataFrame] = {}

    @property
    def manifest(self) -> Mapping[str, Any]:
        """run.json, as the run has it."""
        manifest: Mapping[str, Any] = self._run.manifest
        return manifest

    @property
    def pieces(self) -> ChangedParts:
        """`samples` and `ops` in parts."""
        return ChangedParts(parts_of(self._run), self._change)

    def __getattr__(self, name: str) -> Any:
        if name in self._tables:
            return self._tables[name]
        value = getattr(self._run, name)
        if not isinstance(value, pd.DataFrame):
            return value
        self._tables[name] = self._change(value)
        return self._tables[name]


class Partial(NamedTuple):
    """The partial result of one part."""

    operations: OperationSums
    samples: pd.DataFrame  # as of `sample_sums`


# Reduces all parts, in their order.
Partials = Callable[[Parts], Iterator[Partial]]


def partial_of(parts: Parts, place: int) -> Partial:
    """Read one part and reduce it."""
    rows = parts[place]
    return Partial(sums_of(rows.ops, place), sample_sums(rows.samples, place))


def one_process(parts: Parts) -> Iterator[Partial]:
    """Reduce them in this process, one after the other."""
    for place in range(len(parts)):
        yield partial_of(parts, place)


def _kept(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table, its columns in a file where they are long."""
    columns = {name: long_arrays.kept(frame[name].to_numpy()) for name in frame}
    return pd.DataFrame(columns, copy=False)


class RunContents:
    """Sums of the samples and operations of all loaders; both are read once for all."""

    def __init__(
        self,
        parts: Parts,
        advance: Advance = lambda done, whole: None,
        partials: Partials = one_process,
    ) -> None:
        self.parts, self.advance, self.partials = parts, advance, partials
        self._kept: dict[int, pd.DataFrame] = {}

    @cached_property
    def operations(self) -> OperationSums:
        """Sums of the operations."""
        return self._read[0]

    @cached_property
    def samples(self) -> pd.DataFrame:
        """Sums of the samples, as of `sample_sums`."""
        return self._read[1]

    @cached_property
    def _read(self) -> tuple[OperationSums, pd.DataFrame]:
        samples = [sample_sums(pd.DataFrame())]

        def each() -> Iterator[OperationSums]:
            for done, partial in enumerate(self.partials(self.parts), 1):
                samples.append(partial.samples)
                yield partial.operations
                self.advance(done, len(self.parts))

        operations = added(each())
        known = [part for part in samples if len(part)] or samples
        return operations, _kept(pd.concat(known, ignore_index=True))

    def of_batches(self, batches: pd.DataFrame) -> Iterator[PartRows]:
        """Read again the parts with samples, or operations in samples, of any of these batches."""
        if not len(batches):
            return
        places = BatchPlaces(batches)
        mine = places.rows(self.samples) >= 0
        wanted = set(self.samples.loc[mine, "piece"].tolist())
        for part in self.operations.batches:
            if part.piece not in wanted:
                rows = places.rows(pd.DataFrame(part.keys, columns=list(KEYS)))
                wanted |= {part.piece} if (rows >= 0).any() else set()
        yield from self.again(sorted(wanted))

    def again(self, places: Sequence[int]) -> Iterator[PartRows]:
        """Read these parts again."""
        return self._told(places, self.parts.__getitem__)

    def times_again(self, places: Sequence[int]) -> Iterator[pd.DataFrame]:
        """Read again the samples of these parts, without what is known of their operations.

        If there are few in all, the first reading is kept.
        """
        return self._told(places, self._times if self._few else self.parts.times)

    @cached_property
    def _few(self) -> bool:
        return bool(self.samples["samples"].sum() <= MOST_KEPT)

    def _times(self, place: int) -> pd.DataFrame:
        if place not in self._kept:
            self._kept[place] = self.parts.times(place)
        return self._kept[place]

    def _told(self, places: Sequence[int], read: Callable[[int], Read]) -> Iterator[Read]:
        for done, place in enumerate(places, 1):
            yield read(int(place))
            self.advance(done, len(places))

    def of_epochs(self, epochs: np.ndarray) -> "RunContents":
        """Return the contents of some epochs alone; they are read again."""
        parts = ChangedParts(self.parts, InEpochs(epochs))
        return RunContents(parts, self.advance, self.partials)


@dataclass(frozen=True)
class InEpochs:
    """Reduces a table to its rows of these epochs."""

    epochs: np.ndarray

    def __call__(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows."""
        if "epoch" not in frame:
            return frame.iloc[:0]
        return frame[np.isin(frame["epoch"], self.epochs)].reset_index(drop=True)
