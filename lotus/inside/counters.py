"""Exact counts at the edges of operations: the group of the fetching thread, read in between.

Readings are kept as the kernel gave them, in the order in which they were made; an operation
holds the places of its two. One reading serves two edges that lie closer together than a reading
takes. What reading costs, in time and in counts, is measured when a group is opened and taken off
outside, where the readings are subtracted.
"""

from __future__ import annotations

import itertools
import os
import statistics
import threading
import time

from . import clock, perf_event
from .guard import hook, quiet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .perf_event import Group
_LOWEST = 500  # descriptors below are the program's
_REPEATS = 200
_MOST_GROUPS = 8  # threads of one process that fetch, at num_workers=0


class Counters:
    """Counters of the threads that fetch in this process. Not in use until `begin`."""

    def __init__(self, spec: str) -> None:
        """Raises ValueError where `spec` is not what `perf_event.parse` takes."""
        self.events = perf_event.parse(spec)
        self.words = perf_event.HEADER + len(self.events)
        # The hooks hold these lists: they are emptied, never replaced.
        self.readings: list[bytes] = []
        self.edges: list[int] = []  # places of the two readings of each operation, in turn
        self.collate: tuple[int, int] = (0, 0)
        self.feeder: int | None = None  # the CPU clock of the worker's feeder thread
        self.marks: list[int] = []  # CPU time of other threads when the fetch began
        self._groups: dict[int, Group] = {}  # by thread, as are the costs of a reading (ns)
        self._costs: dict[int, int] = {}
        self._refused = False
        self._events: list[dict[str, object]] = []  # to be written by the recorder
        self.fresh: Callable[[], int]
        self.shared: Callable[[], int]
        self._use: Callable[[Group | None, int], None]
        self._make()

    def _make(self) -> None:
        readings, read = self.readings, os.read
        add = readings.append
        fd, size, cost, last = -1, 0, 0, 0

        def use(group: Group | None, cost_ns: int) -> None:
            nonlocal fd, size, cost, last
            last, cost = 0, cost_ns
            fd, size = (-1, 0) if group is None else (group.fd, group.size)

        def fresh() -> int:
            """Read now; the place of the reading."""
            nonlocal last
            if fd >= 0:
                try:
                    add(read(fd, size))
                except OSError:
                    add(b"")
            last = clock()
            return len(readings) - 1

        def shared() -> int:
            """The place of the last reading if it was just now, else `fresh`."""
            nonlocal last
            if clock() - last < cost and readings:
                return len(readings) - 1
            if fd >= 0:
                try:
                    add(read(fd, size))
                except OSError:
                    add(b"")
            last = clock()
            return len(readings) - 1

        self.fresh, self.shared, self._use = hook(fresh), hook(shared), use

    def forked(self) -> None:
        """In a child: the groups count threads of the parent."""
        for group in self._groups.values():
            if group.is_ours():
                group.close()
        self._groups.clear()
        del self.readings[:], self.edges[:], self.marks[:], self._events[:]
        self.feeder = None
        self._use(None, 0)

    def close(self) -> None:
        self.forked()

    def prepare(self) -> None:
        """Before a fetch: open this thread's group if there is none, and use it."""
        me = threading.get_native_id()
        group = self._groups.get(me)
        if group is not None and not group.is_ours():
            del self._groups[me]  # its numbers may be the program's by now
            group = None
        if group is None and not self._refused:
            group = self._open(me)
        self._use(group, 0 if group is None else self._costs[me])

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

    def _open(self, tid: int) -> Group | None:
        """Open this thread's group, which has the right of way where the kernel grants it."""
        if len(self._groups) >= _MOST_GROUPS:
            self._groups.pop(next(iter(self._groups))).close()
        group: Any = None
        for pinned in (True, False):
            try:
                group = perf_event.Group(self.events, pinned=pinned, lowest=_LOWEST)
                group.unpack(group.read())
                break
            except ValueError:  # pinned, and there are not enough counters: share them
                group.close()
                group = None
            except OSError as error:
                self._refused = True
                why = f"{error.filename or 'a counter'}: {error.strerror}"
                self._events.append({"event": "unseen", "what": "counters", "why": why})
                return None
        if group is None:
            self._refused = True
            why = "the group cannot be counted"
            self._events.append({"event": "unseen", "what": "counters", "why": why})
            return None
        self._calibrate(group, tid, pinned)
        opened: Group = group
        self._groups[tid] = opened
        return opened

    def _calibrate(self, group: Group, tid: int, pinned: bool) -> None:
        """Measure what one reading costs: its time, and what it adds to each count."""
        self._use(group, 0)
        took = []
        place = len(self.readings)
        for _ in range(_REPEATS):
            start = clock()
            self.fresh()
            took.append(clock() - start)
        rows = [group.unpack(one)[2] for one in self.readings[place:] if len(one) == group.size]
        del self.readings[place:]
        steps = [
            [after - before for before, after in zip(*pair, strict=True)]
            for pair in itertools.pairwise(rows)
        ]
        counts = [int(statistics.median(column)) for column in zip(*steps, strict=True)]
        cost = self._costs[tid] = int(statistics.median(took))
        self._events.append(
            {
                "event": "counters",
                "tid": tid,
                "time_ns": clock(),
                "pinned": pinned,
                "events": [dict(one._asdict()) for one in self.events],
                "read_ns": cost,
                "read_counts": counts,
            }
        )
