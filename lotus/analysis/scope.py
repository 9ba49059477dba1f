"""One loader's part of a run: the tables of every rank, and what is known of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd

from lotus.analysis.columns import batch_rows, integer, number, plain_value, total

TABLES = ("ops", "samples", "batches", "waits", "epochs", "workers", "resources", "paths")


class RunLike(Protocol):
    """What analysis needs of a `lotus.run.Run`; read-only."""

    @property
    def manifest(self) -> Mapping[str, Any]: ...

    @property
    def loaders(self) -> pd.DataFrame: ...


@dataclass(frozen=True)
class Scope:
    """The tables of one loader, all ranks; `settings` are the loader's own parameters."""

    loader: int
    settings: dict[str, Any]
    ranks: list[int]
    level: str
    partial: bool  # not every batch was to be recorded
    cores: float  # that this loader's processes may use on one rank; NaN: not known
    operations: pd.DataFrame
    ops: pd.DataFrame
    samples: pd.DataFrame
    batches: pd.DataFrame
    waits: pd.DataFrame
    epochs: pd.DataFrame
    workers: pd.DataFrame
    resources: pd.DataFrame
    paths: pd.DataFrame

    @property
    def num_workers(self) -> int:
        """Workers of one rank; 0: the main process makes the batches."""
        known = self.settings.get("num_workers")
        if isinstance(known, int):
            return known
        return int(max(integer(self.batches, "worker"), default=-1)) + 1

    @property
    def title(self) -> str:
        """What a user knows the loader by."""
        parts = [self.settings.get("dataset"), self.settings.get("call_site")]
        return " at ".join(str(part) for part in parts if part) or f"loader {self.loader}"


def scopes(run: RunLike) -> list[Scope]:
    """One Scope a loader that was iterated, the one with the most samples first."""
    tables = {name: table(run, name) for name in TABLES}
    numbers = np.unique(
        np.concatenate(
            [integer(tables[name], "loader") for name in ("batches", "waits", "epochs")]
            + [integer(run.loaders, "loader")]
        )
    )
    found = [_scope(run, tables, int(loader)) for loader in numbers if loader >= 0]
    found = [scope for scope in found if len(scope.batches) or len(scope.epochs)]
    return sorted(found, key=lambda one: (-total(number(one.batches, "size")), one.loader))


def table(run: Any, name: str) -> pd.DataFrame:
    """A table of the run; empty where the run has none of that name."""
    found = getattr(run, name, None)
    return found if isinstance(found, pd.DataFrame) else pd.DataFrame()


def _scope(run: RunLike, tables: Mapping[str, pd.DataFrame], loader: int) -> Scope:
    def mine(name: str) -> pd.DataFrame:
        frame = tables[name]
        keep = integer(frame, "loader") == loader
        return frame if keep.all() else frame[keep].reset_index(drop=True)

    batches, workers = mine("batches"), tables["workers"]
    processes = _pairs(batches)
    keep = _pairs(workers).isin(processes) | (integer(workers, "loader") == loader)
    rows = run.loaders[integer(run.loaders, "loader") == loader]
    settings = {
        str(name): plain_value(value)
        for name, value in (rows.iloc[0].to_dict() if len(rows) else {}).items()
    }
    ranks = sorted({int(rank) for rank in integer(batches, "rank")})
    paths, resources = tables["paths"], tables["resources"]
    manifest = run.manifest
    return Scope(
        loader=loader,
        settings=settings,
        ranks=ranks,
        level=str(manifest.get("level") or "op"),
        partial=bool(manifest.get("batches")) or (manifest.get("every") or 1) != 1,
        cores=_cores(manifest, len(ranks)),
        operations=table(run, "operations"),
        ops=mine("ops"),
        samples=mine("samples"),
        batches=_with_idle_of_loop(batches, mine("epochs")),
        waits=mine("waits"),
        epochs=mine("epochs"),
        workers=workers[keep].reset_index(drop=True),
        resources=resources[_pairs(resources).isin(processes)].reset_index(drop=True),
        paths=paths[_pairs(paths).isin(processes)].reset_index(drop=True),
    )


def _pairs(frame: pd.DataFrame) -> pd.Series:
    return pd.Series(integer(frame, "rank") * 4_194_304 + integer(frame, "pid"))


def _with_idle_of_loop(batches: pd.DataFrame, epochs: pd.DataFrame) -> pd.DataFrame:
    """Add idle_in_loop_ns: idle time since the epoch began, not between two epochs."""
    row = batch_rows(epochs, batches, ("rank", "loader", "epoch"))
    begin = number(epochs, "start_ns")
    begin = begin[np.maximum(row, 0)] if len(epochs) else np.full(len(batches), np.nan)
    since = number(batches, "fetch_start_ns") - np.where(row >= 0, begin, np.nan)
    idle = np.minimum(number(batches, "idle_ns"), np.fmax(since, 0.0))
    return batches.assign(idle_in_loop_ns=idle)


def _cores(manifest: Mapping[str, Any], ranks: int) -> float:
    cpu = manifest.get("cpu") or {}
    limits = [cpu.get("affinity") or cpu.get("logical"), cpu.get("quota")]
    known = [float(limit) for limit in limits if limit]
    return min(known) / max(ranks, 1) if known else float("nan")
