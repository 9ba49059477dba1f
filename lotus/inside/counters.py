"""Exact counts at the edges of operations: the groups of the fetching thread, read in between.

Readings are kept as the kernel gave them, in the order in which they were made; an operation
holds the places of its two. One reading serves two edges that lie closer together than a reading
takes. What reading costs, in time and in counts, is measured when they are opened and taken off
outside, where the readings are subtracted.
"""

from __future__ import annotations

import itertools
import os
import statistics
import struct
import threading
import time

from . import clock, perf_event
from .guard import hook, quiet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .perf_event import Group
_LOWEST = 500  # descriptors below are the program's
_REPEATS = 200
_MOST_THREADS = 8  # threads of one process that fetch, at num_workers=0


class Counters:
    """Counters of the threads that fetch in this process. Not in use until `begin`."""

    def __init__(self, spec: str) -> None:
        """Raises ValueError where `spec` is not what `perf_event.parse_groups` takes."""
        self.groups = perf_event.parse_groups(spec)
        self.words = sum(perf_event.HEADER + len(group) for group in self.groups)
        # The hooks hold these lists: they are emptied, never replaced.
        self.readings: list[bytes] = []
        self.edges: list[int] = []  # places of the two readings of each operation, in turn
        self.collate: tuple[int, int] = (0, 0)
        self.feeder: int | None = None  # the CPU clock of the worker's feeder thread
        self.marks: list[int] = []  # CPU time of other threads when the fetch began
        self._open: dict[int, list[Group]] = {}  # by thread, as are the costs of a reading (ns)
        self._costs: dict[int, int] = {}
        self._refused = False
        self._events: list[dict[str, object]] = []  # to be written by the recorder
        self.fresh: Callable[[], int]
        self.shared: Callable[[], int]
        self._use: Callable[[list[Group], int], None]
        self._make()

    def _make(self) -> None:
        readings, read = self.readings, os.read
        add = readings.append
        fd, size, cost, last = -1, 0, 0, 0
        more: list[tuple[int, int]] = []  # the groups after the first

        def use(groups: list[Group], cost_ns: int) -> None:
            nonlocal fd, size, cost, last
            last, cost = 0, cost_ns
            fd, size = (groups[0].fd, groups[0].size) if groups else (-1, 0)
            more[:] = [(group.fd, group.size) for group in groups[1:]]

        def reading() -> bytes:
            nonlocal fd
            try:
                if more:
                    return read(fd, size) + b"".join([read(*one) for one in more])
                return read(fd, size)
            except OSError:
                fd = -1  # the program closed it, and may open its own file by that number
                return b""

        def fresh() -> int:
            """Read now; the place of the reading."""
            nonlocal last
            if fd >= 0:
                add(reading())
            last = clock()
            return len(readings) - 1

        def shared() -> int:
            """The place of the last reading if it was just now, else `fresh`."""
            if clock() - last < cost and readings:
                return len(readings) - 1
            return fresh()

        self.fresh, self.shared, self._use = fresh, shared, use
        for function in (fresh, shared, reading):
            hook(function)

    def forked(self) -> None:
        """In a child: the groups count threads of the parent."""
        for groups in self._open.values():
            for group in groups:
                if group.is_ours():
                    group.close()
        self._open.clear()
        del self.readings[:], self.edges[:], self.marks[:], self._events[:]
        self.feeder = None
        self._use([], 0)

    def close(self) -> None:
        self.forked()

    def prepare(self) -> None:
        """Before a fetch: open this thread's groups if there are none, and use them."""
        me = threading.get_native_id()
        groups = self._open.get(me, [])
        if not all(group.is_ours() for group in groups):
            del self._open[me]  # their numbers may be the program's by now
            groups = []
        if not groups and not self._refused:
            groups = self._opened(me)
        self._use(groups, self._costs[me] if groups else 0)

    def begin(self) -> None:
        """At the start of a fetch: the first reading."""
        self.collate = (0, 0)
        self.marks.append(self._others())
        self.fresh()

    def _others(self) -> int:
        """CPU time (ns) of the other threads of this process, the feeder thread left out."""
        others = time.process_time_ns() - time.thread_time_ns()
        if self.feeder is not None:
            with quiet(OSError):
                others -= time.clock_gettime_ns(self.feeder)
        return others

    def end(self) -> tuple[list[int], bytes]:
        """Fixed fields and arrays of a COUNTS frame, from `words` on; nothing: ([], b"")."""
        self.fresh()
        helper = max(self._others() - self.marks[-1], 0) if self.marks else 0
        readings, edges, width = self.readings, self.edges, 8 * self.words
        found: tuple[list[int], bytes] = ([], b"")
        if readings:
            # A group that could not be counted for a while reads as nothing.
            whole = [one if len(one) == width else bytes(width) for one in readings]
            count = len(readings)
            collate = self.collate
            packed = b"".join([edge.to_bytes(4, "little") for edge in edges])
            fields = [self.words, helper, *collate, count * self.words, len(edges) // 2]
            found = (fields, b"".join(whole) + packed)
        del readings[:], edges[:], self.marks[:]
        return found

    def take_events(self) -> list[dict[str, object]]:
        """What the recorder has to write: groups that were opened, or that cannot be."""
        events = self._events[:]
        del self._events[:]
        return events

    def _opened(self, tid: int) -> list[Group]:
        """Open this thread's groups; a single one has the right of way, where it fits."""
        if len(self._open) >= _MOST_THREADS:
            for group in self._open.pop(next(iter(self._open))):
                group.close()
        why = "the group cannot be counted"
        for pinned in (True, False) if len(self.groups) == 1 else (False,):
            found: list[Group] = []
            try:
                for events in self.groups:
                    found.append(perf_event.Group(events, pinned=pinned, lowest=_LOWEST))
                # A clock that does not lead its group reads 0 until the thread is switched once.
                time.sleep(1e-9)
                for group in found:
                    group.unpack(group.read())
            except (ValueError, OSError) as error:
                for group in found:
                    group.close()
                if isinstance(error, OSError):
                    why = f"{error.filename or 'a counter'}: {error.strerror}"
                    break
                continue  # pinned, and there are not enough counters: share them
            self._calibrate(found, tid, pinned)
            self._open[tid] = found
            return found
        self._refused = True
        self._events.append({"event": "unseen", "what": "counters", "why": why})
        return []

    def _calibrate(self, groups: list[Group], tid: int, pinned: bool) -> None:
        """Measure what one reading costs: its time, and what it adds to each count."""
        self._use(groups, 0)
        took = []
        place = len(self.readings)
        for _ in range(_REPEATS):
            start = clock()
            self.fresh()
            took.append(clock() - start)
        rows = [struct.unpack(f"<{self.words}Q", one) for one in self.readings[place:] if one]
        del self.readings[place:]
        steps = [
            [after - before for before, after in zip(*pair, strict=True)]
            for pair in itertools.pairwise(rows)
        ]
        costs = [int(statistics.median(column)) for column in zip(*steps, strict=True)]
        cost = self._costs[tid] = int(statistics.median(took))
        described, place = [], 0
        for number, events in enumerate(self.groups):
            place += perf_event.HEADER
            for event in events:
                described.append({**event._asdict(), "group": number, "read_count": costs[place]})
                place += 1
        self._events.append(
            {
                "event": "counters",
                "tid": tid,
                "time_ns": clock(),
                "pinned": pinned,
                "read_ns": cost,
                "events": described,
            }
        )
