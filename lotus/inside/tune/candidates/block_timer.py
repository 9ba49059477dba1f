"""Times a block of consecutive batches of a candidate."""

from __future__ import annotations

import os
import time

from . import batch_contents, worker_processes
from .trial_requests import SLOW_BATCHES, TrialBlock
from .watchdog import Failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from .trial_requests import Measure
    from .watchdog import Watchdog

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
    """Measure a block of `loading`, with `step` after each batch. Raises Failed.

    No batch may take longer than the limit of `watchdog`. Workers continue while this thread works
    between their batches, so that time counts as waiting.
    """
    discard = request.discard or 0
    workers = loading.loader.num_workers
    burst = max(workers, 1)
    uncounted = 1 if workers and step is not None else 0  # see lotus.tune.search.trial_rates.rate
    began = time.perf_counter()

    def late() -> bool:
        return time.perf_counter() - began > watchdog.limit_s

    def slow() -> bool:
        return request.slow_s is not None and time.perf_counter() - began > request.slow_s

    def enough() -> bool:
        counted = len(waits) - uncounted
        if counted >= SLOW_BATCHES and counted % burst == 0 and slow():
            return True
        return total_s >= request.seconds and len(waits) >= request.least

    for done in range(discard):
        if late():
            raise Failed(
                f"after {watchdog.limit_s:g} s it had given {done} of the {discard} batches that "
                "may lie ready"
            )
        # Within a burst, the rest of it lies ready.
        if done % burst == 0 and slow():
            break
        loading.take(watchdog)
    usage = loading.usage
    usage.reset()
    before = time.perf_counter()
    usage.start(loading.pids())
    beside_s = time.perf_counter() - before  # workers continue, here and below
    waits: list[float] = []
    steps: list[float] = []
    sizes: list[int] = []
    main_cpu_s = total_s = 0.0
    looks = _Looks()
    while not enough() and not (waits and late()):
        batch, wait_s, cpu_s = loading.take(watchdog)
        before = time.perf_counter()
        main_cpu_s += cpu_s
        sizes.append(loading.samples(batch))
        beside_s += time.perf_counter() - before
        if workers:  # else the workers would get this time for free
            wait_s += beside_s
        elif looks.due(total_s):  # before the step, as it may change the batch
            looks.look(batch)
        waits.append(wait_s)
        beside_s = 0.0
        before = time.perf_counter()
        if step is not None:
            with watchdog.off():
                step(batch)
        steps.append(time.perf_counter() - before if step is not None else 0.0)
        total_s += waits[-1] + steps[-1]
    usage.add()
    worker_bytes = max(worker_processes.private_bytes(pid) for pid in loading.pids())
    main_bytes = worker_processes.resident_bytes(os.getpid())
    worker_cpu_s, queued_s, read_bytes = usage.cpu_s, usage.queued_s, usage.read_bytes
    while workers and looks.due(total_s):  # of further batches, as those above are timed
        before = time.perf_counter()
        batch, _, _ = loading.take(watchdog)
        looks.look(batch, before)
    return TrialBlock(
        waits_s=tuple(waits),
        steps_s=tuple(steps),
        sizes=tuple(sizes),
        worker_cpu_s=worker_cpu_s,
        worker_queued_s=queued_s,
        main_cpu_s=main_cpu_s,
        worker_bytes=worker_bytes,
        main_bytes=main_bytes,
        read_bytes=read_bytes,
        **looks.largest,
    )


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
