"""The interface of a run that joining needs; `lotus.Run` implements it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pandas as pd


class RecordedRun(Protocol):
    """The directory of a run, its run.json and the tables that samples are joined with.

    The tables have the columns of `lotus.Run`.
    """

    path: Path
    trusted: bool
    manifest: dict[str, Any]

    @property
    def workers(self) -> pd.DataFrame: ...
    @property
    def epochs(self) -> pd.DataFrame: ...
    @property
    def waits(self) -> pd.DataFrame: ...
    @property
    def operations(self) -> pd.DataFrame: ...
    @property
    def intervals(self) -> pd.DataFrame: ...
    @property
    def exact(self) -> pd.DataFrame: ...
    @property
    def counted_events(self) -> Sequence[Mapping[str, Any]]: ...
