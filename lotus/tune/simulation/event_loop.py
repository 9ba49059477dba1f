"""A small discrete-event kernel: processes are generators that yield what they wait for.

A process yields (place, amount, weight) and is resumed when it has had that: so many units of a
`Pool` that all its users share equally, so many nanoseconds of the `Loop` itself, or one item of a
`Queue` (which is what the yield returns). simpy has queues and timers but no processor sharing:
there each job that comes or goes would interrupt and re-time all others. Here a pool keeps one
virtual clock, the work that every unit of weight has received so far, so that a change costs one
heap operation however many jobs run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, Protocol

PENDING: Final = object()
_NEVER: Final = float("inf")


class Place(Protocol):
    """Something to wait for."""

    def admit(self, process: Process, amount: float, weight: float) -> Any:
        """What the process gets at once, or PENDING: then it is resumed later."""


Process = Generator[tuple[Place, float, float], Any, None]


class Loop:
    """The clock, in nanoseconds. As a place: a plain delay."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order = count()  # what is due at the same time happens in the order it was asked for
        self._timers: list[tuple[float, int, Process, Any]] = []
        self._pools: list[Pool] = []

    def pool(self, pace: Callable[[float], float], using: Callable[[float], float] = float) -> Pool:
        """Make a pool whose speed follows `pace`, by the demand for it."""
        made = Pool(self, pace, using)
        self._pools.append(made)
        return made

    def admit(self, process: Process, amount: float, weight: float) -> Any:
        """Let a process wait for `amount` nanoseconds."""
        if amount <= 0:
            return None
        self.later(amount, process)
        return PENDING

    def later(self, amount: float, process: Process, value: Any = None) -> None:
        """Resume the process with the value after so many nanoseconds."""
        heappush(self._timers, (self.now + amount, next(self.order), process, value))

    def resume(self, process: Process, value: Any = None) -> None:
        """Let the process run until it has to wait."""
        send = process.send
        try:
            while True:
                place, amount, weight = send(value)
                value = place.admit(process, amount, weight)
                if value is PENDING:
                    return
        except StopIteration:
            return

    def run(self) -> None:
        """Until nothing is due any more: every process has ended or waits for an empty queue."""
        timers, pools = self._timers, self._pools
        while True:
            due, source = (timers[0][0], None) if timers else (_NEVER, None)
            for pool in pools:
                if pool.due < due:
                    due, source = pool.due, pool
            if due == _NEVER:
                return
            self.now = due
            if source is None:
                _, _, process, value = heappop(timers)
                self.resume(process, value)
            else:
                self.resume(source.finish())


class Pool:
    """Something shared: with a demand of d, every unit of weight advances at pace(d) per ns, and
    using(d) of it are in use."""

    def __init__(
        self, loop: Loop, pace: Callable[[float], float], using: Callable[[float], float]
    ) -> None:
        self._loop, self._pace, self._using = loop, pace, using
        self._paces: dict[float, tuple[float, float]] = {}
        self._jobs: list[tuple[float, int, Process, float]] = []
        self._received = 0.0  # by each unit of weight since the beginning
        self._since = 0.0
        self._speed = self._in_use = 0.0
        self.demand = 0.0
        self.due = _NEVER
        self.used = self.wanted = 0.0  # integrals over time: of what was in use, of the demand

    def admit(self, process: Process, amount: float, weight: float) -> Any:
        """Let a process work `amount` units, at the pool's pace; without weight it only waits."""
        if amount <= 0:
            return None
        if weight <= 0:  # it does not need the pool, only the time
            return self._loop.admit(process, amount, weight)
        self.advance()
        loop = self._loop
        heappush(self._jobs, (self._received + amount, next(loop.order), process, weight))
        self.demand += weight
        self._set_pace()
        return PENDING

    def finish(self) -> Process:
        """Take out the job that is due now."""
        self.advance()
        received, _, process, weight = heappop(self._jobs)
        self._received = max(self._received, received)  # what rounding left over
        self.demand = self.demand - weight if self._jobs else 0.0
        self._set_pace()
        return process

    def advance(self) -> None:
        """Bring the integrals up to now."""
        passed = self._loop.now - self._since
        if passed > 0:
            self._received += passed * self._speed
            self.used += passed * self._in_use
            self.wanted += passed * self.demand
            self._since = self._loop.now

    def _set_pace(self) -> None:
        self._since = self._loop.now
        if not self._jobs:
            self.due = _NEVER
            self._in_use = 0.0
            return
        demand = self.demand
        known = self._paces.get(demand)
        if known is None:
            known = self._paces[demand] = self._pace(demand), self._using(demand)
        speed, self._in_use = known
        self._speed = speed
        left = self._jobs[0][0] - self._received
        self.due = self._loop.now + max(left, 0.0) / speed


class Queue:
    """First in, first out, without a limit; those who wait are served in their order."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._items: deque[Any] = deque()
        self._waiting: deque[Process] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Any) -> None:
        """Put an item, for whoever waits longest."""
        if self._waiting:
            # Not at once: who puts goes on first.
            self._loop.later(0.0, self._waiting.popleft(), item)
        else:
            self._items.append(item)

    def admit(self, process: Process, amount: float, weight: float) -> Any:
        """Let a process have the next item."""
        if self._items:
            return self._items.popleft()
        self._waiting.append(process)
        return PENDING
