"""One rank's part of a run, seen as a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lotus.analysis.common.columns import integer
from lotus.analysis.common.run_contents import ChangedParts, parts_of
from lotus.analysis.common.scope import RunLike


class RankRun:
    """A run whose tables have the rows of one rank; what holds no rank is the run's own."""

    def __init__(self, run: RunLike, rank: int) -> None:
        self._run, self._in_rank = run, InRank(rank)
        self._tables: dict[str, pd.DataFrame] = {}

    @property
    def manifest(self) -> Mapping[str, Any]:
        """run.json, as the run has it."""
        return self._run.manifest

    @property
    def loaders(self) -> pd.DataFrame:
        """The rank's loaders."""
        return self._in_rank(self._run.loaders)

    @property
    def pieces(self) -> ChangedParts:
        """`samples` and `ops` in parts."""
        return ChangedParts(parts_of(self._run), self._in_rank)

    def __getattr__(self, name: str) -> Any:
        if name in self._tables:
            return self._tables[name]
        value = getattr(self._run, name)
        if not isinstance(value, pd.DataFrame):
            return value
        self._tables[name] = self._in_rank(value)
        return self._tables[name]


@dataclass(frozen=True)
class InRank:
    """What reduces a table to the rows of a rank."""

    rank: int

    def __call__(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows."""
        if "rank" not in frame:
            return frame
        rows: pd.DataFrame = frame[integer(frame, "rank") == self.rank]
        return rows.reset_index(drop=True)
