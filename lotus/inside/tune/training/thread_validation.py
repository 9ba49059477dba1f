"""Times training with another number of torch's threads, with the iterator that the program has."""

from __future__ import annotations

import sys
import threading
import weakref

from ..observation.observer import KEY, clock
from .program_threads import ProgramThreads
from .timed_training import TimedTraining

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ..candidates.trial_requests import Train

_PATIENCE_S = 10.0  # for which the program may do something else before its next epoch begins


class ThreadValidation(TimedTraining):
    """Times the program's batches and steps after torch got other threads in its process.

    For loaders whose own setting cannot change in the midst of an epoch (epoch_handover.py), such
    as those of iterable data sets. The next epochs of the loader count too, without the first batch
    of each. Not counted are the batches that were in flight, and `discard` more.
    """

    def __init__(
        self, loader: Any, iterator: Any, request: Train, torch_threads: int | None
    ) -> None:
        super().__init__(loader, iterator)
        in_flight = loader.num_workers * (loader.prefetch_factor or 0)
        self.begin(request.batches, request.discard + in_flight, request.seconds)
        self._others, self._between = torch_threads, False
        self._watch: threading.Timer | None = None
        self._observe(iterator)

    def watch(self, then: Callable[[ThreadValidation], object]) -> None:
        """Call `then` if it takes too long, in a thread: there may be no next epoch."""
        seconds = max(self._until - clock(), 0.0) + _PATIENCE_S
        self._watch = threading.Timer(seconds, then, [self])
        self._watch.daemon = True
        self._watch.start()

    def is_left(self) -> bool:
        """Return whether the program is in no epoch of the loader; this is then the end."""
        self.over = self._between or self.iterator() is None
        return self.over

    def _observe(self, iterator: Any) -> None:
        self._threads = ProgramThreads(iterator, self._others)
        if self._others is not None:
            sys.modules["torch"].set_num_threads(self._others)
        iterator.__dict__[KEY] = self

    def epoch_begins(self, loader: Any, iterator: Any) -> None:
        """Go on in the next epoch of the loader; if none comes, end with another loader's."""
        if self.in_next == threading.get_ident():
            return  # a loader inside the data set
        if loader is self.loader:
            self._between, self._returned, self._discard = False, None, max(self._discard, 1)
            self._threads.put_back()  # persistent workers keep their iterator
            self.iterator = weakref.ref(iterator)
            self._observe(iterator)
        elif clock() >= self._until + _PATIENCE_S:
            super().epoch_begins(loader, iterator)

    def epoch_ended(self) -> None:
        """Wait for the next epoch."""
        self._between, self._returned = True, None
        self._threads.put_back()

    def enough(self) -> bool:
        """Return whether enough was counted, and the program is in an epoch of the loader."""
        return self.over or (not self._between and super().enough())

    def fetch_begins(self) -> None:
        """Notice a number of threads that the program has set itself."""
        self._threads.look()

    def counts(self, wait_s: float) -> bool:
        """Return whether the batch that was just received is timed."""
        if self._discard:
            self._discard -= 1
            return False
        return True

    def release_workers(self, begins: Any = None) -> None:
        """Put torch's threads back; no indices are withheld from the workers here."""
        if self._watch is not None:
            self._watch.cancel()
        self._threads.put_back()
