"""Observes how long a program waits for its loader, trains and computes, batch by batch."""

from __future__ import annotations

import time

from ..candidates.loading import batch_contents, file_offsets
from .quiet_steps import Quiet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

KEY = "_lotus_watch"  # attribute of an observed iterator
clock = time.perf_counter


class LoaderObserver:
    """Records how the program uses a loader."""

    replacement = None  # it gets its own batches

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.waits: list[float] = []
        self.steps: list[float] = []  # one shorter than the others during a step
        self.cpu: list[float] = []
        self.sizes: list[int] = []
        self.startup_s: float | None = None
        # The shortest start of a later epoch: the first also imports, and opens files anew.
        self.later_startup_s: float | None = None
        self._begins = False  # whether the epoch has not given a batch yet
        self.loop_s: float | None = None  # of the last epoch that ended, from `iter()`
        self.in_next = 0  # the thread that is inside `next`
        self.began = 0.0  # time of this epoch's `iter()`
        self.first = 0.0  # when the very first batch arrived
        # Wall time, CPU time and that of this thread when the last batch was returned.
        self.returned: tuple[float, float, float] | None = None
        self.helpers_s = 0.0  # CPU time of other threads in the steps
        self.quiet: Quiet | None = None  # current or finished
        # Effects of fetches on this process, if it has no workers.
        self.fetching = file_offsets.Fetching() if not loader.num_workers else None

    def begin(self, start: float) -> None:
        """Begin an epoch; drop the last step of the previous one, which has no end."""
        self.returned = None
        self.began, self._begins = start, True
        for done in (self.waits, self.sizes):
            del done[len(self.steps) :]

    def ended(self) -> int:
        """End an epoch; return the number of observed steps."""
        self.loop_s = clock() - self.began
        return len(self.steps)

    def next_called(self) -> None:
        """The program calls `next`."""
        if self.returned is not None:
            now, cpu, own = _times()
            to = self.quiet if self.quiet is not None and self.quiet.on else self
            to.steps.append(now - self.returned[0])
            to.cpu.append(cpu - self.returned[1])
            self.helpers_s += max(cpu - self.returned[1] - (own - self.returned[2]), 0.0)
            self.returned = None

    def quieter(self, iterator: Any) -> bool:
        """Return whether the next step runs while all workers are idle."""
        if self.quiet is None:
            self.quiet = Quiet(iterator)
            return self.quiet.on
        return self.quiet.goes_on()

    def release_workers(self, begins: Any = None) -> None:
        """Pass withheld indices to the workers; `begins`: see `Quiet.end`."""
        if self.quiet is not None:
            self.quiet.end(begins)

    def fetch_begins(self) -> None:
        """The program's call of `next` begins to do its work."""
        if self.fetching is not None:
            self.fetching.begin()

    def batch_received(self, start: float, now: float, batch: Any) -> None:
        """Note a batch, for which `next` was called at `start` and returned at `now` (seconds)."""
        if not self.first:
            self.first = now
            self.startup_s = now - self.began
        elif self._begins:
            startup_s = now - self.began
            self.later_startup_s = min(startup_s, self.later_startup_s or startup_s)
        self._begins = False
        if self.quiet is not None and self.quiet.on:
            self.returned = _times()
            return
        self.waits.append(now - start)
        self.sizes.append(samples_in(batch, self.loader))
        if self.fetching is not None:
            self.fetching.finish(batch_contents.measures(batch)["batch_bytes"])
        self.returned = _times()


def _times() -> tuple[float, float, float]:
    return clock(), time.process_time(), time.thread_time()


def samples_in(batch: Any, loader: Any) -> int:
    """Return samples of a batch; one where the loader makes none."""
    size = loader.batch_size
    if size is None and loader.batch_sampler is None:
        return 1
    return batch_contents.samples(batch, size)
