"""Counts events of the threads of running processes, by perf_event on their ids."""

import contextlib
import errno
import os
import resource
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lotus.hardware.counter_probe import CounterGroup
from lotus.inside.common import perf_event
from lotus.inside.common.perf_event import SOFTWARE, Event, EventGroup
from lotus.recording.measurement_plan import MeasurementPlan

_MOST_THREADS = 4096
_NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
OpenGroup = Callable[[Sequence[Event], int], CounterGroup]


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
        self._threads: dict[tuple[int, int], list[CounterGroup | None]] = {}
        self._first_ns: dict[int, int] = {}  # CPU time of a process when it was met
        self._late: set[int] = set()  # processes met later than others
        self._refused: dict[str, int] = {}  # threads by the kernel's reason
        self._left_out = 0  # threads for which there was no descriptor
        self.cost_ns = 0
        self._limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._limit[1], self._limit[1]))

    def look(self, pids: Iterable[int]) -> None:
        """Count the threads of these processes that are new."""
        if not self._groups:
            return
        began, begun = time.thread_time_ns(), bool(self._first_ns)
        for pid in pids:
            with contextlib.suppress(OSError):
                if pid not in self._first_ns:
                    self._first_ns[pid] = _cpu_ns(pid)
                    self._late |= {pid} if begun else set()
                for name in os.listdir(f"/proc/{pid}/task"):
                    if (pid, int(name)) not in self._threads:
                        self._threads[pid, int(name)] = self._opened(int(name))
        self.cost_ns += time.thread_time_ns() - began

    def _opened(self, tid: int) -> list[CounterGroup | None]:
        """Return a thread's groups, None for one that cannot be counted."""
        groups: list[CounterGroup | None] = []
        if len(self._threads) >= _MOST_THREADS:
            self._left_out += 1
            return groups
        for events in self._groups:
            try:
                groups.append(self._open_group(events, tid))
            except OSError as error:
                groups.append(None)
                if error.errno in _NO_DESCRIPTOR:
                    self._left_out += 1
                    break
                if error.errno != errno.ESRCH:  # it has just ended
                    text = os.strerror(error.errno or errno.EIO)
                    why = f"{', '.join(event.name for event in events)} ({text})"
                    self._refused[why] = self._refused.get(why, 0) + 1
        return groups

    def finish(self) -> dict[str, Any]:
        """Return what was counted, as attach.json has it, and close the counters."""
        counts: dict[str, list[int]] = {
            name: [] for name in ("pid", "tid", "event", "count", "enabled_ns", "running_ns")
        }
        clocks: dict[str, list[int]] = {name: [] for name in ("pid", "clock_ns", "before_ns")}
        for pid, first in self._first_ns.items():
            for (owner, tid), groups in self._threads.items():
                if owner == pid:
                    self._read(pid, tid, groups, counts)
            try:  # at once: the same time by the scheduler's clock
                clock = _cpu_ns(pid) - first
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
            "counts": counts,
            "clocks": clocks,
            "notes": [*self._notes, *self._not_counted()],
        }

    def _read(
        self,
        pid: int,
        tid: int,
        groups: Sequence[CounterGroup | None],
        counts: dict[str, list[int]],
    ) -> None:
        for events, group in zip(self._groups, groups, strict=False):
            if group is None:
                continue
            with contextlib.suppress(OSError, ValueError):
                enabled, running, values = group.unpack(group.read())
                for event, value in zip(events, values, strict=True):
                    place = self._events.index(event.name)
                    row = (pid, tid, place, value, enabled, running)
                    for column, number in zip(counts.values(), row, strict=True):
                        column.append(number)

    def _not_counted(self) -> list[str]:
        notes = [
            f"not counted of {number} of {len(self._threads)} threads: {why}"
            for why, number in self._refused.items()
        ]
        if self._left_out:
            notes.append(
                f"{self._left_out} of {len(self._threads)} threads were not counted completely: no "
                f"more files may be open (ulimit -n, now {self._limit[1]})"
            )
        return notes

    def close(self) -> None:
        """Close the counters."""
        for groups in self._threads.values():
            for group in groups:
                if group is not None:
                    group.close()
            groups.clear()
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, self._limit)


def _cpu_ns(pid: int) -> int:
    """CPU time of all threads of a process, by the scheduler. Raises OSError."""
    return time.clock_gettime_ns((~pid << 3) | 2)
