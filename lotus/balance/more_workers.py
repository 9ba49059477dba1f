"""Simulates more workers for a rank whose input is the limit, as `lotus whatif` does.

`lotus tune` measures the same on the machine itself.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import int_column
from lotus.analysis.common.scope import RunLike
from lotus.common.errors import LotusError
from lotus.tune.simulation.loader_simulation import simulate
from lotus.tune.simulation.run_profile import profile

_BATCHES = 200  # simulated for each number of workers
_NEAR = 0.98  # of the best rate: the fewest workers that reach it are named


@dataclass(frozen=True)
class MoreWorkers:
    """Samples per second that a rank's loader can deliver by itself, now and with `workers`.

    If `workers` is the present number, no other number is faster. `why`: why it could not be
    simulated; the rates are then NaN.
    """

    rank: int
    workers_now: int
    workers: int
    now: float
    then: float
    why: str = ""

    @property
    def times(self) -> float:
        """The speed-up; 1.0 if it is not known."""
        return 1.0 if self.why else self.then / self.now


class OfRank:
    """A run's tables restricted to one rank; `cores` are those of its share."""

    def __init__(self, run: Any, rank: int, local: int) -> None:
        self._run, self._rank, self._local = run, rank, max(local, 1)

    @property
    def manifest(self) -> Mapping[str, Any]:
        manifest: Mapping[str, Any] = self._run.manifest
        cpu = dict(manifest.get("cpu") or {})
        shares = {
            name: cpu[name] / self._local
            for name in ("logical", "affinity", "quota")
            if isinstance(cpu.get(name), (int, float))
        }
        return {**manifest, "cpu": cpu | shares}

    @property
    def loaders(self) -> pd.DataFrame:
        return self._of_rank("loaders")

    def __getattr__(self, name: str) -> pd.DataFrame:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._of_rank(name)

    def _of_rank(self, name: str) -> pd.DataFrame:
        frame = getattr(self._run, name, None)
        if not isinstance(frame, pd.DataFrame):
            return pd.DataFrame()
        if "rank" not in frame.columns:
            return frame
        mine: pd.DataFrame = frame[int_column(frame, "rank") == self._rank]
        return mine.reset_index(drop=True)


def tuned(run: RunLike, rank: int, workers: int, loader: int | None, local: int) -> MoreWorkers:
    """Simulate other numbers of workers than the `workers` of a rank; return the best.

    `local`: number of ranks on the same host, which share its cores.
    """
    try:
        loader_profile = profile(OfRank(run, rank, local), loader, step_cores=0.0)
        work = dataclasses.replace(loader_profile.work(), step_ns=np.zeros(1))
    except LotusError as error:
        return MoreWorkers(rank, workers, workers, math.nan, math.nan, str(error))
    machine, own = loader_profile.machine(), loader_profile.setting

    def rate(workers: int) -> float:
        prefetch = (own.prefetch_factor or 2) if workers else None
        setting = dataclasses.replace(own, num_workers=workers, prefetch_factor=prefetch)
        return simulate(work, setting.normal(), machine, batches=_BATCHES).steady_samples_per_s

    own_workers = own.num_workers
    most = max(int(2 * loader_profile.cores), own_workers, 1)
    counts = sorted({own_workers, *range(1, min(most, 8) + 1), most})
    rates = {count: rate(count) for count in counts}
    best = max(rates.values())
    if not rates[own_workers] > 0:
        return MoreWorkers(rank, workers, workers, math.nan, math.nan, "its batches took no time")
    if rates[own_workers] >= _NEAR * best:
        return MoreWorkers(rank, own_workers, own_workers, rates[own_workers], rates[own_workers])
    chosen = next(count for count in counts if rates[count] >= _NEAR * best)
    return MoreWorkers(rank, own_workers, chosen, rates[own_workers], rates[chosen])
