"""Computes the duration of an epoch from a loader's steady state and its start-up.

A long epoch takes its set-up time and then its batches at the steady rate. A short epoch differs:
when the first batch arrives, each worker has made one, and the last round takes as long as any
other, however few batches it has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lotus.settings.space import Observed


@dataclass(frozen=True)
class Pace:
    """A loader's times in seconds per batch. A long epoch needs `each_s` only."""

    workers: int
    each_s: float  # from one batch to the next in steady state, training step included
    fetch_s: float = 0.0  # a worker's time for a batch when cores are free
    taken_s: float = 0.0  # the least time between batches: the step, and taking a batch
    step_s: float = 0.0  # the training step, which also follows the last batch

    def epoch_s(self, batches: int, first_s: float = 0.0, end_s: float = 0.0) -> float:
        """Return the seconds of an epoch of so many batches.

        `first_s` is the time from its start to its first batch; 0 means that persistent workers
        exist already and start on the first batches now.
        """
        workers = self.workers
        if workers == 0:
            return first_s + (batches - (first_s > 0)) * self.each_s
        left = max(batches - workers, 0)  # after each worker has made one
        taken = min(self.taken_s, self.each_s)
        if not first_s:
            alone = self.each_s <= 1.05 * taken  # the step limits: the workers' rate is not known
            first_s = self.fetch_s
            if not alone:
                first_s = max(first_s, min(workers, batches) * self.each_s)
        made = max(left * self.each_s, math.ceil(left / workers) * self.fetch_s)
        last = min(self.step_s, self.each_s)
        return first_s + max(made, (batches - 1) * taken) + last + end_s


def observed_pace(workers: int, each_s: float, seen: Observed | None, step_s: float) -> Pace:
    """Return the pace of a loader, from what a trial observed of it."""
    step_s = min(step_s, each_s)
    if seen is None or not workers:
        return Pace(workers, each_s, 0.0, step_s, step_s)
    fetch = seen.cpu_s
    if seen.capacity_s > 1.05 * seen.get_s:  # else the main process is slower and workers idle
        fetch = max(seen.capacity_s * workers - seen.queued_s, 0.0)
    return Pace(workers, each_s, fetch, step_s + seen.get_s, step_s)


def rate(
    pace: Pace, samples: float, batches: int | None, first_s: float = 0.0, end_s: float = 0.0
) -> float:
    """Return samples per second over an epoch with `samples` a batch; see `Pace.epoch_s`.

    If the number of batches is not known, it is the rate in steady state.
    """
    if not pace.each_s > 0:
        return math.inf
    if not batches:
        return samples / pace.each_s
    return batches * samples / pace.epoch_s(batches, first_s, end_s)
