"""A small discrete-event kernel: processes are generators that yield what they wait for.

A process yields (waitable, amount, weight) and is resumed when it has received that amount: units
of a `Pool` that its users share equally, nanoseconds of the `EventLoop`, or one item of a `Queue`,
which the yield returns.

simpy has queues and timers but no processor sharing: each job that starts or ends would interrupt
all others. Here a pool keeps one virtual clock, the work that each unit of weight has received so
far, so a change costs one heap operation regardless of the number of jobs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final, Protocol

PENDING: Final = object()
_NEVER: Final = float("inf")


class Waitable(Protocol):
    """Something to wait for."""

    def admit(self, process: Process, amount: float, weight: float) -> Any:
        """Return what the process gets at once, or PENDING if it is resumed later."""


Process = Generator[tuple[Waitable, float, float], Any, None]


class EventLoop:
    """The clock, in nanoseconds; waiting for it is a plain delay."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order = count()  # events due at the same time happen in the order of their requests
        self._timers: list[tuple[float, int, Process, Any]] = []
        self._pools: list[Pool] = []

    def pool(self, pace: Callable[[float], float], using: Callable[[float], float] = float) -> Pool:
        """Make a pool; `pace` and `using` map its demand to its speed and to the part in use."""
        made = Pool(self, pace, using)
        self._pools.append(made)
        return made

    def admit(self, process: Process, amount: float, weight: float) -> Any:
        """Make a process wait for `amount` nanoseconds."""
        if amount <= 0:
            return None
        self.later(amount, process)
        return PENDING

    def later(self, amount: float, process: Process, value: Any = None) -> None:
        """Resume a process with `value` after `amount` nanoseconds."""
        heappush(self._timers, (self.now + amount, next(self.order), process, value))

    def resume(self, process: Process, value: Any = None) -> None:
        """Run a process until it has to wait."""
        send = process.send
        try:
            while True:
                waitable, amount, weight = send(value)
                value = waitable.admit(process, amount, weight)
                if value is PENDING:
                    return
        except StopIteration:
            return

    def run(self) -> None:
        """Run until nothing is due: every process has ended or waits for an empty queue."""
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
    """A shared resource. At a demand of d each unit of weight advances by pace(d) per ns, and
    using(d) units are in use."""

    def __init__(
        self, loop: EventLoop, pace: Callable[[float], float], using: Callable[[float], float]
    ) -> None:
        self._loop, self._pace, self._using = loop, pace, using
        self._paces: dict[float, tuple[float, float]] = {}
        self._jobs: list[tuple[float, int, Process, float]] = []
        self._received = 0.0  # work that each unit of weight has received since the start
        self._since = 0.0
        self._speed = self._in_use = 0.0
        self.demand = 0.0
        self.due = _NEVER
        self.used = self.wanted = 0.0  # integrals over time of the part in use and of the demand

    def admit(self, process: Process, amount: float, weight: float) -> Any:
        """Give a process `amount` units at the pool's pace; with no weight it only waits."""
        if amount <= 0:
            return None
        if weight <= 0:  # a plain delay
            return self._loop.admit(process, amount, weight)
        self.advance()
        loop = self._loop
        heappush(self._jobs, (self._received + amount, next(loop.order), process, weight))
        self.demand += weight
        self._set_pace()
        return PENDING

    def finish(self) -> Process:
        """Remove the job that is due and return its process."""
        self.advance()
        received, _, process, weight = heappop(self._jobs)
        self._received = max(self._received, received)  # rounding may leave a remainder
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
        pace = self._paces.get(demand)
        if pace is None:
            pace = self._paces[demand] = self._pace(demand), self._using(demand)
        speed, self._in_use = pace
        self._speed = speed
        left = self._jobs[0][0] - self._received
        self.due = self._loop.now + max(left, 0.0) / speed


class Queue:
    """An unbounded FIFO queue that serves waiting processes in their order."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._items: deque[Any] = deque()
        self._waiting: deque[Process] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Any) -> None:
        """Add an item; the process that has waited longest gets it."""
        if self._waiting:
            # Not at once: the process that called put continues first.
            self._loop.later(0.0, self._waiting.popleft(), item)
        else:
            self._items.append(item)

    def admit(self, process: Process, amount: float, weight: float) -> Any:
        """Give a process the next item, or make it wait for one."""
        if self._items:
            return self._items.popleft()
        self._waiting.append(process)
        return PENDING
