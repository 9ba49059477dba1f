"""Loaders that a program creates anew for each epoch, seen as one loader."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import batch_rows, float_column, int_column
from lotus.analysis.common.run_contents import ChangedRun
from lotus.analysis.common.scope import RunLike, table
from lotus.common.numbers.array_types import Ints

_TABLES = (
    "ops",
    "samples",
    "batches",
    "waits",
    "epochs",
    "workers",
    "open_waits",
    "first_batches",
    "sample_digests",
    "counters",
)
_NOT_SETTINGS = ("loader", "local_rank", "world_size", "host")
_LENGTHS = ("dataset_length", "length")
_LEAST_GROWING = 3  # loaders of different lengths; two may be for training and validation


class MergedRun(ChangedRun):
    """A run whose remade loaders have the number of the first, with epochs counted on.

    Its table `loaders` has the column `made`: how many loaders a row stands for. Tables are made
    when they are first asked for; what holds no loader is the run's own.
    """

    def __init__(self, run: RunLike, places: pd.DataFrame) -> None:
        super().__init__(run, Renumbered(places))
        self._places = places

    @property
    def loaders(self) -> pd.DataFrame:
        """The table of loaders; of those that are one, only the first."""
        merged = self._places[self._places["first"] == self._places["loader"]]
        made = self._places.groupby(["rank", "first"]).size()
        known: pd.DataFrame = self._run.loaders
        keys = pd.MultiIndex.from_arrays([int_column(known, "rank"), int_column(known, "loader")])
        keep = keys.isin(pd.MultiIndex.from_frame(merged[["rank", "loader"]]))
        keep |= ~keys.isin(pd.MultiIndex.from_frame(self._places[["rank", "loader"]]))
        rows = known[keep].reset_index(drop=True)
        counts = made.reindex(keys[keep]).to_numpy()
        return rows.assign(made=np.where(np.isnan(counts), 1, counts).astype(np.int64))

    def number_of(self, loader: int) -> int:
        """Return the number of the first of the loaders that this one belongs to."""
        mine = int_column(self._places, "loader") == loader
        return int(int_column(self._places, "first")[mine][0]) if mine.any() else loader

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name) if name in _TABLES else getattr(self._run, name)


@dataclass(frozen=True)
class Renumbered:
    """Gives the rows of a table the numbers of the first of their loaders."""

    places: pd.DataFrame

    def __call__(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows, with their epochs counted on."""
        if not len(frame) or "loader" not in frame:
            return frame
        row = _row_of(self.places, frame)
        mine, columns = row >= 0, {}
        for name, new in (("loader", "first"), ("epoch", "epochs_before")):
            if name in frame:
                old, values = int_column(frame, name), self.places[new].to_numpy(np.int64)[row]
                columns[name] = np.where(mine, values if name == "loader" else old + values, old)
        return frame.assign(**columns)


def _row_of(places: pd.DataFrame, frame: pd.DataFrame) -> Ints:
    """Return the position in `places` of each row's loader; -1: it is not there."""
    keys = ["rank", "loader"] if "rank" in frame else ["loader"]
    return batch_rows(places, frame, keys)


def number_of(run: RunLike, loader: int) -> int:
    """Return the number of a loader in a report, which may have been created again."""
    whole = merged(run)
    return whole.number_of(loader) if isinstance(whole, MergedRun) else loader


def merged(run: RunLike) -> RunLike:
    """Return the run with remade loaders as one; the run itself if no loader was created again.

    They are one if one place in the program created them with the same parameters, in one process,
    and none was iterated while another was. Loaders that all have different lengths, as of data
    that grow, are one if there are several.
    """
    if isinstance(run, MergedRun):
        return run
    loaders, epochs = run.loaders, table(run, "epochs")
    if len(loaders) < 2 or not len(epochs) or "call_site" not in loaders:
        return run
    spans = _spans(epochs)
    numbers = {"rank": int_column(loaders, "rank"), "loader": int_column(loaders, "loader")}
    texts = {"key": _texts(loaders, ()), "alike": _texts(loaders, _LENGTHS)}
    known = loaders["call_site"].notna().to_numpy()
    table_of = pd.DataFrame(numbers | texts)[known].merge(spans, on=["rank", "loader"])
    unique = ~table_of.duplicated("key", keep=False)
    groups = [group for _, group in table_of[~unique].groupby("key", sort=False)]
    groups += [
        group
        for _, group in table_of[unique].groupby("alike", sort=False)
        if len(group) >= _LEAST_GROWING
    ]
    numbered = [_numbered(group.sort_values("start")) for group in groups]
    parts = [part for part in numbered if part is not None]
    return MergedRun(run, pd.concat(parts, ignore_index=True)) if parts else run


def _texts(loaders: pd.DataFrame, without: Collection[str]) -> list[str]:
    """Return the settings of each loader as a text, without some of them."""
    keys = [name for name in loaders.columns if name not in (*_NOT_SETTINGS, *without)]
    return ["\x1f".join(map(str, row)) for row in loaders[keys].itertuples(index=False)]


def _spans(epochs: pd.DataFrame) -> pd.DataFrame:
    """Return when each loader was first and last iterated, and how many epochs it had."""
    rows = pd.DataFrame(
        {
            "rank": int_column(epochs, "rank"),
            "loader": int_column(epochs, "loader"),
            "epoch": int_column(epochs, "epoch"),
            "start": float_column(epochs, "start_ns"),
            "end": float_column(epochs, "end_ns"),
        }
    )
    rows["end"] = np.fmax(rows["end"], rows["start"])
    return rows.groupby(["rank", "loader"], as_index=False).agg(
        start=("start", "min"), end=("end", "max"), epochs=("epoch", "max")
    )


def _numbered(group: pd.DataFrame) -> pd.DataFrame | None:
    """Return the group with the first loader's number and its epochs; None if two overlap."""
    starts, ends = group["start"].to_numpy(), group["end"].to_numpy()
    if not np.isfinite(starts).all() or (starts[1:] < ends[:-1]).any():
        return None
    counts = group["epochs"].to_numpy(np.int64) + 1
    return group.assign(
        first=int_column(group, "loader")[0], epochs_before=np.cumsum(counts) - counts
    )
