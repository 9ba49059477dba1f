"""Replays a DataLoader's prefetching: when batches are made and taken, for many cases at once.

As torch does it: batch n is made by worker n modulo the number of workers, once that worker is free
and batch n - workers x prefetch_factor has been taken; batches are taken in order, each as the
training step before it ends. Without workers the loop makes each batch itself.
"""

import math
from dataclasses import dataclass

import numpy as np

from lotus.common.numbers.array_types import Floats, Ints


@dataclass(frozen=True)
class Replay:
    """The times of a replay, (batches, cases), in the unit of the times that were given.

    The loop comes for a batch (`begin`), takes it (`taken`) and ends its step (`done`); `end`: the
    next batch may begin; `made`: the batch was made.
    """

    begin: Floats
    taken: Floats
    done: Floats
    end: Floats
    made: Floats

    @property
    def duration(self) -> Floats:
        """Time from the first batch's request to the end of the last step (cases,)."""
        return np.asarray(self.end[-1] - self.begin[0])

    @property
    def waits(self) -> Floats:
        """The loop's wait for each batch (batches, cases)."""
        return self.taken - self.begin


def replay(
    made: Floats,
    step: Floats,
    workers: Ints,
    prefetch: Ints,
    *,
    delivery: Floats | float = 0.0,
    begin: Floats | float = 0.0,
    collective: float | None = None,
) -> Replay:
    """Replay n batches in k cases.

    `made`, `step`, `delivery` (n, k): how long a worker takes for a batch, the training step after
    it, and the way from the worker to the loop. `workers`, `prefetch` (k,); 0 workers: the loop
    makes its batches. `begin` (most workers, k): when each worker can begin. `collective`: the
    cases are ranks of one job, which end each step together, and then take so long for a
    collective operation. Raises ValueError without a batch.
    """
    batches, cases = made.shape
    if not batches:
        raise ValueError("there must be a batch")
    every = np.arange(cases)
    # More workers than batches, or more batches ahead than there are, change nothing.
    alone, lanes = workers == 0, np.clip(workers, 1, batches)
    ahead = np.minimum(lanes * np.clip(prefetch, 1, batches), batches)
    free = np.zeros((int(lanes.max()), cases))
    free[:] = begin[: len(free)] if np.ndim(begin) == 2 else begin  # type: ignore[index]
    late = np.broadcast_to(np.asarray(delivery, np.float64), made.shape)
    latest = np.full((int(ahead.max()), cases), -math.inf)  # when the latest batches were taken
    now = np.zeros(cases)
    times = np.empty((5, batches, cases))
    for batch in range(batches):
        lane, place = batch % lanes, batch % ahead
        ready = np.maximum(free[lane, every], latest[place, every]) + made[batch]
        taken = np.where(alone, now + made[batch], np.maximum(ready + late[batch], now))
        free[lane, every] = ready
        latest[place, every] = taken
        done = taken + step[batch]
        end = done if collective is None else np.full(cases, done.max() + collective)
        times[:, batch] = now, taken, done, end, np.where(alone, taken, ready)
        now = end
    return Replay(*times)
