"""The operations of one loader, of which a run may have more rows than fit in memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import KEYS, batch_rows, float_column, int_column, total
from lotus.analysis.common.durations import NONE, Durations
from lotus.analysis.common.operation_sums import BatchSums
from lotus.analysis.common.run_contents import InEpochs, RunContents
from lotus.common.numbers.array_types import Bools, Floats, Ints
from lotus.common.storage import long_arrays

_MOST = 0.5  # of an operation's time


@dataclass(frozen=True)
class InBatches:
    """Operations in samples that are not nested, added up: (n, o), a row a batch of the table.

    `took` has columns of zeros beside them, on request. `took_ns` and `cpu_ns` (o,) are
    those of all batches, the latter NaN where it was not measured of each call.
    """

    names: list[str]
    took: Floats
    took_ns: Floats
    cpu_ns: Floats
    stalled: Floats | None  # None: no CPU time was recorded


class LoaderOperations:
    """The operations of one loader."""

    def __init__(
        self, contents: RunContents, loader: int, table: Callable[[], pd.DataFrame]
    ) -> None:
        """Keep `table`, which returns all rows, for callers that need them."""
        self.contents, self.loader, self.table = contents, loader, table

    @cached_property
    def cells(self) -> pd.DataFrame:
        """Sums, as in `OperationSums`."""
        cells = self.contents.operations.cells
        mine: pd.DataFrame = cells[int_column(cells, "loader") == self.loader]
        return mine.reset_index(drop=True)

    @property
    def count(self) -> int:
        """The number of operations."""
        return int(self.cells["count"].sum())

    @cached_property
    def names(self) -> list[str]:
        """The operations, in the order in which they were found."""
        return list(dict.fromkeys(self.cells["operation"]))

    @property
    def outermost(self) -> list[str]:
        """The operations that are within no other."""
        cells = self.cells
        return list(
            dict.fromkeys(cells["operation"][(cells["parent"].astype(str) == "").to_numpy()])
        )

    def mostly(self, name: str) -> str:
        """Return the innermost operation within `name` that has most of its time; "": none."""
        cells = self.cells
        parent, took = cells["parent"].astype(str), float_column(cells, "duration_ns")
        operation = cells["operation"].astype(str)
        least = _MOST * took[((parent == "") & (operation == name)).to_numpy()].sum()
        path, inner = name, ""
        while least > 0:
            within = (parent == path).to_numpy()
            sums = pd.Series(took[within]).groupby(operation[within].to_numpy()).sum()
            if not len(sums) or not sums.max() > least:
                break
            path, above = str(sums.idxmax()), path
            inner = path.removeprefix(f"{above}/")
        return inner

    def durations(self, name: str) -> Durations:
        """Return the durations of an operation's calls."""
        return self.contents.operations.durations.get((self.loader, name), NONE)

    def parts(self) -> Iterator[pd.DataFrame]:
        """Read all rows again, part by part."""
        for part in self.contents.again(
            sorted(self.contents.operations.pieces.get(self.loader, ()))
        ):
            ops = part.ops
            mine = int_column(ops, "loader") == self.loader
            yield ops if mine.all() else ops[mine]

    @cached_property
    def _batches(self) -> list[tuple[BatchSums, Bools]]:
        """Return the sums of pieces with batches of this loader, and which batches those are."""
        of_loader = [
            (part, part.keys[:, KEYS.index("loader")] == self.loader)
            for part in self.contents.operations.batches
        ]
        return [(part, mine) for part, mine in of_loader if mine.any()]

    def _rows(self, batches: pd.DataFrame) -> list[tuple[BatchSums, Bools, Ints]]:
        """Return `_batches` with the rows of these batches in `batches`; -1: not there."""
        parts = self._batches
        if not parts:
            return []
        keys = np.concatenate([part.keys[mine] for part, mine in parts])
        row = batch_rows(batches, pd.DataFrame(keys, columns=list(KEYS)))
        ends = np.cumsum([int(mine.sum()) for _, mine in parts])
        rows = np.split(row, ends[:-1])
        return [(part, mine, each) for (part, mine), each in zip(parts, rows, strict=True)]

    def in_batches(self, batches: pd.DataFrame, beside: int = 0) -> InBatches:
        """Add them up by the rows of a table of batches, and by operation.

        `beside`: how many more columns the matrix is to have.
        """
        parts = self._rows(batches)
        used = {name for part, _, _ in parts for name in part.names}
        names = [name for name in self.names if name in used]
        place = {name: column for column, name in enumerate(names)}
        took = long_arrays.zeros((len(batches), len(names) + beside))
        stalled = np.zeros((len(batches), len(names)))
        cpu, known_calls, unknown = (np.zeros(len(names)) for _ in range(3))
        for part, mine, row in parts:
            known = row >= 0
            of_loader = np.flatnonzero([name in place for name in part.names])
            columns = np.array([place[part.names[column]] for column in of_loader], np.int64)
            there = np.ix_(row[known], columns)
            chosen = np.ix_(np.flatnonzero(mine)[known], of_loader)
            took[there] += part.took[chosen]
            if part.cpu is None or part.measured is None:
                continue
            assert part.unmeasured is not None
            assert part.stalled is not None
            stalled[there] += part.stalled[chosen]
            cpu[columns] += part.cpu[chosen].sum(axis=0)
            known_calls[columns] += part.measured[chosen].sum(axis=0)
            unknown[columns] += part.unmeasured[chosen].sum(axis=0)
        cpu[(unknown > 0) | (known_calls == 0)] = np.nan
        took_ns = np.array([total(took[:, column]) for column in range(len(names))])
        return InBatches(names, took, took_ns, cpu, stalled if known_calls.any() else None)

    def of_epochs(self, epochs: Ints, contents: RunContents) -> "LoaderOperations":
        """Return those of some epochs alone, of which `contents` are."""
        chosen = InEpochs(epochs)
        return LoaderOperations(contents, self.loader, lambda: chosen(self.table()))
