"""Observes the program while it trains with a setting, to validate what trials have shown."""

from __future__ import annotations

import os
import threading
import weakref

from ..apply import epoch_handover
from .observer import KEY, clock, samples_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .candidates.trial_requests import Train, TrainedBatches


class LiveValidation:
    """Times the program's batches and steps from where a setting was put on, in mid-epoch.

    Not counted are the batches that its iterator had in flight, the first one after them, for which
    the program waits until workers have started, and `discard` more, which were made meanwhile.
    """

    def __init__(self, loader: Any, iterator: Any, request: Train) -> None:
        self.loader = loader
        self.iterator = weakref.ref(iterator)  # the program's last one of this loader
        self.over = False  # so is the epoch, or the program has left it
        self.waits: list[float] = []
        self.steps: list[float] = []  # one less than the waits while the last is not over
        self.sizes: list[int] = []
        self.startup_s: float | None = None  # that first batch's wait
        self.passed = 0  # batches of all kinds
        self.in_next = 0  # the thread whose call of `next` is under way
        self._rest = iterator.__dict__[epoch_handover.KEY]
        self._batches, self._discard = request.batches, request.discard
        self._until = clock() + request.seconds
        self._returned: float | None = None
        self._pid = os.getpid()
        iterator.__dict__[KEY] = self

    def epoch_begins(self, loader: Any, iterator: Any) -> None:
        """An epoch of some loader begins: the program may have left the observed epoch for it.

        If so, the program is stopped at the first batch: in `iter` the loader could not be given
        another setting.
        """
        if self.in_next == threading.get_ident():
            return  # what gives the rest of this epoch, or a loader inside the data set
        if loader is self.loader:
            self.iterator = weakref.ref(iterator)
        elif self.iterator() is not None and clock() < self._until:
            return
        self.over, self._returned = True, None  # what comes after an epoch is no step
        iterator.__dict__[KEY] = self

    def next_called(self) -> None:
        """The program calls `next`: its step is over."""
        if self._returned is not None:
            self.steps.append(clock() - self._returned)
            self._returned = None

    def enough(self) -> bool:
        """Whether enough batches were counted, the time has passed, or the epoch is over."""
        if self._pid != os.getpid():
            return False  # forked: lotus listens to the other one
        return self.over or len(self.steps) >= self._batches or clock() >= self._until

    def fetch_begins(self) -> None:
        """The program's call of `next` begins to do its work."""

    def batch_received(self, start: float, now: float, batch: Any) -> None:
        """It got a batch, `next` having been called at `start` and returned at `now`."""
        self.passed += 1
        if self._rest.successor is None:
            return
        if self.startup_s is None:
            self.startup_s = now - start
        elif self._discard:
            self._discard -= 1
        else:
            self.waits.append(now - start)
            self.sizes.append(samples_in(batch, self.loader))
            self._returned = clock()

    def reply(self) -> TrainedBatches:
        """The batches of complete steps."""
        from .candidates.trial_requests import TrainedBatches

        count = len(self.steps)
        return TrainedBatches(
            waits_s=tuple(self.waits[:count]),
            steps_s=tuple(self.steps),
            sizes=tuple(self.sizes[:count]),
            startup_s=self.startup_s,
            passed=self.passed,
            over=self.over,
            refused=self._rest.refused,
        )

    def release_workers(self, begins: Any = None) -> None:
        """Do nothing: no indices are kept back from the workers here."""
