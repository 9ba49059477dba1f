"""One rank's part of a run, seen as a run."""

from dataclasses import dataclass

import pandas as pd

from lotus.analysis.common.columns import int_column
from lotus.analysis.common.run_contents import ChangedRun
from lotus.analysis.common.scope import RunLike


class RankRun(ChangedRun):
    """A run whose tables have the rows of one rank; what holds no rank is the run's own."""

    def __init__(self, run: RunLike, rank: int) -> None:
        super().__init__(run, InRank(rank))

    @property
    def loaders(self) -> pd.DataFrame:
        """The table of the rank's loaders."""
        return self._change(self._run.loaders)


@dataclass(frozen=True)
class InRank:
    """Reduces a table to the rows of a rank."""

    rank: int

    def __call__(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows."""
        if "rank" not in frame:
            return frame
        rows: pd.DataFrame = frame[int_column(frame, "rank") == self.rank]
        return rows.reset_index(drop=True)
