"""Times training with a setting, to validate the result of trials."""

from __future__ import annotations

import operator
import os
import sys
import threading
import weakref
from functools import partial

from ..apply import epoch_handover
from .observer import KEY, clock, samples_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .candidates.trial_requests import Train, TrainedBatches


class _Iterator(weakref.ref):  # type: ignore[type-arg]
    """A reference to an iterator; puts torch's threads back where the program drops the iterator.

    No function of Python does so: the exception of a signal handler would be lost in it.
    """

    put_back: Callable[[], object]


class LiveValidation:
    """Times the program's batches and steps after a setting was applied in the middle of an epoch.

    It does not count the batches that the iterator had in flight, the first batch after them, which
    includes the start of the workers, and `discard` more, which were made meanwhile.

    The setting's `torch_threads` are set when its iterator is made (apply/settings_applier.py), and
    put back here at the end, unless the program has set others meanwhile.
    """

    def __init__(
        self, loader: Any, iterator: Any, request: Train, torch_threads: int | None
    ) -> None:
        self.loader = loader
        self.iterator = weakref.ref(iterator)  # the program's latest iterator of this loader
        self.over = False  # whether the epoch has ended or was left
        self.waits: list[float] = []
        self.steps: list[float] = []  # one shorter than the waits during a step
        self.sizes: list[int] = []
        self.startup_s: float | None = None  # the wait for that first batch
        self.passed = 0  # batches of all kinds
        self.in_next = 0  # the thread that is inside `next`
        self._rest = iterator.__dict__[epoch_handover.KEY]
        self._batches, self._discard = request.batches, request.discard
        self._until = clock() + request.seconds
        self._returned: float | None = None
        self._pid = os.getpid()
        self._torch: Any = sys.modules["torch"]
        self._torch_threads, self._own_threads = torch_threads, self._torch.get_num_threads()
        self._watched: _Iterator | None = None
        if torch_threads is not None:
            self._watched = _Iterator(iterator, operator.methodcaller("put_back"))
            self._watched.put_back = partial(self._torch.set_num_threads, self._own_threads)
        iterator.__dict__[KEY] = self

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
        """Return the batches of complete steps."""
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
        """Put torch's threads back; no indices are withheld from the workers here."""
        self._watched = None
        if self._torch.get_num_threads() == self._torch_threads != self._own_threads:
            self._torch.set_num_threads(self._own_threads)
