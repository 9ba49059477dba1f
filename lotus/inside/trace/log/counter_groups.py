"""Reads exact counters of the fetching thread at the start and end of operations.

Readings are kept in order, as the kernel returned them; an operation has the indices of two of
them. Two edges that are closer together than the time of a reading share one reading. The cost of a
reading, in time and in counts, is measured when the groups are opened. It is subtracted outside,
where the differences of the readings are computed.

Groups that do not fit into the counters of the machine together take turns: one group is counted
for a whole fetch, and the words of the others are 0. The kernel's own multiplexing switches after
milliseconds, so most operations would begin in one turn and end in another.
"""

from __future__ import annotations

import itertools
import os
import struct
import sys
import threading
import time
import weakref
from array import array

from ...common import perf_event
from ...common.clocks import clock
from ...common.guard import hook, of_the_program, quiet
from .log_format import UNCOUNTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    import resource
    from collections.abc import Callable, Sequence
    from typing import NamedTuple

    from ...common.perf_event import EventGroup

    class OpenGroups(NamedTuple):
        """The groups of one thread.

        `turn` has the index of the group that is counted now; `cost_ns` is the cost of a reading.
        """

        groups: list[EventGroup]
        turn: list[int]
        cost_ns: int
        pinned: bool
        thread: weakref.ref[Thread]
else:
    import collections

    from .standard_library import resource

    OpenGroups = collections.namedtuple(
        "OpenGroups", "groups turn cost_ns pinned thread", module=__name__
    )
# Bound before the program, or a library that patches functions by name, can replace them.
_TIMES = (time.process_time_ns, time.thread_time_ns, time.clock_gettime_ns, time.sleep)
_LOWEST = 500  # descriptors below are the program's
_FEWEST = 128  # the program is left its descriptors where it may have no more than that
_REPEATS = 200
_MOST_THREADS = 8  # threads of one process that fetch, at num_workers=0
_MOST_OPENINGS = 64  # in one process: the program may close them repeatedly
_MOST_BROKEN = 16  # openings, of about 1 ms each, that its signal handlers interrupted
_MOST_READINGS = 1 << 16  # of one fetch: 10 MB of the program's memory


class Thread:
    """An object with the lifetime of a thread, because the kernel reuses thread ids."""


class Counters:
    """Counters of the threads that fetch in this process. Not in use until `begin`."""

    def __init__(self, spec: str) -> None:
        """`spec` is for `perf_event.parse_groups`; if it is invalid, nothing is counted."""
        try:
            self.groups = perf_event.parse_groups(spec)
        except ValueError:
            self.groups = []
        self._spec = spec
        self.words = sum(perf_event.HEADER + len(group) for group in self.groups)
        # The hooks have references to these lists, so they are emptied but never replaced.
        self.readings: list[bytes] = []
        self.edges: list[int] = []  # indices of the two readings of each operation
        self.feeder: int | None = None  # the CPU clock of the worker's feeder thread
        # For the current fetch: CPU time of other threads when it began.
        self.marks: list[list[int]] = []
        self._here = threading.local()  # .thread: a Thread
        self._open: dict[int, OpenGroups] = {}  # by thread
        self._failed = 0  # thread whose group could not be counted in the last fetch
        self._openings = self._broken = 0
        self._refused = False
        self._seccomp = _seccomp()
        self._events: list[dict[str, object]] = []  # to be written by the recorder
        self._taken_events = 0  # how many of these the recorder has taken
        self.fresh: Callable[..., int]
        self.shared: Callable[[], int]
        self._use: Callable[[EventGroup | None, int], None]
        self._around: tuple[bytes, bytes] = (b"", b"")  # the words of groups that wait
        self._make()

    def _make(self) -> None:
        readings, read = self.readings, os.read
        add = readings.append
        fd, size, cost, last = -1, 0, 0, 0

        def use(group: EventGroup | None, cost_ns: int) -> None:
            nonlocal fd, size, cost, last
            last, cost = 0, cost_ns
            fd, size = (group.fd, group.size) if group is not None else (-1, 0)

        def fresh(most: int = _MOST_READINGS) -> int:
            """Read now; return the index of the reading, or UNCOUNTED."""
            nonlocal fd, last
            if fd < 0 or len(readings) >= most:
                return UNCOUNTED
            try:
                reading = read(fd, size)
            except OSError as error:
                if of_the_program(error):
                    raise
                reading, fd = b"", -1  # closed: the program may reuse the number
            add(reading)
            last = clock()
            return len(readings) - 1

        def shared() -> int:
            """Return the index of the last reading if it was just made, else that of a new one."""
            if clock() - last < cost and readings:
                return len(readings) - 1
            return fresh()

        self.fresh, self.shared, self._use = fresh, shared, use
        for function in (fresh, shared):
            hook(function)

    def forked(self) -> None:
        """Close all groups in a forked child, as they count threads of the parent."""
        opened = list(self._open.values())
        self._open.clear()
        self._use(None, 0)
        for thread_groups in opened:
            _close(thread_groups.groups)
        del self.readings[:], self.edges[:], self.marks[:], self._events[:]
        self.feeder = None
        self._taken_events = self._openings = self._broken = self._failed = 0

    def close(self) -> None:
        self.forked()

    def prepare(self) -> None:
        """Prepare for a fetch: open this thread's groups if necessary, and use them."""
        me, thread = threading.get_native_id(), getattr(self._here, "thread", None)
        if thread is None:
            thread = self._here.thread = Thread()
        opened, pinned = self._open.get(me), True
        if opened is not None:
            ours = opened.thread() is thread and all(group.is_ours() for group in opened.groups)
            if not ours or self._failed == me:
                # They belong to another thread or by now to the program, or could not be counted.
                pinned = pinned and not (ours and opened.pinned)
                del self._open[me]
                self._use(None, 0)
                _close(opened.groups)
                opened = None
        self._failed = 0
        # Do not replace the groups inside a fetch that is counted.
        if opened is None and not self._refused and not self.marks:
            opened = self._opened(me, thread, pinned)
        elif opened is not None and len(opened.groups) > 1 and not self.marks:
            try:
                self._next_turn(opened)
            except OSError as error:
                if of_the_program(error):
                    raise
                self._failed = me  # opened again before the next fetch
        self._use_turn(opened)

    def _use_turn(self, opened: OpenGroups | None) -> None:
        if opened is None:
            self._use(None, 0)
            return
        turn = opened.turn[0]
        words = [perf_event.HEADER + len(group) for group in self.groups]
        self._around = (bytes(8 * sum(words[:turn])), bytes(8 * sum(words[turn + 1 :])))
        self._use(opened.groups[turn], opened.cost_ns)

    def _next_turn(self, opened: OpenGroups) -> None:
        """Raises OSError."""
        opened.groups[opened.turn[0]].pause()
        opened.turn[0] = (opened.turn[0] + 1) % len(opened.groups)
        opened.groups[opened.turn[0]].resume()

    def begin(self) -> None:
        """Make the first reading, at the start of a fetch."""
        others = self._others()
        self.fresh()
        self.marks.append([others])

    def _others(self) -> int:
        """Return the CPU time (ns) of the other threads, without the feeder thread."""
        of_process, of_thread, of_clock, _ = _TIMES
        others = of_process() - of_thread()
        if self.feeder is not None:
            with quiet(OSError):
                others -= of_clock(self.feeder)
        return others

    def end(self, collate: tuple[int, int] = (0, 0)) -> tuple[list[int], bytes]:
        """Return fixed fields (from `words` on) and arrays of a COUNTS frame; ([], b"") for none.

        `collate` has the indices of the readings around collate.
        """
        readings, edges, width = self.readings, self.edges, 8 * self.words
        result: tuple[list[int], bytes] = ([], b"")
        if self.fresh(sys.maxsize) == UNCOUNTED and readings:
            readings.append(b"")  # the counters were lost meanwhile
        if readings and self.marks:  # else a signal handler of the program interrupted the start
            helper = max(self._others() - self.marks[-1][0], 0)
            # The reading of a group that could not be counted for a while is empty.
            before, after = self._around
            own = width - len(before) - len(after)
            groups_read = [
                before + reading + after if len(reading) == own else bytes(width)
                for reading in readings
            ]
            if len(readings[-1]) != own:
                self._failed = threading.get_native_id()
            places = array("I", edges)
            if sys.byteorder == "big":
                places.byteswap()
            count = len(readings)
            fields = [self.words, helper, *collate, count * self.words, len(edges) // 2]
            result = (fields, b"".join(groups_read) + places.tobytes())
        del readings[:], edges[:], self.marks[:]
        opened = self._open.get(threading.get_native_id())
        if opened is not None:  # an edge of an outer fetch must not share our last reading
            self._use_turn(opened)
        return result

    def take_events(self) -> list[dict[str, object]]:
        """Return new events for the recorder: groups that were opened, or that cannot be."""
        events = self._events[self._taken_events :]
        self._taken_events = len(self._events)
        return events

    def interrupted(self) -> None:
        """Return all events again, as those that were taken may not have been written."""
        self._taken_events = 0

    def _unseen(self, why: str) -> None:
        event: dict[str, object] = {"event": "unseen", "what": "counters", "why": why}
        if event not in self._events:
            self._events.append(event)

    def _why_not(self) -> str:
        """Return why no group can be opened now, or ""."""
        if not self.groups:
            return f"{self._spec[:80]!r} in LOTUS_COUNTERS names no counters"
        if self._openings >= _MOST_OPENINGS:
            return "the program closed them again and again"
        if self._broken >= _MOST_BROKEN:
            return "the program's signal handlers broke it off again and again"
        if _seccomp() != self._seccomp:
            return "the program put itself under a seccomp filter, which may kill it for them"
        if _lowest() < _FEWEST // 2:
            return "the program may open few files (ulimit -n)"
        return ""

    def _opened(self, tid: int, thread: Thread, pinned: bool) -> OpenGroups | None:
        """Open this thread's groups, pinned if they fit."""
        for other, opened in list(self._open.items()):
            if opened.thread() is None:
                del self._open[other]
                _close(opened.groups)
        if len(self._open) >= _MOST_THREADS:
            self._unseen(f"of the threads that fetch, {_MOST_THREADS} are counted")
            return None
        why = self._why_not()
        self._openings += 1
        for right_of_way in () if why else (True, False) if pinned else (False,):
            groups: list[EventGroup] = []
            try:
                for events in self.groups:
                    groups.append(perf_event.EventGroup(events, 0, right_of_way, _lowest()))
                    if len(self.groups) > 1:
                        groups[-1].pause()
                cost = self._calibrate(groups, tid, right_of_way)
                opened = OpenGroups(groups, [0], cost, right_of_way, weakref.ref(thread))
                if len(groups) > 1:
                    groups[0].resume()
                self._open[tid] = opened
                return opened
            except BaseException as error:
                self._open.pop(tid, None)
                self._use(None, 0)
                _close(groups)
                if not isinstance(error, Exception) or of_the_program(error):
                    self._openings -= 1
                    self._broken += 1
                    raise
                if isinstance(error, OSError):
                    why = f"{error.filename or 'a counter'}: {error.strerror}"
                    break
                # There are not enough counters for pinned groups: share them.
                why = f"the group cannot be counted ({error})"
        self._refused = True
        self._unseen(why)
        return None

    def _calibrate(self, groups: list[EventGroup], tid: int, pinned: bool) -> int:
        """Measure the cost of a reading: its time, and its contribution to each count.

        Raises ValueError if a group cannot be counted.
        """
        costs: list[int] = []
        cost = 0
        for group in groups:
            if len(groups) > 1:
                group.resume()
            try:
                # A clock event that is not the leader of its group is 0 until a context switch.
                _TIMES[3](1e-9)
                group.unpack(group.read())
                steps, read_ns = self._steps(group)
            finally:
                if len(groups) > 1:
                    group.pause()
            cost = max(cost, read_ns)
            ran = [step for step in steps if 0 < step[1] == step[2]]  # enabled and running ns
            costs += [_median(column) for column in zip(*(ran or steps), strict=True)]
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
        return cost

    def _steps(self, group: EventGroup) -> tuple[list[list[int]], int]:
        """Return (increments of each word between readings, ns of a reading)."""
        self._use(group, 0)
        durations = []
        place = len(self.readings)
        for _ in range(_REPEATS):
            start = clock()
            self.fresh()
            durations.append(clock() - start)
        words = group.size // 8
        rows = [
            struct.unpack(f"<{words}Q", reading) for reading in self.readings[place:] if reading
        ]
        del self.readings[place:]
        steps = [
            [after - before for before, after in zip(*pair, strict=True)]
            for pair in itertools.pairwise(rows)
        ]
        return steps, _median(durations)


def _median(values: Sequence[int]) -> int:
    return sorted(values)[len(values) // 2]


def _close(groups: Sequence[EventGroup]) -> None:
    for group in groups:
        group.close()


def _lowest() -> int:
    """Return the least descriptor number that does not disturb the program."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _LOWEST if allowed < 0 or allowed >= 2 * _LOWEST else allowed // 2


def _seccomp() -> list[bytes]:
    """Return this thread's seccomp mode and number of filters from /proc.

    The effect of a filter on a system call is not visible. The filters at the start of the program
    are assumed to be those of `lotus trace`, which has tried the call.
    """
    with quiet(OSError):
        fd = os.open("/proc/thread-self/status", os.O_RDONLY | os.O_CLOEXEC)
        try:
            lines = os.read(fd, 1 << 14).splitlines()
        finally:
            os.close(fd)
        return [line for line in lines if line.startswith(b"Seccomp")]
    return []
