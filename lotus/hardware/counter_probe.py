"""Tests the counters of this machine by counting loops with a known amount of work.

The kernel's announcements are not trusted: an event that reads 0 where it cannot be 0 is broken,
whatever its running time, and a group counts correctly if each event counts in it as it does alone.
"""

import contextlib
import errno
import functools
import itertools
import mmap
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lotus.inside.common import perf_event
from lotus.inside.common.perf_event import HARDWARE, SOFTWARE, Event

CYCLES = Event("cycles", HARDWARE, 0)
INSTRUCTIONS = Event("instructions", HARDWARE, 1)
GENERIC = (
    CYCLES,
    INSTRUCTIONS,
    Event("branches", HARDWARE, 4),
    Event("branch_misses", HARDWARE, 5),
    Event("cache_references", HARDWARE, 2),
    Event("cache_misses", HARDWARE, 3),
    Event("stalled_cycles_frontend", HARDWARE, 7),
    Event("stalled_cycles_backend", HARDWARE, 8),
)
CPU_CLOCK = Event("cpu_clock", SOFTWARE, 0)
SOFTWARE_EVENTS = (
    CPU_CLOCK,
    Event("task_clock", SOFTWARE, 1),
    Event("page_faults", SOFTWARE, 2),
    # Context switches happen in the kernel: without `k` they are not counted.
    Event("context_switches", SOFTWARE, 3, flags="uk"),
)
# These can be 0 in the loop; all others cannot.
_MAY_BE_ZERO = (
    *("migrations", "major", "emulation", "alignment", "dram", "llc", "l3", "remote"),
    "smt",  # no other thread shares the core, or a VM hides it
    # Shares of Intel's perf metrics in steps of 1/255 of the slots: a small one reads 0.
    *("topdown_heavy", "topdown_br", "topdown_fetch", "topdown_mem", "topdown_bad"),
)
_COARSE = "topdown_"  # such shares: of a small one the steps are larger than any tolerance
_TRIES = 5  # noise does not come five times; a broken counter does
_TOLERANCE = 2.0  # between an event's count alone and in a group: cycles vary on a busy machine
MOST_AT_ONCE = 12


class CounterGroup(Protocol):
    """The interface of `perf_event.EventGroup` that is used here."""

    def read(self) -> bytes:
        """Return the bytes of a reading."""

    def unpack(self, reading: bytes, /) -> tuple[int, int, list[int]]:
        """Return (enabled ns, running ns, counts) of a reading."""

    def close(self) -> None:
        """Release the counters."""


OpenGroup = Callable[[Sequence[Event]], CounterGroup]


@functools.cache
def _memory() -> bytearray:
    """Return more data than the inner caches hold; written, as untouched pages share one frame."""
    return bytearray(b"\1") * (8 << 20)


def known_loop() -> None:
    """Do about a millisecond of work in which every usual event occurs: a few million
    instructions, mispredicted branches, reads from memory, 16 page faults, a context switch."""
    memory, total = _memory(), 0
    for place in range(0, len(memory), 4099):
        total += memory[place]
    for number in range(10_000):
        if number * 2654435761 & 64:
            total += number
    with mmap.mmap(-1, 16 * mmap.PAGESIZE) as pages:
        for place in range(0, len(pages), mmap.PAGESIZE):
            pages[place] = 1
    time.sleep(20e-6)


@dataclass(frozen=True)
class ProbeCount:
    """The count of an event alone in the loop; `count` is None if the kernel refused it."""

    event: Event
    count: int | None
    running: float  # share of the time in which it was counted
    error: int = 0  # errno of the refusal

    @property
    def works(self) -> bool:
        """True if it works: its count is not 0, or may be 0."""
        if self.count is None or self.running <= 0:
            return False
        return self.count > 0 or _may_be_zero(self.event)

    @property
    def state(self) -> str:
        """`counts`, `zero` (opens, but reads 0 where it cannot be 0), `refused` or `absent`."""
        if self.count is None:
            return "refused" if self.error in (errno.EPERM, errno.EACCES) else "absent"
        return "counts" if self.works else "zero"


def _may_be_zero(event: Event) -> bool:
    return any(word in event.name.lower() for word in _MAY_BE_ZERO)


@dataclass(frozen=True)
class Capacity:
    """The number of hardware events that fit into a group: announced, and counting correctly."""

    announced: int
    right: int
    wrong: tuple[str, ...]  # events that failed in the first group that was announced but wrong
    running: float  # the smallest running/enabled seen in a group that was announced
    bounded: bool  # a larger group was refused, so `announced` is the maximum


def settle() -> None:
    """Cause a context switch of this thread.

    Linux (seen on 6.18) starts a group's clock events other than the first only then: if read at
    once, cpu-clock and task-clock count 0 for some milliseconds at 100 % running time.
    """
    time.sleep(1e-9)


class Probe:
    """Counts the loop and remembers what each event counted alone."""

    def __init__(
        self,
        open_group: OpenGroup = perf_event.EventGroup,
        work: Callable[[], None] = known_loop,
    ) -> None:
        self._open, self._work = open_group, work
        work()  # one-time work is not to be counted
        self._alone: dict[Event, ProbeCount] = {}
        self._extremes: dict[Event, tuple[int, int]] = {}  # of all counts alone

    def _measure(self, events: Sequence[Event]) -> tuple[list[int], float]:
        """Return the counts of one loop, and running/enabled. Raises OSError if the group fails."""
        group = self._open(events)
        try:
            try:
                settle()
                enabled, running, first = group.unpack(group.read())
                self._work()
                then, ran, second = group.unpack(group.read())
            except ValueError:  # a pinned group that did not get the counters
                return [0] * len(events), 0.0
        finally:
            group.close()
        share = (ran - running) / (then - enabled) if then > enabled else 0.0
        return [new - old for new, old in zip(second, first, strict=True)], share

    def alone(self, event: Event) -> ProbeCount:
        """Return what it counts alone (measured once). Never raises OSError."""
        if event not in self._alone:
            self._alone[event] = self._count(event)
        return self._alone[event]

    def _count(self, event: Event) -> ProbeCount:
        counted = ProbeCount(event, None, 0.0, errno.ENOENT)
        for _ in range(_TRIES):
            try:
                counts, running = self._measure([event])
            except OSError as error:
                return ProbeCount(event, None, 0.0, error.errno or errno.EIO)
            counted = ProbeCount(event, counts[0], running)
            if counts[0] > 0 and running > 0.99:
                break
        return counted

    def behind(self, leader: Event, event: Event) -> None:
        """Count an event that opens only in a group led by another, instead of alone."""
        try:
            counts, running = self._measure([leader, event])
        except OSError as error:
            self._alone[event] = ProbeCount(event, None, 0.0, error.errno or errno.EIO)
        else:
            self._alone[event] = ProbeCount(event, counts[1], running)

    def works(self, event: Event) -> bool:
        """Return True if this event counts when alone."""
        return self.alone(event).works

    def fits(self, events: Sequence[Event]) -> bool:
        """Return True if these can be counted together and each then counts as it does alone."""
        if not all(self.works(event) for event in events):
            return False
        return self.counts_rightly(events)

    def counts_rightly(self, events: Sequence[Event]) -> bool:
        """Return True if each of these events counts in one group what it counts alone."""
        if all(event.type == SOFTWARE for event in events):
            return True
        try:
            return not self.wrong(events)[0]
        except OSError:
            return False

    def wrong(self, events: Sequence[Event]) -> tuple[list[str], float]:
        """Return events that count differently in this group than alone, and running/enabled.

        An event is wrong if it differs each time, or is once 0 at full running time: noise does not
        cause a 0, but a counter that only the kernel has does. Raises OSError if the group is
        refused.
        """
        wrong, lowest = [event.name for event in events], 1.0
        for _ in range(_TRIES):
            counts, running = self._measure(events)
            lowest = min(lowest, running)
            now = [
                event.name
                for event, count in zip(events, counts, strict=True)
                if running < 0.99 or not self._as_alone(event, count)
            ]
            wrong = [name for name in wrong if name in now]
            silent = [
                event.name
                for event, count in zip(events, counts, strict=True)
                if count == 0 and running > 0.99 and event.name in now
            ]
            if silent:
                return silent, lowest
            if not wrong:
                break
            for event in events:
                if event.name in wrong:
                    self._count_again(event)
        return wrong, lowest

    def _count_again(self, event: Event) -> None:
        """Count the event alone again, as that count may be the outlier on a shared machine."""
        with contextlib.suppress(OSError):
            (count,), running = self._measure([event])
            if count and running > 0.99:
                low, high = self._range(event)
                self._extremes[event] = (min(low, count), max(high, count))

    def _range(self, event: Event) -> tuple[int, int]:
        """Return the lowest and the highest count of this event alone."""
        count = self.alone(event).count or 0
        return self._extremes.get(event, (count, count))

    def _as_alone(self, event: Event, count: int) -> bool:
        low, high = self._range(event)
        if event.name.startswith(_COARSE):
            # Alone it is seen that they count at all; how much, only with their leader, the slots
            # register.
            return count > 0 or low == 0 or _may_be_zero(event)
        if low < 1000:  # too few to compare
            return count > 0 or low < 16
        return low / _TOLERANCE <= count <= high * _TOLERANCE

    def largest(self, events: Iterable[Event]) -> Capacity:
        """Grow a group of the events that work, repeating them, until it is refused."""
        pool = [event for event in events if self.works(event)]
        announced = right = 0
        wrong: list[str] = []
        lowest = 1.0
        bounded = False
        for size in range(1, MOST_AT_ONCE + 1) if pool else ():
            group = [pool[place % len(pool)] for place in range(size)]
            try:
                failed, running = self.wrong(group)
            except OSError:
                bounded = True
                break
            announced, lowest = size, min(lowest, running)
            if not failed and right == size - 1:
                right = size
            elif not wrong:
                wrong = failed
        return Capacity(announced, right, tuple(wrong), lowest, bounded)


@dataclass(frozen=True)
class Cost:
    """The cost of a reading: nanoseconds, and what each event counts during it."""

    read_ns: float
    clock_ns: float
    counts: dict[str, float]


def cost(events: Sequence[Event], open_group: OpenGroup = perf_event.EventGroup) -> Cost:
    """Return the median cost of reading this group, over 200 reads. Raises OSError."""
    group = open_group(events)
    try:
        settle()
        times, readings = [], []
        for _ in range(200):
            begin = time.perf_counter_ns()
            reading = group.read()
            times.append(time.perf_counter_ns() - begin)
            readings.append(reading)
        values = [group.unpack(reading)[2] for reading in readings]
    finally:
        group.close()
    clock_ns = clock_cost()
    counts = {
        event.name: statistics.median(
            new[place] - old[place] for old, new in itertools.pairwise(values)
        )
        for place, event in enumerate(events)
    }
    return Cost(max(statistics.median(times) - clock_ns, 0.0), clock_ns, counts)


def clock_cost() -> float:
    """Return the nanoseconds of a `time.monotonic_ns`: the median of 20 times 500."""
    times = []
    for _ in range(20):
        begin = time.perf_counter_ns()
        for _ in range(500):
            time.monotonic_ns()
        times.append((time.perf_counter_ns() - begin) / 500)
    return statistics.median(times)
