"""Times a block of consecutive batches of a candidate."""

from __future__ import annotations

import os
import time

from ..loading import batch_contents
from ..processes import worker_processes
from ..processes.watchdog import CandidateError
from ..trial_requests import SLOW_BATCHES, TrialBlock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from ..processes.watchdog import Watchdog
    from ..trial_requests import Measure

    class Candidate(Protocol):
        """A loader that is iterated here or in a child."""

        loader: Any
        usage: worker_processes.Usage

        def take(self, watchdog: Watchdog) -> tuple[Any, float, float]: ...
        def pids(self) -> list[int]: ...
        def samples(self, batch: Any) -> int: ...


_LOOKING = 0.05  # largest fraction of the time for examining batches


def measure(
    loading: Candidate,
    watchdog: Watchdog,
    request: Measure,
    step: Callable[[Any], object] | None,
) -> TrialBlock:
    """Measure a block of `loading`, with `step` after each batch. Raises CandidateError.

    No batch may take longer than the limit of `watchdog`. Workers continue while this thread works
    between their batches, so that time counts as waiting.
    """
    block = _Block(loading, watchdog, request, step)
    block.discard_ready()
    usage = loading.usage
    usage.reset()
    before = time.perf_counter()
    usage.start(loading.pids())
    block.time_batches(time.perf_counter() - before)
    usage.add()
    worker_bytes = max(worker_processes.private_bytes(pid) for pid in loading.pids())
    main_bytes = worker_processes.resident_bytes(os.getpid())
    worker_cpu_s, queued_s, read_bytes = usage.cpu_s, usage.queued_s, usage.read_bytes
    if loading.loader.num_workers:
        block.examine_further()
    return TrialBlock(
        waits_s=tuple(block.waits_s),
        steps_s=tuple(block.steps_s),
        sizes=tuple(block.sizes),
        worker_cpu_s=worker_cpu_s,
        worker_queued_s=queued_s,
        main_cpu_s=block.main_cpu_s,
        worker_bytes=worker_bytes,
        main_bytes=main_bytes,
        read_bytes=read_bytes,
        **block.looks.largest,
    )


class _Block:
    """A block that is being measured, and the times of its batches so far."""

    def __init__(
        self,
        loading: Candidate,
        watchdog: Watchdog,
        request: Measure,
        step: Callable[[Any], object] | None,
    ) -> None:
        self._loading, self._watchdog, self._request, self._step = loading, watchdog, request, step
        self._workers = loading.loader.num_workers
        self._burst = max(self._workers, 1)
        # See lotus.tune.search.trials.trial_rates.rate.
        self._uncounted = 1 if self._workers and step is not None else 0
        self._began = time.perf_counter()
        self.waits_s: list[float] = []
        self.steps_s: list[float] = []
        self.sizes: list[int] = []
        self.main_cpu_s = self._total_s = 0.0
        self.looks = _Looks()
        # The last batch, which is in memory while that is read, as it is in a training loop.
        self._batch: Any = None

    def _late(self) -> bool:
        return time.perf_counter() - self._began > self._watchdog.limit_s

    def _slow(self) -> bool:
        slow_s = self._request.slow_s
        return slow_s is not None and time.perf_counter() - self._began > slow_s

    def _enough(self) -> bool:
        counted = len(self.waits_s) - self._uncounted
        if counted >= SLOW_BATCHES and counted % self._burst == 0 and self._slow():
            return True
        request = self._request
        return self._total_s >= request.seconds and len(self.waits_s) >= request.least

    def discard_ready(self) -> None:
        """Take the batches that may lie ready, fewer of a slow loader. Raises CandidateError."""
        discard = self._request.discard or 0
        for done in range(discard):
            if self._late():
                raise CandidateError(
                    f"after {self._watchdog.limit_s:g} s it had given {done} of the {discard} "
                    "batches that may lie ready"
                )
            # Within a burst, the rest of it lies ready.
            if done % self._burst == 0 and self._slow():
                break
            self._loading.take(self._watchdog)

    def time_batches(self, beside_s: float) -> None:
        """Time batches and steps; workers had `beside_s` seconds for the first batch already."""
        while not self._enough() and not (self.waits_s and self._late()):
            self._batch, wait_s, cpu_s = self._loading.take(self._watchdog)
            before = time.perf_counter()
            self.main_cpu_s += cpu_s
            self.sizes.append(self._loading.samples(self._batch))
            beside_s += time.perf_counter() - before
            if self._workers:  # else the workers would get this time for free
                wait_s += beside_s
            elif self.looks.due(self._total_s):  # before the step, as it may change the batch
                self.looks.look(self._batch)
            self.waits_s.append(wait_s)
            beside_s = 0.0
            self.steps_s.append(self._time_step())
            self._total_s += self.waits_s[-1] + self.steps_s[-1]

    def _time_step(self) -> float:
        if self._step is None:
            return 0.0
        before = time.perf_counter()
        with self._watchdog.off():
            self._step(self._batch)
        return time.perf_counter() - before

    def examine_further(self) -> None:
        """Examine batches after those that are timed, of a loader with workers."""
        while self.looks.due(self._total_s):
            before = time.perf_counter()
            self._batch, _, _ = self._loading.take(self._watchdog)
            self.looks.look(self._batch, before)


class _Looks:
    """Examines some of the batches, for a fraction of the time."""

    def __init__(self) -> None:
        self.largest: dict[str, int] = {}  # largest value of each of `batch_contents.measures`
        self._took_s = 0.0

    def due(self, measured_s: float) -> bool:
        """Return whether to examine another batch after `measured_s` seconds of timing."""
        return not self.largest or self._took_s <= _LOOKING * measured_s

    def look(self, batch: Any, began: float | None = None) -> None:
        """Examine a batch; `began` is when taking it began, if that counts as well."""
        before = time.perf_counter() if began is None else began
        sizes = batch_contents.measures(batch)
        self.largest = {
            name: max(value, self.largest.get(name, 0)) for name, value in sizes.items()
        }
        self._took_s += time.perf_counter() - before
