"""Times the program's own batches and steps while it trains on for a while."""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod

from ..observation.observer import KEY, clock, samples_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..candidates.trial_requests import TrainedBatches


class TimedTraining(ABC):
    """Times batches and steps until there are `batches` of them or `seconds` are over.

    Subclasses say with `counts` which batches are timed, and what else they do to the program.
    """

    # Returns a batch that the program gets in place of the iterator's next one.
    replacement: Callable[[], tuple[Any]] | None = None

    def __init__(self, loader: Any, iterator: Any) -> None:
        self.loader = loader
        self.iterator = weakref.ref(iterator)  # the program's latest iterator of this loader
        self.in_next = 0  # the thread that is inside `next`
        self._pid = os.getpid()

    def begin(self, batches: int, discard: int, seconds: float) -> None:
        """Begin to count."""
        self.over = False  # whether the epoch has ended or was left
        self.waits: list[float] = []
        self.steps: list[float] = []  # one shorter than the waits during a step
        self.sizes: list[int] = []
        self.startup_s: float | None = None  # the wait for the first batch, if that is timed
        self.passed = 0  # batches of all kinds
        self.refused = ""
        self._batches, self._discard = batches, discard
        self._until = clock() + seconds
        self._returned: float | None = None

    def epoch_begins(self, loader: Any, iterator: Any) -> None:
        """Handle the start of an epoch, for which the program may have left the observed one.

        In that case the program pauses at the first batch of the new epoch, because the setting of
        a loader cannot change inside `iter`.
        """
        if self.in_next == threading.get_ident():
            return  # the successor in this epoch, or a loader inside the data set
        if loader is self.loader:
            self.iterator = weakref.ref(iterator)
        elif self.iterator() is not None and clock() < self._until:
            return
        self.over, self._returned = True, None  # the time after an epoch is no step
        iterator.__dict__[KEY] = self

    def epoch_ended(self) -> None:
        """Handle the end of the epoch: there are no more batches."""
        self.over = True

    def next_called(self) -> None:
        """The program calls `next`: its step is over."""
        if self._returned is not None:
            self.steps.append(clock() - self._returned)
            self._returned = None

    def enough(self) -> bool:
        """Return whether enough batches were counted, the time is up, or the epoch is over."""
        if self._pid != os.getpid():
            return False  # forked: lotus communicates with the parent
        return self.over or len(self.steps) >= self._batches or clock() >= self._until

    @abstractmethod
    def fetch_begins(self) -> None:
        """The program's call of `next` begins to do its work."""

    @abstractmethod
    def counts(self, wait_s: float) -> bool:
        """Return whether the batch that was just received, after `wait_s`, is timed."""

    def batch_received(self, start: float, now: float, batch: Any) -> None:
        """Note a batch, for which `next` was called at `start` and returned at `now` (seconds)."""
        self.passed += 1
        if self.counts(now - start):
            self.waits.append(now - start)
            self.sizes.append(samples_in(batch, self.loader))
            self._returned = clock()

    def reply(self) -> TrainedBatches:
        """Return the batches of complete steps."""
        from ..candidates.trial_requests import TrainedBatches

        count = len(self.steps)
        return TrainedBatches(
            waits_s=tuple(self.waits[:count]),
            steps_s=tuple(self.steps),
            sizes=tuple(self.sizes[:count]),
            startup_s=self.startup_s,
            passed=self.passed,
            over=self.over,
            refused=self.refused,
        )

    @abstractmethod
    def release_workers(self, begins: Any = None) -> None:
        """Stop to act on the program."""
