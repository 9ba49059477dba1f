"""Counts events of the threads of running processes, by perf_event on their ids."""

import contextlib
import errno
import os
import resource
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lotus.attach.threads.thread_readings import ENDED, open_descriptors
from lotus.hardware.counter_probe import CounterGroup
from lotus.inside.common import perf_event
from lotus.inside.common.perf_event import SOFTWARE, Event, EventGroup
from lotus.recording.measurement_plan import MeasurementPlan

_MOST_THREADS = 4096  # at a time
_RESERVE = 128  # descriptors that are left for everything else; half of a low limit
_COLUMNS = ("pid", "tid", "event", "count", "enabled_ns", "running_ns")
OpenGroup = Callable[[Sequence[Event], int], CounterGroup]
Thread = tuple[int, int]  # process id, thread id


class ThreadCounters:
    """Counters of each thread, from when it is met first; they hold after its end, too.

    They are not inherited: the kernel would add those of new threads and processes to the thread
    that started them. Where software and hardware events can be counted, each are a group, so that
    the former are counted while other profilers have the hardware.
    """

    def __init__(self, plan: MeasurementPlan, open_group: OpenGroup = EventGroup) -> None:
        chosen = perf_event.parse_groups(plan.counters)[0] if plan.counters else []
        software = [event for event in chosen if event.type == SOFTWARE]
        hardware = [event for event in chosen if event.type != SOFTWARE]
        self._groups = [group for group in (software, hardware) if group]
        self._events = [event.name for group in self._groups for event in group]
        self._cpu, self._notes = plan.cpu, list(plan.notes)
        self._open_group = open_group
        self._threads: dict[Thread, list[CounterGroup | None]] = {}  # that have not ended
        self._rows: list[tuple[int, ...]] = []  # of _COLUMNS
        self._first_ns: dict[int, int] = {}  # CPU time of a process when it was found
        self._late: set[int] = set()  # processes met later than others
        self._incomplete: set[int] = set()  # processes with a thread whose time was not counted
        self._met = self._counted = 0  # threads found; threads that are counted now
        self._refused: dict[tuple[str, str], int] = {}  # threads by events, and by reason
        self._left_out: dict[Thread, str] = {}  # living threads that are not counted, and why
        self._never: dict[str, int] = {}  # threads that ended without having been, by reason
        self._waited: dict[str, int] = {}  # threads that are counted since there was room
        self.cost_ns = 0
        self._limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._limit[1], self._limit[1]))
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]  # descriptors

    def look(self, pids: Iterable[int]) -> None:
        """Count the threads of these processes that are new, and read those that have ended."""
        if not self._groups:
            return
        began, begun = time.thread_time_ns(), bool(self._first_ns)
        there: set[Thread] = set()
        for pid in pids:
            try:
                if pid not in self._first_ns:
                    self._first_ns[pid] = _cpu_ns(pid)
                    self._late |= {pid} if begun else set()
                there |= {(pid, int(name)) for name in os.listdir(f"/proc/{pid}/task")}
            except OSError as error:
                if error.errno not in ENDED:  # not known: all that were there still are
                    there |= {thread for thread in self._threads if thread[0] == pid}
        ended = self._threads.keys() - there
        for thread in ended:
            self._end(thread)
        # First threads come first: if not all can be counted, they are the most important. Those
        # that were left out are tried again once others have ended.
        again = self._left_out.keys() if ended else ()
        new = sorted(
            (there - self._threads.keys()).union(again),
            key=lambda each: (each[0] != each[1], each),
        )
        taken = open_descriptors(os.getpid()) if new else 0
        room = max(self._most - _RESERVE, self._most // 2) - taken if taken >= 0 else 0
        for thread in new:
            if self._begin(thread, room):
                room -= len(self._events)
        self.cost_ns += time.thread_time_ns() - began

    def _begin(self, thread: Thread, room: int) -> bool:
        """Count a thread, with at most `room` descriptors; whether anything of it is counted."""
        before = self._left_out.pop(thread, "")
        self._met += not before
        groups: list[CounterGroup | None] = []
        self._threads[thread] = groups
        if self._counted >= _MOST_THREADS:
            self._leave_out(thread, f"lotus counts {_MOST_THREADS} threads at a time at most")
            return False
        if room < len(self._events):
            self._leave_out(thread, self._few_descriptors())
            return False
        for events in self._groups:
            try:
                groups.append(self._open_group(events, thread[1]))
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    _close(groups)
                    full = "no more files can be opened on this machine (sysctl fs.file-max)"
                    ours = error.errno == errno.EMFILE
                    self._leave_out(thread, self._few_descriptors() if ours else full)
                    return False
                groups.append(None)
                if error.errno != errno.ESRCH:  # it has just ended
                    self._refuse(thread, events, error.errno or errno.EIO)
        self._counted += 1
        if before:
            self._waited[before] = self._waited.get(before, 0) + 1
        return True

    def _few_descriptors(self) -> str:
        return f"lotus may open {self._most} files at most (ulimit -Hn)"

    def _leave_out(self, thread: Thread, why: str) -> None:
        self._incomplete.add(thread[0])
        self._left_out[thread] = why

    def _refuse(self, thread: Thread, events: Sequence[Event], code: int) -> None:
        if any(event.name == "task_clock" for event in events):
            self._incomplete.add(thread[0])
        names, text = ", ".join(event.name for event in events), os.strerror(code)
        if code in (errno.EACCES, errno.EPERM):
            text += "; sudo or the capability CAP_PERFMON would allow it"
        self._refused[names, text] = self._refused.get((names, text), 0) + 1

    def _end(self, thread: Thread) -> None:
        """Read a thread's counters for the last time, and close them."""
        groups = self._threads.pop(thread)
        if why := self._left_out.pop(thread, ""):
            self._never[why] = self._never.get(why, 0) + 1
        for events, group in zip(self._groups, groups, strict=False):
            if group is None:
                continue
            with contextlib.suppress(OSError, ValueError):
                enabled, running, values = group.unpack(group.read())
                for event, value in zip(events, values, strict=True):
                    place = self._events.index(event.name)
                    self._rows.append((*thread, place, value, enabled, running))
        self._counted -= bool(groups)
        _close(groups)

    def finish(self) -> dict[str, Any]:
        """Return what was counted, as attach.json has it, and close the counters.

        A process that has ended, or some of whose time on a core was not counted, has no clock.
        """
        clocks: dict[str, list[int]] = {name: [] for name in ("pid", "clock_ns", "before_ns")}
        for pid, first in self._first_ns.items():
            for thread in [each for each in self._threads if each[0] == pid]:
                self._end(thread)
            try:  # at once: the same time by the scheduler's clock
                clock = -1 if pid in self._incomplete else _cpu_ns(pid) - first
            except OSError:
                clock = -1
            row = {"pid": pid, "clock_ns": clock, "before_ns": first if pid in self._late else 0}
            for name, value in row.items():
                clocks[name].append(value)
        self.close()
        return {
            "uarch": self._cpu.get("uarch") or "",
            "metrics": dict(self._cpu.get("metrics") or {}),
            "events": self._events,
            "counts": {name: [row[k] for row in self._rows] for k, name in enumerate(_COLUMNS)},
            "clocks": clocks,
            "notes": [*self._notes, *self._not_counted()],
        }

    def _not_counted(self) -> list[str]:
        refused = [
            f"{names} could not be counted in {number} of {self._met} threads ({why})"
            for (names, why), number in self._refused.items()
        ]
        left_out = [
            f"{number} of {self._met} threads were not counted: {why}"
            for why, number in self._never.items()
        ]
        waited = [
            f"{number} of {self._met} threads were counted only once others had ended: {why}"
            for why, number in self._waited.items()
        ]
        return refused + left_out + waited

    def close(self) -> None:
        """Close the counters."""
        for groups in self._threads.values():
            _close(groups)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, self._limit)


def _close(groups: list[CounterGroup | None]) -> None:
    for group in groups:
        if group is not None:
            group.close()
    groups.clear()


def _cpu_ns(pid: int) -> int:
    """Return the CPU time of a process's threads, by the scheduler, ns. Raises OSError."""
    return time.clock_gettime_ns((~pid << 3) | 2)
