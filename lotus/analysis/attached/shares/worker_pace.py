"""Finds slow workers of a sampled loop, by the rule for recorded loops."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.attached.evidence import phases
from lotus.analysis.batches.components import WORKER_TIMES, mostly_above
from lotus.analysis.common.columns import median, ratio
from lotus.common.numbers.array_types import Floats

_PIECE_NS = 500_000_000
_LEAST_PIECES = 8  # of the time: fewer do not tell a slow worker from a slow batch
MOST_HELD = 0.5  # of the making: beside longer waits for a core, the rest varies by chance


@dataclass(frozen=True)
class WorkerPace:
    """The time in which a worker made batches.

    `made`: nanoseconds in each piece of the time that was watched, without those in which it had no
    core; NaN where the worker was not there. `held`: the share of the making that it had none.
    """

    rank: int
    made: Floats
    held: float = 0.0

    @property
    def made_ns(self) -> float:
        """Nanoseconds in all pieces."""
        return float(np.nansum(self.made))

    def joined(self, other: "WorkerPace") -> "WorkerPace":
        """Return the pace of this worker and one of another epoch together."""
        made = np.where(np.isnan(self.made), other.made, self.made + np.nan_to_num(other.made))
        return WorkerPace(self.rank, made, max(self.held, other.held))


@dataclass(frozen=True)
class SlowWorker:
    """The slowest worker of a rank, with its time and the usual time of the others."""

    place: int
    rank: int
    own_ns: float
    others_ns: float

    @property
    def times(self) -> float:
        """Its time over that of the others; in order, all workers make equally many batches."""
        return ratio(self.own_ns, self.others_ns)


def pace_of(
    samples: pd.DataFrame, looks: pd.DataFrame, span: tuple[int, int], rank: int
) -> WorkerPace:
    """Return the pace of one worker, from the samples and looks of its main thread.

    `span`: the first and the last nanosecond that was watched.
    """
    first, last = span
    count = (last - first) // _PIECE_NS + 1
    piece = ((samples["time_ns"].to_numpy(np.int64) - first) // _PIECE_NS).clip(0, count - 1)
    making = samples["phase"].isin(phases.MAKING).to_numpy()
    weight = samples["weight_ns"].to_numpy(np.float64) * making
    mine = looks[looks["phase"].isin(phases.MAKING)]
    held = float(np.nan_to_num(ratio(float(mine["delay_ns"].sum()), float(mine["wall_ns"].sum()))))
    made = np.bincount(piece, weight, count) * (1.0 - min(held, 1.0))
    there = np.bincount(piece, minlength=count) > 0
    return WorkerPace(rank, np.where(there, made, np.nan), held)


def slow_worker(paces: Mapping[int, WorkerPace]) -> SlowWorker | None:
    """Return the slowest of the slow workers; None if there are none. `paces` are by place.

    A worker is slow if it takes 1.5 times as long as the other workers of its rank usually do, in
    all and in most pieces of the time; at most half of a rank's workers are slow. No worker of a
    rank is called slow if one of them had no core for most of that time.
    """
    slow: list[SlowWorker] = []
    for rank in sorted({pace.rank for pace in paces.values()}):
        mine = {place: pace for place, pace in paces.items() if pace.rank == rank}
        if max(pace.held for pace in mine.values()) > MOST_HELD:
            continue
        each = [found for place in mine if (found := _compared(mine, place))]
        slow += each if len(each) <= len(mine) / 2 else []
    return max(slow, key=lambda found: found.times, default=None)


def _compared(paces: Mapping[int, WorkerPace], place: int) -> SlowWorker | None:
    """Compare a worker with the others of its rank; None if it is not slow."""
    pace = paces[place]
    others = [other for each, other in paces.items() if each != place]
    typical = median(np.array([other.made_ns for other in others]))
    found = SlowWorker(place, pace.rank, pace.made_ns, typical)
    own = pace.made[~np.isnan(pace.made)]
    theirs = np.concatenate([other.made for other in others]) if others else own[:0]
    theirs = theirs[~np.isnan(theirs)]
    if min(len(own), len(theirs)) < _LEAST_PIECES or not found.times >= WORKER_TIMES:
        return None
    return found if mostly_above(own, theirs) else None
