"""Reads the stacks that a py-spy wrote of one process, with their times if it wrote these."""

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from native_map.errors import UnusableError
from native_map.recording import py_spy_events
from native_map.recording.py_spy_events import StackReader

_COARSE_NS = 10_000_000  # a file's time is that of the kernel's last tick, at least 100 a second


class TimedStacks:
    """Samples by stack: lines as py-spy's raw format has them, without the count.

    `counts`: how many of each. `times_ns`: when those of the main thread were taken, by
    CLOCK_MONOTONIC, wrong by at most `bound_ns`; empty for a py-spy that wrote no times.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.times_ns: dict[str, list[int]] = {}
        self.bound_ns = 0


def read(path: Path, pid: int, rate: int, start_ns: int, most_bytes: int) -> TimedStacks:
    """Read a file of process `pid`, of which nothing may be left out but what is damaged.

    py-spy was started at `start_ns` of CLOCK_MONOTONIC or later, and took `rate` samples a second.
    Raises OSError if there is no file.
    """
    status = path.stat()
    with path.open("rb") as file:
        is_timed = file.read(1) == b"["
        rest = b"" if is_timed else path.read_bytes()[:most_bytes]
    if not is_timed:
        return _of_lines(rest.decode("utf-8", "replace"))
    if status.st_size > most_bytes:
        return TimedStacks()
    # When it was written, by the clock of the run.
    written_ns = status.st_mtime_ns - time.time_ns() + time.monotonic_ns() + _COARSE_NS
    reader = StackReader(1_000_000 // rate, pid)
    try:
        for event in py_spy_events.events(path):
            reader.take(event)
        reader.settle()
    except UnusableError:
        return TimedStacks()
    return _of_reader(reader, pid, rate, start_ns, written_ns)


def _of_lines(text: str) -> TimedStacks:
    found = TimedStacks()
    for line in filter(None, text.splitlines()):
        stack, _, count = line.rpartition(" ")
        found.counts[stack] += int(count) if count.isascii() and count.isdecimal() else 0
    return found


def _of_reader(
    reader: StackReader, pid: int, rate: int, start_ns: int, written_ns: int
) -> TimedStacks:
    found, period_us = TimedStacks(), 1_000_000 // rate
    latest_ns = written_ns - reader.last * 1000  # py-spy had begun by then
    origin_ns = (start_ns + latest_ns) // 2
    found.bound_ns = max(latest_ns - start_ns, 0) // 2
    lines: dict[int, str] = {}
    ended = _ended(pid)
    for start, end, _, tid, node in zip(*reader.columns.values(), strict=True):
        if node < 0:
            continue
        if node not in lines:
            frames = reader.tree.stack(node)
            lines[node] = ";".join(f"{name} ({file}:{line})" for name, file, line in frames)
        stack = lines[node]
        # One that has ended keeps its last stack until the end of the file.
        count = 1 if end == reader.last and ended(tid) else max(round((end - start) / period_us), 1)
        found.counts[stack] += count
        if tid == pid and latest_ns >= start_ns:  # else somebody set the clock of the machine
            step = (end - start) * 1000 / count
            times = found.times_ns.setdefault(stack, [])
            times += [origin_ns + start * 1000 + round(number * step) for number in range(count)]
    return found


def _ended(pid: int) -> Callable[[int], bool]:
    """Return a function that says whether a thread beside the main one has ended."""
    known: dict[int, bool] = {pid: False}

    def has_ended(tid: int) -> bool:
        if tid not in known:
            known[tid] = not os.path.exists(f"/proc/{pid}/task/{tid}")
        return known[tid]

    return has_ended
