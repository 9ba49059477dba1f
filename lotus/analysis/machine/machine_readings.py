"""The machine's own counters while a loader was iterated."""

import math

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, ratio
from lotus.analysis.common.scope import Scope
from lotus.common.numbers.array_types import Floats

SWAPPED = 64 << 20  # bytes: a machine swaps less by itself
ROOM = 0.2  # of the memory: if that much is always left, it is other cgroups that lack memory


def growth(machine: pd.DataFrame, counts: Floats, start_ns: Floats, end_ns: Floats) -> float:
    """Return how much a counter grew in all of these stretches; 0.0 if it is not known.

    `counts`: the counter at each reading of `machine`, a table as `Run.machine`; below 0: not read.
    It is taken to grow evenly between two readings, about a second apart.
    """
    known = counts >= 0
    if known.sum() < 2:
        return 0.0
    edges = np.stack([start_ns, end_ns])
    edges = edges[:, ~np.isnan(edges).any(axis=0)]
    read = np.interp(edges, float_column(machine, "time_ns")[known], counts[known])
    return float(np.maximum(read[1] - read[0], 0.0).sum())


def within_loops(scope: Scope, name: str) -> float:
    """Return how much a counter of `Run.machine` grew in the loops; 0.0 if it is not known."""
    start_ns, end_ns = float_column(scope.epochs, "start_ns"), float_column(scope.epochs, "end_ns")
    return growth(scope.machine, float_column(scope.machine, name), start_ns, end_ns)


def core_time(machine: pd.DataFrame) -> tuple[Floats, Floats]:
    """Return the machine's CPU time since its boot (used, used and idle), ns, at each reading."""
    used = float_column(machine, "busy_ns") + float_column(machine, "stolen_ns")
    return used, used + float_column(machine, "idle_ns")


def stolen_share(scope: Scope) -> float:
    """Return the share of the cores' time in the loops that the hypervisor withheld; 0.0: unknown.

    It is the steal time: other virtual machines had the cores, or this one may use only a part.
    """
    start_ns, end_ns = float_column(scope.epochs, "start_ns"), float_column(scope.epochs, "end_ns")
    whole = growth(scope.machine, core_time(scope.machine)[1], start_ns, end_ns)
    return ratio(within_loops(scope, "stolen_ns"), whole) if whole > 0 else 0.0


def least_memory_share(machine: pd.DataFrame, whole_bytes: float) -> float:
    """Return the least share of the memory that was left, 0 to 1; NaN: not known.

    Of a cgroup's limit where that left less than the machine, which has `whole_bytes` (NaN: not
    known). `machine` is a table as `Run.machine`.
    """
    left, limit = (
        float_column(machine, "available_bytes"),
        float_column(machine, "memory_limit_bytes"),
    )
    shares = (left / np.where(limit > 0, limit, whole_bytes))[left >= 0]
    known = shares[np.isfinite(shares)]
    return float(known.min()) if known.size else math.nan
