"""The usual duration of a sample in each worker."""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.batches.components import first_of_process
from lotus.analysis.common.columns import (
    BatchPlaces,
    flag,
    float_column,
    int_column,
    starts_of_runs,
    stored,
)
from lotus.analysis.common.durations import NONE, Durations
from lotus.analysis.common.scope import Scope
from lotus.common.numbers.array_types import Bools, Floats, Ints

# With so many batches, a worker's own median counts: one that is always slow has no slow batch.
_ENOUGH = 4
# A loader with more samples has medians from histograms, however few each worker made.
EXACT_SAMPLES = 1 << 22
_PIDS = 1 << 22


@dataclass(frozen=True)
class UsualDurations:
    """Medians in nanoseconds; by rank and worker, as `_pairs` has them."""

    overall: float  # of all samples; NaN of none
    own: dict[int, float]  # of a worker's samples, or of all where it made few batches
    later: dict[int, float]  # of a worker's samples but those of first batches of processes
    usable: int  # samples that `later` is of
    error: float  # bound of a median's distance from the exact one, as a share of it

    def usual(self, samples: pd.DataFrame) -> Floats:
        """Return the median sample of each sample's worker; of all, if it made few batches."""
        return _spread(samples, self.own)

    def typical(self, samples: pd.DataFrame) -> Floats:
        """Return the median of each sample's worker without first batches; NaN: there is none."""
        return _spread(samples, self.later)


def sample_durations(samples: pd.DataFrame) -> Floats:
    """Return the nanoseconds of each sample; NaN of those that were fetched many at once."""
    return np.where(flag(samples, "many"), np.nan, float_column(samples, "duration_ns"))


def usual_durations(scope: Scope) -> UsualDurations:
    """Return the usual durations of a loader, from one pass over its samples."""
    return scope.fetched.once("usual durations", lambda: _measured(scope))


def _measured(scope: Scope) -> UsualDurations:
    places, first = BatchPlaces(scope.batches), first_of_process(scope.batches, scope.workers)
    few = scope.fetched.count <= EXACT_SAMPLES
    later: dict[int, Durations] = defaultdict(lambda: NONE)
    rest: dict[int, Durations] = defaultdict(lambda: NONE)
    for samples in scope.fetched.times():
        duration, row = sample_durations(samples), places.rows(samples)
        usable = is_usable(row, duration, first)
        for name, mine in _by_worker(samples):
            for part, kept in ((later, usable[mine]), (rest, ~usable[mine])):
                more = Durations.of(duration[mine][kept])
                part[name] += more if few else more.binned()
    names = {*later, *rest}
    whole = {name: later[name] + rest[name] for name in names}
    overall = sum(whole.values(), NONE)
    made = _batches_made(scope.fetched.sums)
    usual = {
        name: whole[name].median if made.get(name, 0) >= _ENOUGH else overall.median
        for name in names
    }
    return UsualDurations(
        overall=overall.median,
        own={name: float(np.fmax(took, 1.0)) for name, took in usual.items()},
        later={name: later[name].median for name in names},
        usable=sum(later[name].count for name in names),
        error=max((took.error for took in (overall, *whole.values())), default=0.0),
    )


def is_usable(row: Ints, duration: Floats, first: Bools) -> Bools:
    """Return which samples have a typical time: those in first batches of processes do not."""
    measured: Bools = (row >= 0) & ~np.isnan(duration)
    return measured & ~first[np.maximum(row, 0)] if len(first) else measured


def _pairs(frame: pd.DataFrame) -> Ints:
    return int_column(frame, "rank") * _PIDS + int_column(frame, "worker")


def _by_worker(samples: pd.DataFrame) -> list[tuple[int, Ints | slice]]:
    """Return for each rank and worker its number and the places of its samples."""
    if not len(samples):
        return []
    first = starts_of_runs([stored(samples, "rank"), stored(samples, "worker")])
    if len(first) == 1:  # the usual case
        return [(int(_pairs(samples[:1])[0]), slice(None))]
    known, place = np.unique(_pairs(samples), return_inverse=True)
    order = np.argsort(place.reshape(-1), kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(place.reshape(-1)))[:-1])
    return list(zip(known.tolist(), parts, strict=True))


def _spread(samples: pd.DataFrame, by_worker: dict[int, float]) -> Floats:
    result = np.full(len(samples), np.nan)
    for name, mine in _by_worker(samples):
        result[mine] = by_worker.get(name, np.nan)
    return result


def _batches_made(sums: pd.DataFrame) -> dict[int, int]:
    """Return the number of different batches that each worker has samples of."""
    batch = int_column(sums, "epoch") * _PIDS + int_column(sums, "batch")
    frame = pd.DataFrame({"worker": _pairs(sums), "batch": batch})
    counts = frame.groupby("worker")["batch"].nunique()
    return dict(zip(counts.index.tolist(), counts.tolist(), strict=True))
