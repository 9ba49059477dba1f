"""How the memory of a loader's workers grows: by copies of what they share, or by allocation."""

import mmap
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import Floats, integer, number, ratio
from lotus.analysis.common.scope import Scope

_LEAST_COPIED = 64 << 20  # bytes a worker: imports and a garbage collection copy some 50 MB
_MUCH_COPIED = 256 << 20
_PART_COPIED = 0.2  # of what the worker shared at first
_LEAST_ALLOCATED = 64 << 20
_STEADY = 0.5  # the second half of the time grows by at least this much of the first
_LEAST_READINGS = 4
_MOST_HOURS = 24  # what would fill the memory later than that is no matter of this run


@dataclass(frozen=True)
class MemoryGrowth:
    """Bytes are of the worker that grew most.

    `copied_bytes`: pages that it shared with the main process and wrote to, as CPython does to
    count references. `shared_bytes`: what it may still copy. `allocated_bytes`: what it grew by
    otherwise. `per_s`: bytes a second by which all workers together go on to grow; 0.0 if they do
    not, or not steadily. `available_bytes`: of the machine, in the end; NaN if not known.
    """

    copied_bytes: float
    shared_bytes: float
    allocated_bytes: float
    per_s: float
    available_bytes: float

    @property
    def copies(self) -> bool:
        """Whether the workers copy much of what they share."""
        part = ratio(self.copied_bytes, self.copied_bytes + self.shared_bytes)
        much = self.copied_bytes >= _MUCH_COPIED or part >= _PART_COPIED
        return self.copied_bytes >= _LEAST_COPIED and much

    @property
    def seconds_left(self) -> float:
        """Until the machine's memory is full, if they grow as before; inf: not in a day."""
        if not self.per_s > 0 or not np.isfinite(self.available_bytes):
            return float("inf")
        left = self.available_bytes / self.per_s
        return left if left < _MOST_HOURS * 3600 else float("inf")


NOTHING = MemoryGrowth(0.0, 0.0, 0.0, 0.0, float("nan"))


def memory_growth(scope: Scope) -> MemoryGrowth:
    """How the workers' memory grew, as far as it was read at least twice of one."""
    faulted = _faulted(scope)
    readings = _of_workers(scope)
    each = [
        growth
        for pid in dict.fromkeys(integer(readings, "pid").tolist())
        if (growth := _of_process(readings[readings["pid"] == pid], faulted.get(pid, np.inf)))
    ]
    if not each:
        return NOTHING
    copied, shared, allocated, per_s = max(each, key=lambda growth: growth[0] + growth[2])
    available = number(scope.machine, "available_bytes")
    available = available[available >= 0]
    return MemoryGrowth(
        copied_bytes=copied,
        shared_bytes=shared,
        allocated_bytes=allocated,
        per_s=per_s * max(scope.num_workers, 1) * max(len(scope.ranks), 1),
        available_bytes=float(available[-1]) if available.size else float("nan"),
    )


def _of_workers(scope: Scope) -> pd.DataFrame:
    """Readings of workers by time: pid, time, rss, private, shared; a worker's own come first."""
    memory, own = scope.memory, scope.resources
    outside = pd.DataFrame(
        {
            "pid": integer(memory, "pid"),
            "time": number(memory, "time_ns"),
            **{name: number(memory, name) for name in ("rss", "private", "shared")},
        }
    )[integer(memory, "worker") >= 0]
    pss, rss = number(own, "pss"), number(own, "rss")
    # Just after the fork all processes share about the same pages.
    sharers = max(scope.num_workers, 1) + 1
    private = np.maximum(sharers * pss - rss, 0.0) / (sharers - 1)
    inside = pd.DataFrame(
        {
            "pid": integer(own, "pid"),
            "time": number(own, "time_ns"),
            "rss": rss,
            "private": private,
            "shared": np.nan,
        }
    )[(integer(own, "worker") >= 0) & (pss > 0)]
    inside = inside.sort_values("time").drop_duplicates("pid")
    outside = outside[outside["pid"].isin(inside["pid"])]
    return pd.concat([inside, outside], ignore_index=True).sort_values("time", kind="stable")


def _faulted(scope: Scope) -> dict[int, float]:
    """Bytes of the pages that each process touched anew while it made batches, where known.

    What the main process copies after the fork, as it writes to a model's weights, is its own.
    """
    if scope.partial:
        return {}
    pid, faults = integer(scope.batches, "pid"), number(scope.batches, "minor_faults")
    sums = pd.Series(faults * mmap.PAGESIZE).groupby(pid).sum(min_count=1).dropna()
    return dict(zip(integer(sums.reset_index(), "index").tolist(), sums.tolist(), strict=True))


def _of_process(readings: pd.DataFrame, faulted: float) -> tuple[float, float, float, float] | None:
    """(copied, still shared, allocated, allocated per second) bytes of one worker."""
    if len(readings) < 2:
        return None
    rss, private, shared = (number(readings, name) for name in ("rss", "private", "shared"))
    allocated = max(float(rss[-1] - rss[0]), 0.0)
    copied = min(max(float(private[-1] - private[0]) - allocated, 0.0), faulted)
    shared = shared[np.isfinite(shared)]
    left = float(shared[-1]) if shared.size else 0.0
    return copied, left, allocated, _rate(number(readings, "time"), rss)


def _rate(times: Floats, rss: Floats) -> float:
    """Bytes a second by which a process still grows; 0.0 unless it grew all the time."""
    if len(times) < _LEAST_READINGS:
        return 0.0
    middle = float(np.interp((times[0] + times[-1]) / 2, times, rss))
    early, late = middle - float(rss[0]), float(rss[-1]) - middle
    if early + late < _LEAST_ALLOCATED or late < _STEADY * early or early < _STEADY * late:
        return 0.0
    return late / float(times[-1] - times[0]) * 2e9
