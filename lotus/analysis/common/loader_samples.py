"""The samples of one loader, of which a run may have more rows than fit in memory."""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import BatchPlaces, float_column, int_column, total
from lotus.analysis.common.run_contents import InEpochs, RunContents
from lotus.common.numbers.array_types import Floats

Made = TypeVar("Made")


class LoaderSamples:
    """The samples of one loader."""

    def __init__(
        self, contents: RunContents, loader: int, table: Callable[[], pd.DataFrame]
    ) -> None:
        """Keep `table`, which returns all rows, for callers that need them."""
        self.contents, self.loader, self.table = contents, loader, table
        self._made: dict[str, Any] = {}

    @cached_property
    def sums(self) -> pd.DataFrame:
        """Sums per batch, as of `sample_sums`."""
        sums = self.contents.samples
        mine = int_column(sums, "loader") == self.loader
        # The usual case, which needs no second table.
        return sums if mine.all() else sums[mine].reset_index(drop=True)

    @property
    def count(self) -> int:
        """The number of samples; each batch that was fetched in one call counts as one."""
        return int(self.sums["samples"].sum())

    def total(self, name: str) -> float:
        """Return the sum of a column, 0.0 of nothing."""
        return total(float_column(self.sums, name))

    def in_batches(self, batches: pd.DataFrame, name: str) -> Floats:
        """Return the sum of a column per row of a table of batches (n,)."""
        row = BatchPlaces(batches).rows(self.sums)
        known = row >= 0
        sums = np.bincount(row[known], float_column(self.sums, name)[known], len(batches))
        return np.asarray(sums, np.float64)

    def times(self) -> Iterator[pd.DataFrame]:
        """Read them again, part by part, in order, without what is known of their operations."""
        for rows in self.contents.times_again(np.unique(int_column(self.sums, "piece")).tolist()):
            mine = int_column(rows, "loader") == self.loader
            yield rows if mine.all() else rows[mine].reset_index(drop=True)

    def once(self, name: str, make: Callable[[], Made]) -> Made:
        """Return what `make` returns; it is called only the first time for each name."""
        if name not in self._made:
            self._made[name] = make()
        made: Made = self._made[name]
        return made

    def of_epochs(self, epochs: np.ndarray, contents: RunContents) -> "LoaderSamples":
        """Return those of some epochs alone, of which `contents` are."""
        chosen = InEpochs(epochs)
        return LoaderSamples(contents, self.loader, lambda: chosen(self.table()))
