"""What more workers would give a rank whose input is the limit: simulated, as `lotus whatif` does.

`lotus tune` measures the same on the machine itself; this says what it would be worth.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.columns import integer
from lotus.analysis.scope import RunLike
from lotus.errors import LotusError
from lotus.tune.profile import profile
from lotus.tune.simulate import simulate

_BATCHES = 200  # simulated for each number of workers
_NEAR = 0.98  # of the best rate: the fewest workers that reach it are named


@dataclass(frozen=True)
class Tuned:
    """Samples per second that a rank's loader can deliver by itself, now and with `workers`."""

    rank: int
    workers_now: int
    workers: int
    prefetch: int
    now: float
    then: float

    @property
    def times(self) -> float:
        return self.then / self.now


class OfRank:
    """A run's tables as one rank alone would have left them; cores: those of its share."""

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
        found = getattr(self._run, name, None)
        if not isinstance(found, pd.DataFrame):
            return pd.DataFrame()
        if "rank" not in found.columns:
            return found
        mine: pd.DataFrame = found[integer(found, "rank") == self._rank]
        return mine.reset_index(drop=True)


def tuned(run: RunLike, rank: int, loader: int | None, local: int) -> Tuned | None:
    """What the best number of workers would give; None where it is not worth telling or not known.

    `local`: ranks on the same host, which share its cores.
    """
    try:
        made = profile(OfRank(run, rank, local), loader, step_cores=0.0)
        work = dataclasses.replace(made.work(), step_ns=np.zeros(1))
    except LotusError:
        return None
    machine, own = made.machine(), made.setting

    def rate(workers: int) -> float:
        prefetch = own.prefetch_factor or 2
        setting = dataclasses.replace(
            own, num_workers=workers, prefetch_factor=prefetch if workers else None
        )
        return simulate(work, setting.normal(), machine, batches=_BATCHES).steady_samples_per_s

    most = max(int(2 * made.cores), own.num_workers, 1)
    tries = sorted({own.num_workers, *range(1, min(most, 8) + 1), most})
    rates = {workers: rate(workers) for workers in tries}
    best = max(rates.values())
    workers = next(one for one in tries if rates[one] >= _NEAR * best)
    now = rates[own.num_workers]
    if not now > 0 or rates[workers] < now / _NEAR:
        return None
    prefetch = own.prefetch_factor or 2
    return Tuned(rank, own.num_workers, workers, prefetch, now, rates[workers])
