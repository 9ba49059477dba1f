"""A stretch of the program's own training with a setting, which trials only stand in for."""

from __future__ import annotations

import os
import threading
import weakref

from . import going_on
from .watching import KEY, clock, samples_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Stretch:
    """Times the program's batches and steps from where a setting was put on, in mid-epoch.

    Not counted are the batches that its iterator had in flight, the first one after them, for which
    the program waits until workers have started, and `discard` more, which were made meanwhile.
    """

    def __init__(self, loader: Any, iterator: Any, limits: dict[str, Any]) -> None:
        self.loader = loader
        self.iterator = weakref.ref(iterator)  # the program's last one of this loader
        self.over = False  # so is the epoch, or the program has left it
        self.waits: list[float] = []
        self.steps: list[float] = []  # one less than the waits while the last is not over
        self.sizes: list[int] = []
        self.startup_s: float | None = None  # that first batch's wait
        self.passed = 0  # batches of all kinds
        self.asking = 0  # the thread whose call of `next` is under way
        self._rest = iterator.__dict__[going_on.KEY]
        self._batches, self._discard = limits["batches"], limits["discard"]
        self._until = clock() + limits["seconds"]
        self._returned: float | None = None
        self._pid = os.getpid()
        iterator.__dict__[KEY] = self

    def begins(self, loader: Any, iterator: Any) -> None:
        """An epoch of some loader begins: the program may have left that of the stretch for it.

        Where it has, it is stopped at the first batch. In `iter` it could not be given another
        setting.
        """
        if self.asking == threading.get_ident():
            return  # what gives the rest of this epoch, or a loader inside the data set
        if loader is self.loader:
            self.iterator = weakref.ref(iterator)
        elif self.iterator() is not None and clock() < self._until:
            return
        self.over, self._returned = True, None  # what comes after an epoch is no step
        iterator.__dict__[KEY] = self

    def asked(self) -> None:
        """The program calls `next`: its step is over."""
        if self._returned is not None:
            self.steps.append(clock() - self._returned)
            self._returned = None

    def enough(self) -> bool:
        """Whether as much was seen as was to be, in batches or in time, or no more is to come."""
        if self._pid != os.getpid():
            return False  # forked: lotus listens to the other one
        return self.over or len(self.steps) >= self._batches or clock() >= self._until

    def fetches(self) -> None:
        """The program's call of `next` begins to do its work."""

    def took(self, start: float, now: float, batch: Any) -> None:
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

    def told(self) -> dict[str, Any]:
        """lotus.tune.trying.Stretch as a dict."""
        count = len(self.steps)
        return {
            "waits_s": self.waits[:count],
            "steps_s": self.steps,
            "sizes": self.sizes[:count],
            "startup_s": self.startup_s,
            "passed": self.passed,
            "refused": self._rest.refused,
            "over": self.over,
        }

    def workers_go_on(self, begins: Any = None) -> None:
        """Nothing is kept back from them."""
