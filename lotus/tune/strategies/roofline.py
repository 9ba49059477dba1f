"""The rate that a loader would reach if only its workers, the cores and the step limited it.

It is what a search expects before it has measured a setting; rate_model.py corrects it by what
trials measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lotus.settings.space import Observed, Setting
from lotus.tune.simulation import epoch_time
from lotus.tune.simulation.epoch_time import Pace
from lotus.tune.strategies.known_rate import KnownRate
from lotus.tune.strategies.problem import Problem

_CROWDED = 0.05  # exponent of the loss from more computing workers than cores
_START_S = 0.1  # assumed time to the first batch if no trial had workers
_LEAST_S = 1e-12


class Roofline:
    """Expected rates of settings, from the trial with the fewest workers.

    Trials whose workers had their threads limited come first: the CPU time of threads that fight
    says nothing about batches. Without a trial that observed the workers, only the number of cores
    counts; then the rates have no unit.
    """

    def __init__(self, problem: Problem, known: Sequence[KnownRate]) -> None:
        self._problem = problem
        seen = [(rate.setting, rate.observed) for rate in known if rate.observed is not None]
        self._seen: tuple[Setting, Observed] | None = min(
            seen,
            key=lambda pair: (
                pair[0].threads is None,
                pair[0].num_workers == 0,
                pair[0].num_workers,
                pair[0],
            ),
            default=None,
        )

    def log_rate(self, setting: Setting) -> float:
        """Return the natural logarithm of the expected rate over an epoch."""
        problem, workers = self._problem, setting.num_workers
        if self._seen is None:
            return math.log(min(max(workers, 1), problem.cores))
        own, seen = self._seen
        before = max(own.num_workers, 1)
        # A worker's time for a batch if it never waits for a core, and how many cores are wanted.
        fetch_s = max(seen.capacity_s * before - seen.queued_s, seen.cpu_s, _LEAST_S)
        crowd = max(workers * seen.cpu_s / fetch_s / problem.cores, 1.0)
        each_s = max(fetch_s / max(workers, 1), seen.cpu_s / problem.cores) * crowd**_CROWDED
        step_s, get_s = problem.step_s, seen.get_s if workers else 0.0
        if step_s and workers:
            shared_s = (seen.cpu_s + step_s * problem.step_cores) / problem.cores
            each_s = max(each_s, step_s + get_s, shared_s)
            each_s = max(each_s, self._stalling_s(setting, fetch_s, step_s + get_s))
        elif step_s:
            each_s += step_s
        taken_s = max(step_s + get_s, _LEAST_S)
        pace = Pace(workers, each_s, fetch_s * crowd, taken_s, step_s)
        first_s = end_s = 0.0
        if workers and not setting.persistent_workers:
            first_s, end_s = self._edges_s(own, seen, workers)
        return math.log(epoch_time.rate(pace, problem.samples, problem.batches, first_s, end_s))

    def _stalling_s(self, setting: Setting, fetch_s: float, taken_s: float) -> float:
        """Return seconds per batch if now and then a batch takes long, and the others wait for it.

        They are delivered in order, so a slow batch stalls the loop once those in flight before it
        are used up: workers and prefetching bridge that alike. Its duration and frequency are those
        of two kinds of batches, slow ones and others of no duration, that vary as the trial did.
        """
        assert self._seen is not None
        own, seen = self._seen
        squared = seen.variation**2 * max(own.num_workers, 1)  # of batches, not of whole bursts
        often, slow_s = 1.0 / (1.0 + squared), fetch_s * (1.0 + squared)
        workers, flying = setting.num_workers, setting.num_workers * (setting.prefetch_factor or 0)
        at_once = max(min(flying * often, workers), 1.0)  # slow batches that overlap
        return taken_s + often * max(slow_s - (flying - 1) * taken_s, 0.0) / at_once

    def _edges_s(self, own: Setting, seen: Observed, workers: int) -> tuple[float, float]:
        """Return seconds to the first batch, and for the end of so many workers."""
        if not own.num_workers:
            return _START_S, 0.0
        times = workers / own.num_workers
        first_s = max(seen.startup_s - seen.iter_s, 0.0) + seen.iter_s * times
        return first_s, seen.shutdown_s * times
