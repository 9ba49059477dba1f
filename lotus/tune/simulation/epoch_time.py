"""How long a whole epoch takes, by what a loader does in steady state and at the epoch's start.

A long epoch is its set-up and then its batches at the steady rate. A short one is not: workers
have made a batch each when the first one comes, and the last round takes as long as any other,
however few batches are left for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lotus.settings.space import Observed


@dataclass(frozen=True)
class Pace:
    """What a loader does, in seconds per batch. `each_s` alone is enough of a long epoch."""

    workers: int
    each_s: float  # in steady state, from one batch to the next, steps included
    fetch_s: float = 0.0  # a worker with a batch, where no one has to wait for a core
    taken_s: float = 0.0  # the least from one batch to the next: the step, and to take a batch
    step_s: float = 0.0  # the consumer's, after the last batch too

    def epoch_s(self, batches: int, first_s: float = 0.0, end_s: float = 0.0) -> float:
        """An epoch of so many batches, `first_s` from its start to its first batch.

        `first_s` 0: workers are there already (they persist), and make the first batches now.
        """
        workers = self.workers
        if workers == 0:
            return first_s + (batches - (first_s > 0)) * self.each_s
        left = max(batches - workers, 0)  # when each has made one
        taken = min(self.taken_s, self.each_s)
        if not first_s:
            alone = self.each_s <= 1.05 * taken  # the consumer decides, what workers can is hidden
            first_s = self.fetch_s
            if not alone:
                first_s = max(first_s, min(workers, batches) * self.each_s)
        made = max(left * self.each_s, math.ceil(left / workers) * self.fetch_s)
        last = min(self.step_s, self.each_s)
        return first_s + max(made, (batches - 1) * taken) + last + end_s


def observed_pace(workers: int, each_s: float, seen: Observed | None, step_s: float) -> Pace:
    """The pace of a loader of which a trial showed this much."""
    step_s = min(step_s, each_s)
    if seen is None or not workers:
        return Pace(workers, each_s, 0.0, step_s, step_s)
    fetch = seen.cpu_s
    if seen.capacity_s > 1.05 * seen.get_s:  # else workers idle, as the main process is slower
        fetch = max(seen.capacity_s * workers - seen.queued_s, 0.0)
    return Pace(workers, each_s, fetch, step_s + seen.get_s, step_s)


def rate(
    pace: Pace, samples: float, batches: int | None, first_s: float = 0.0, end_s: float = 0.0
) -> float:
    """Samples a second over an epoch of batches of so many samples; see `Pace.epoch_s`.

    Where the number of batches is not known, it is the rate in steady state.
    """
    if not pace.each_s > 0:
        return math.inf
    if not batches:
        return samples / pace.each_s
    return batches * samples / pace.epoch_s(batches, first_s, end_s)
