"""The growth of the workers' memory: by copies of what they share, or by allocation."""

import math
import mmap
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import flag, float_column, int_column, ratio, ratios
from lotus.analysis.common.scope import Scope
from lotus.common.numbers.array_types import Floats

_LEAST_COPIED = 64 << 20  # bytes a worker: imports and a garbage collection copy some 50 MB
_MUCH_COPIED = 256 << 20
_PART_COPIED = 0.2  # of what the worker shared at first
_LEAST_ALLOCATED = 64 << 20
_STEADY = 0.5  # the second half of the time grows by at least this much of the first
_LEAST_READINGS = 4
_MOST_S = 86_400.0  # what would fill the memory later than in a day does not concern this run


@dataclass(frozen=True)
class MemoryGrowth:
    """Bytes are of the worker that grew most.

    `copied_bytes`: pages that it shared with the main process and wrote to, as CPython does to
    count references. `shared_bytes`: what it may still copy. `allocated_bytes`: what it grew by
    otherwise, without pages of files. `whole_bytes`: copied, and what may be, of all workers.
    `available_bytes`: at the last reading of a worker, of the machine or of the cgroup that leaves
    less; NaN if not known. `limit_bytes`: the limit of that cgroup; 0.0: the machine leaves less.
    `seconds_left`: from then until the memory is full, if the workers grow as they did; inf if they
    do not, or not steadily, or end before.
    """

    copied_bytes: float
    shared_bytes: float
    allocated_bytes: float
    whole_bytes: float
    available_bytes: float
    seconds_left: float
    limit_bytes: float = 0.0

    @property
    def copies(self) -> bool:
        """True if the workers copy much of what they share."""
        part = ratio(self.copied_bytes, self.copied_bytes + self.shared_bytes)
        much = self.copied_bytes >= _MUCH_COPIED or part >= _PART_COPIED
        return self.copied_bytes >= _LEAST_COPIED and much


NOTHING = MemoryGrowth(0.0, 0.0, 0.0, 0.0, math.nan, math.inf)


@dataclass(frozen=True)
class _Process:
    copied: float
    shared: float
    allocated: float
    per_s: float
    last_ns: float


def memory_growth(scope: Scope) -> MemoryGrowth:
    """Return the growth of the workers' memory, as far as one of them was read at least twice."""
    workers = max(scope.num_workers, 1) * max(len(scope.ranks), 1)
    growth = growth_of(_of_workers(scope), scope.machine, workers, scope.num_workers > 1,
                       touched_bytes(scope))  # fmt: skip
    steady = growth.seconds_left < _longest_s(scope)
    return growth if steady else replace(growth, seconds_left=math.inf)


def growth_of(
    readings: pd.DataFrame,
    machine: pd.DataFrame,
    workers: int,
    several: bool,
    faulted: Mapping[int, float],
) -> MemoryGrowth:
    """Return the growth from readings by time: pid, time, rss, private, shared, anonymous.

    `workers`: how many there are, of all ranks; `several`: whether a rank has more than one;
    `faulted`: bytes that a process has touched anew, where that is known.
    """
    each = [
        growth
        for pid in dict.fromkeys(int_column(readings, "pid").tolist())
        if (growth := _of_process(readings[readings["pid"] == pid], faulted.get(pid, math.inf)))
    ]
    if not each:
        return NOTHING
    # With one worker, what the main process writes to becomes the worker's own as well.
    most = max(each, key=lambda process: process.copied * several + process.allocated)
    available, limit = _available(machine, max(process.last_ns for process in each))
    per_s = max(process.per_s for process in each) * workers
    left = available / per_s if per_s > 0 and available == available else math.inf
    return MemoryGrowth(
        copied_bytes=most.copied if several else 0.0,
        shared_bytes=most.shared,
        allocated_bytes=most.allocated,
        whole_bytes=(most.copied + most.shared) * workers if several else 0.0,
        available_bytes=available,
        seconds_left=left if left < _MOST_S else math.inf,
        limit_bytes=limit,
    )


def _available(machine: pd.DataFrame, last_ns: float) -> tuple[float, float]:
    """Return (bytes that were left, the limit of the cgroup that leaves them; 0.0: none).

    At the last reading of the workers: once they have ended, their memory is free again.
    """
    available = float_column(machine, "available_bytes")
    before = np.flatnonzero((float_column(machine, "time_ns") <= last_ns) & (available >= 0))
    if not before.size:
        return math.nan, 0.0
    limit = float_column(machine, "memory_limit_bytes")[before[-1]]
    return float(available[before[-1]]), float(limit) if limit > 0 else 0.0


def _longest_s(scope: Scope) -> float:
    """Return how long a worker lives, in seconds: until its epoch ends, unless workers are kept."""
    complete = flag(scope.epochs, "exhausted")
    if scope.settings.get("persistent_workers") or not len(complete) or not complete.all():
        return math.inf
    took = float_column(scope.epochs, "end_ns") - float_column(scope.epochs, "start_ns")
    return float(np.nanmax(took, initial=0.0)) / 1e9


def _of_workers(scope: Scope) -> pd.DataFrame:
    """Return readings of workers by time: pid, time, rss, private, shared, anonymous.

    The first is that which a worker made of itself just after the fork, without anonymous (NaN).
    """
    memory, own = scope.memory, scope.resources
    outside = pd.DataFrame(
        {
            "pid": int_column(memory, "pid"),
            "time": float_column(memory, "time_ns"),
            **{
                name: float_column(memory, name)
                for name in ("rss", "private", "shared", "anonymous")
            },
        }
    )[int_column(memory, "worker") >= 0]
    pss, rss = float_column(own, "pss"), float_column(own, "rss")
    # Just after the fork all processes share about the same pages.
    sharers = max(scope.num_workers, 1) + 1
    private = np.maximum(sharers * pss - rss, 0.0) / (sharers - 1)
    inside = pd.DataFrame(
        {
            "pid": int_column(own, "pid"),
            "time": float_column(own, "time_ns"),
            "rss": rss,
            "private": private,
            "shared": np.nan,
            "anonymous": np.nan,
        }
    )[(int_column(own, "worker") >= 0) & (pss > 0)]
    inside = inside.sort_values("time").drop_duplicates("pid")
    # A worker that read itself before the others were forked shared its pages with fewer, so its
    # own part looks larger: the smallest part is the best estimate.
    inside["private"] = inside["rss"] * np.min(
        ratios(float_column(inside, "private"), float_column(inside, "rss")), initial=1.0
    )
    outside = outside[outside["pid"].isin(inside["pid"])]
    return pd.concat([inside, outside], ignore_index=True).sort_values("time", kind="stable")


def touched_bytes(scope: Scope) -> dict[int, float]:
    """Return how many bytes of pages each process touched anew while making batches, if known."""
    if scope.partial:
        return {}
    pid, faults = int_column(scope.batches, "pid"), float_column(scope.batches, "minor_faults")
    sums = pd.Series(faults * mmap.PAGESIZE).groupby(pid).sum(min_count=1).dropna()
    return dict(zip(int_column(sums.reset_index(), "index").tolist(), sums.tolist(), strict=True))


def _of_process(readings: pd.DataFrame, faulted: float) -> _Process | None:
    rss, private, shared, anonymous, time = (
        float_column(readings, name) for name in ("rss", "private", "shared", "anonymous", "time")
    )
    outside = np.isfinite(anonymous)
    if len(readings) < 2 or not outside.any():
        return None
    anonymous, time = anonymous[outside], time[outside]
    allocated = max(float(anonymous[-1] - anonymous[0]), 0.0)
    # Until the first reading from outside, all that came was allocated, as by imports.
    before = max(float(rss[outside][0] - rss[0]), 0.0)
    copied = max(float(private[-1] - private[0]) - allocated - before, 0.0)
    return _Process(
        copied=min(copied, faulted),
        shared=float(shared[-1]),
        allocated=allocated,
        per_s=_rate(time, anonymous),
        last_ns=float(time[-1]),
    )


def _rate(times: Floats, sizes: Floats) -> float:
    """Return bytes a second by which a process still grows; 0.0 unless it grew all the time."""
    if len(times) < _LEAST_READINGS:
        return 0.0
    middle = float(np.interp((times[0] + times[-1]) / 2, times, sizes))
    early, late = middle - float(sizes[0]), float(sizes[-1]) - middle
    if early + late < _LEAST_ALLOCATED or late < _STEADY * early or early < _STEADY * late:
        return 0.0
    return late / float(times[-1] - times[0]) * 2e9
