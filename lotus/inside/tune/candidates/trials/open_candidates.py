"""Candidates that are open: with workers in this process, without workers in a forked child."""

from __future__ import annotations

import os
import pickle
import time
from dataclasses import replace
from functools import partial
from multiprocessing import connection

from ..loading.candidate_loader import Loading
from ..processes.forked_child import Forked
from ..processes.watchdog import Watchdog, end_words
from ..processes.worker_processes import Usage, resident_bytes
from ..trial_requests import Opened, TrialBlock
from . import block_timer
from .step_emulator import StepEmulator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from ..trial_requests import Measure, Open

    _Step = StepEmulator | Callable[[Any], object] | None

BATCH = "a batch"
OPENING = "its start, with the first batch,"
# The child itself gives up earlier, as long as it runs Python code.
_MORE_S = 5.0
_DYING_S, _TELLING_S, _PAUSE_S = 0.5, 5.0, 0.002


class LocalCandidate:
    """A candidate that is iterated in this process, which starts its workers."""

    def __init__(self, loading: Loading) -> None:
        self._loading = loading

    def open(self, request: Open) -> Opened:
        """Start it and take its first batch."""
        watchdog = Watchdog(request.limit_s, OPENING)
        before = time.perf_counter()
        iter_s = watchdog.run(partial(self._loading.first, watchdog))
        first_batch_s = time.perf_counter() - before
        return Opened(
            first_batch_s, iter_s, tuple(worker.pid for worker in self._loading.workers())
        )

    def measure(self, request: Measure, step: _Step) -> TrialBlock:
        """Measure a block; `step` follows each batch."""
        watchdog = Watchdog(request.limit_s, BATCH)
        self._loading.limit(watchdog)
        function = step.run if isinstance(step, StepEmulator) else step
        measure = partial(block_timer.measure, self._loading, watchdog, request, function)
        return watchdog.run(measure)

    def take(self, limit_s: float) -> tuple[float, int, float, float]:
        """One batch: seconds in `next`, samples, CPU seconds, seconds without a core."""
        watchdog = Watchdog(limit_s, BATCH)
        usage = self._loading.usage
        usage.reset()
        self._batch, wait_s, _ = watchdog.run(partial(self._loading.take, watchdog))
        return wait_s, self._loading.samples(self._batch), usage.cpu_s, usage.queued_s

    def last(self) -> bytes:
        return pickle.dumps(self._batch)

    def dead(self, error: BaseException) -> str:
        """Return how a dead worker ended; "" if none is dead."""
        workers = self._loading.workers()
        cut = isinstance(error, (ConnectionError, EOFError)) and "Caught " not in str(error)
        if workers and (cut or isinstance(error, OSError)):
            # Its connection breaks shortly before it exits, or earlier if it reports an error.
            within_s = _TELLING_S if cut else _DYING_S
            ready = connection.wait([worker.sentinel for worker in workers], within_s)
            until = time.monotonic() + _DYING_S  # its descriptors close shortly before it exits
            for worker in workers:
                while (
                    worker.sentinel in ready
                    and worker.exitcode is None
                    and time.monotonic() < until
                ):
                    time.sleep(_PAUSE_S)
        codes = [worker.exitcode for worker in workers]
        causes = (end_words(code, self._loading.iterable) for code in codes if code is not None)
        return next((text for text in causes if text), "")

    def shut(self, patience_s: float) -> None:
        self._loading.shut(patience_s)


class _ReportedUsage(Usage):
    """The usage that the child reports."""

    def start(self, pids: Iterable[int]) -> None:
        pass

    def add(self, often: bool = False) -> None:
        pass


class ForkedCandidate:
    """A candidate without workers: its data set runs in a child."""

    def __init__(self, loading: Loading) -> None:
        candidate = LocalCandidate(loading)

        def call(method: tuple[str, tuple[Any, ...]]) -> Any:
            name, arguments = method
            return getattr(candidate, name)(*arguments)

        self._child = Forked(call)
        # The attributes of a Loading that `block_timer.measure` uses:
        self.loader = loading.loader
        self.usage: Usage = _ReportedUsage()
        self._samples = 0
        self._batch: Any = None

    def open(self, request: Open) -> Opened:
        """Start it and take its first batch."""
        opened: Opened = self._call(request.limit_s, OPENING, "open", request)
        return replace(opened, workers=())

    def measure(self, request: Measure, step: _Step) -> TrialBlock:
        """Measure a block; `step` follows each batch."""
        block: TrialBlock
        if step is None or isinstance(step, StepEmulator):
            # Each batch and all of them are limited, but the last batch may begin just before the
            # limit.
            within_s = 2 * request.limit_s
            block = self._call(within_s, "a block of batches", "measure", request, step)
        else:  # a function of the program runs here, on a batch of the child
            block = block_timer.measure(self, Watchdog(request.limit_s, BATCH), request, step)
        return replace(block, main_cpu_s=0.0, main_bytes=resident_bytes(os.getpid()))

    def take(self, watchdog: Watchdog) -> tuple[Any, float, float]:
        """Take a batch as `Loading.take`; it always returns the first one."""
        limit_s = watchdog.limit_s
        wait_s, self._samples, cpu_s, queued_s = self._call(limit_s, BATCH, "take", limit_s)
        self.usage.cpu_s += cpu_s
        self.usage.queued_s += queued_s
        if self._batch is None:
            self._batch = pickle.loads(self._call(limit_s, "sending a batch", "last"))
        return self._batch, wait_s, 0.0

    def samples(self, batch: Any) -> int:
        return self._samples

    def pids(self) -> list[int]:
        return [self._child.pid]

    def dead(self, error: BaseException) -> str:
        return ""  # the failure already says so

    def shut(self, patience_s: float) -> None:
        self._child.end()

    def _call(self, within_s: float, what: str, method: str, *arguments: Any) -> Any:
        """Call a method of the child's LocalCandidate, which does `what`."""
        return self._child.ask((method, arguments), within_s + _MORE_S, what)
