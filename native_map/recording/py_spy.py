"""Reads Python stacks with times from `py-spy record --format chrometrace --threads`.

This is the only format of py-spy with times: raw and flamegraph count whole stacks, speedscope
numbers the samples of each thread. The file has the changes between two samples of a thread: an "E"
for each frame that was left, a "B" for each that was entered, with microseconds since the start of
py-spy. The reader corrects three properties (py-spy 0.4, src/chrometrace.rs):

- `tid` is the address of the pthread (in later versions a number for it), which is the same for the
  main threads of forked processes. Their stacks alternate under one `tid`, and an "E" has the
  process id of the following stack. The frames "process PID:" and "thread (TID):" below each stack
  distinguish them; that TID is the kernel's. A Python before 3.11 does not know it: of a program
  that py-spy does not pause (--nonblocking) the frame has the pthread's address instead. Then the
  main thread has the number of its process, and others have numbers above all of the kernel's.
- A thread that has ended keeps its last stack until the end of the file, which `ends` corrects: the
  threads of a process end with its main thread at the latest.
- The start of py-spy is not in the file. The caller bounds it: it lies after the start of the
  process, before its first line, and before its end by at least the last time in the file.
"""

import io
import json
import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from native_map.errors import UnusableError
from native_map.plain_file import opened
from native_map.recording.python_frame import Frame

_CHUNK = 1 << 20  # no event is longer than this
_PROCESS = re.compile(r"process (\d{1,9}):")
_THREAD = re.compile(r"thread \((\d{1,9}|0x[0-9A-F]{1,16})\)")
_ABOVE_KERNEL = 1 << 30
_MAX_US = 1 << 52  # times are below a century and a half
_MOST_EVENTS = 5_000_000  # 11 hours of 100 samples per second with one changed frame each
MOST_ROWS = 4_000_000  # of samples; in a longer recording each represents several
_HINT = "record again with `lotus trace --py-spy`"


@dataclass(frozen=True)
class PySpyStacks:
    """Samples of Python stacks.

    `samples`: time_ns (CLOCK_MONOTONIC), weight_ns (time that the row represents), count (samples
    that it represents: 1, or more if there would be too many rows), pid, tid (the kernel's), node
    (row of `nodes`; -1: the thread was in no Python function), exact (False: the stack was the same
    as before, and py-spy's file does not say when it was sampled); sorted by time.
    `nodes`: parent (row or -1), function, file, line; a stack is a node with its ancestors.
    `threads`: pid, tid, name. The clocks differ by at most `bound_ns`. In addition, py-spy takes
    the time after sampling all processes, which on a busy machine may be milliseconds later.
    """

    samples: pd.DataFrame
    nodes: pd.DataFrame
    threads: pd.DataFrame
    bound_ns: int

    def frames(self, node: int) -> list[Frame]:
        """Return the frames of a stack, outermost first."""
        frames = []
        while node >= 0:
            row = self.nodes.iloc[node]
            frames.append(Frame(row["function"], row["file"], int(row["line"])))
            node = int(row["parent"])
        return frames[::-1]


class _StackTree:
    """All stacks as one tree, so that memory is proportional to the file."""

    def __init__(self) -> None:
        self.parents = array("q")
        self.frames: list[Frame] = []
        self._known: dict[tuple[int, Frame], int] = {}

    def child(self, parent: int, frame: Frame) -> int:
        node = self._known.setdefault((parent, frame), len(self.frames))
        if node == len(self.frames):
            self.parents.append(parent)
            self.frames.append(frame)
        return node


class _Thread:
    """A thread according to py-spy, which may be the main threads of several forked processes."""

    def __init__(self) -> None:
        # (frame, node or -1 above a thread, pid, tid) from the bottom.
        self.stack: list[tuple[Frame, int, int, int]] = []
        self.current: tuple[int, int] | None = None
        self.open: dict[tuple[int, int], tuple[int, int]] = {}


class _StackReader:
    def __init__(self, period_us: int) -> None:
        self.tree = _StackTree()
        self.columns = {name: array("q") for name in ("start", "end", "pid", "tid", "node")}
        self.threads: dict[int, _Thread] = {}
        self.names: dict[tuple[int, int], str] = {}
        self._unknown: dict[tuple[int, str], int] = {}  # threads without a number of the kernel's
        self.last = 0
        self._period = period_us
        self._group: tuple[int, int] | None = None

    def take(self, event: Any) -> None:
        if not isinstance(event, dict):
            raise UnusableError(
                f"py-spy's file holds {type(event).__name__} instead of events; {_HINT}"
            )
        kind, key, time = event.get("ph"), event.get("tid"), event.get("ts")
        if kind not in ("B", "E"):
            return
        name, args = event.get("name"), event.get("args")
        if (
            not isinstance(key, int)
            or not isinstance(time, int)
            or not 0 <= time < _MAX_US
            or not isinstance(name, str)
            or not isinstance(args, dict)
        ):
            raise UnusableError(
                f"py-spy's file holds an event without name, thread or time; {_HINT}"
            )
        if self._group != (key, time):
            self.settle()
            self._group = (key, time)
            self.last = max(self.last, time)
        thread = self.threads.setdefault(key, _Thread())
        if kind == "B":
            file, line = _text(args.get("filename")), _line(args.get("line"))
            self._enter(thread, Frame(_text(name), file, line))
        elif thread.stack:
            thread.stack.pop()
        else:
            raise UnusableError(f"py-spy's file leaves a function that was not entered; {_HINT}")

    def _enter(self, thread: _Thread, frame: Frame) -> None:
        _, node, pid, tid = thread.stack[-1] if thread.stack else (frame, -1, 0, 0)
        if not frame.file and (match := _PROCESS.match(frame.function)):
            thread.stack.append((frame, -1, int(match[1]), 0))
        elif not frame.file and not tid and (match := _THREAD.match(frame.function)):
            name = frame.function.partition(": ")[2]
            tid = self._number(pid, match[1], name)
            self.names[pid, tid] = name
            thread.stack.append((frame, -1, pid, tid))
        else:
            thread.stack.append((frame, self.tree.child(node, frame), pid, tid))

    def _number(self, pid: int, text: str, name: str) -> int:
        if not text.startswith("0x"):
            return int(text)
        if name == "MainThread":
            return pid
        return self._unknown.setdefault((pid, text), _ABOVE_KERNEL + len(self._unknown))

    def settle(self) -> None:
        """Record the stack of a thread after all events of one time."""
        if self._group is None:
            return
        key, time = self._group
        thread = self.threads[key]
        _, node, pid, tid = thread.stack[-1] if thread.stack else (None, -1, 0, 0)
        if thread.stack and not tid:
            raise UnusableError(
                f"py-spy's file names no threads: it was run without --threads; {_HINT}"
            )
        if not thread.stack:
            # The end of the file. Of the threads with this key, only the last was still running.
            for owner, (start, above) in thread.open.items():
                end = time if owner == thread.current else min(time, start + self._period)
                self._close(owner, start, end, above)
            thread.open.clear()
            thread.current = None
            return
        owner = (pid, tid)
        if owner in thread.open:
            start, above = thread.open[owner]
            self._close(owner, start, time, above)
        thread.open[owner] = (time, node)
        thread.current = owner

    def _close(self, owner: tuple[int, int], start: int, end: int, node: int) -> None:
        if end > start:
            for name, number in zip(self.columns, (start, end, *owner, node), strict=True):
                self.columns[name].append(number)


def read(
    path: Path,
    start_ns: int,
    seen_ns: int,
    end_ns: int,
    period_ns: int,
    ends: Mapping[int, int] | None = None,
) -> PySpyStacks:
    """Read one file.

    py-spy was started at `start_ns` or later, had written its first line at `seen_ns` and had ended
    at `end_ns`, all of CLOCK_MONOTONIC; it samples every `period_ns`. `ends` has the times at which
    processes ended, by the kernel's id of their main threads. Raises UnusableError if it is not
    such a file, OSError if it cannot be read.
    """
    if period_ns < 1000:
        raise ValueError("a period below a microsecond")
    reader = _StackReader(period_ns // 1000)
    for number, event in enumerate(_events(path)):
        if number == _MOST_EVENTS:
            raise UnusableError(f"{path} has more than {_MOST_EVENTS:,} events; {_HINT}")
        reader.take(event)
    reader.settle()
    if any(thread.stack for thread in reader.threads.values()):
        raise UnusableError(f"{path} ends in the middle of a recording; {_HINT}")
    latest_ns = min(seen_ns, end_ns - reader.last * 1000)
    if latest_ns < start_ns:
        raise UnusableError(f"the times in {path} do not fit the run's; {_HINT}")
    origin_ns = (start_ns + latest_ns) // 2
    runs = {name: np.array(column, dtype=np.int64) for name, column in reader.columns.items()}
    nodes = pd.DataFrame(reader.tree.frames, columns=["function", "file", "line"])
    nodes.insert(0, "parent", np.array(reader.tree.parents, dtype=np.int64))
    threads = pd.DataFrame(
        [(pid, tid, name) for (pid, tid), name in reader.names.items()],
        columns=["pid", "tid", "name"],
    )
    samples = _samples(runs, origin_ns, period_ns, ends or {})
    return PySpyStacks(samples, nodes, threads, -(-(latest_ns - start_ns) // 2))


def _samples(
    runs: Mapping[str, np.ndarray], origin_ns: int, period_ns: int, ends: Mapping[int, int]
) -> pd.DataFrame:
    """Give each sampling period of a run a sample of its own; a run may span several."""
    start = runs["start"] * 1000 + origin_ns
    length = (runs["end"] - runs["start"]) * 1000
    if ends:
        last = pd.Series(runs["tid"]).map(pd.Series(ends, dtype="int64"))
        last = last.groupby(runs["pid"]).transform("min")  # of its main thread, for all threads
        limit = last.fillna(np.iinfo(np.int64).max).astype("int64").to_numpy()
        length = np.minimum(length, limit - start)
    keep = length > 0
    start, length = start[keep], length[keep]
    true = np.maximum(1, (length + period_ns // 2) // period_ns)
    # A small file with a long duration must not cost more memory than its size.
    step = -(-int(true.sum()) // max(MOST_ROWS, len(true)))
    count = -(-true // max(step, 1))
    row = np.repeat(np.arange(len(count)), count)
    within = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    weight = length / count
    table = pd.DataFrame(
        {
            "time_ns": start[row] + (within * weight[row]).astype(np.int64),
            "weight_ns": np.rint(weight[row]).astype(np.int64),
            "count": (within + 1) * true[row] // count[row] - within * true[row] // count[row],
            "pid": runs["pid"][keep][row].astype(np.int32),
            "tid": runs["tid"][keep][row].astype(np.int32),
            "node": runs["node"][keep][row],
            "exact": within == 0,
        }
    )
    return table.sort_values("time_ns", kind="stable", ignore_index=True)


def _events(path: Path) -> Iterator[Any]:
    """Yield the elements of a JSON array without loading it."""
    decoder = json.JSONDecoder()
    with io.TextIOWrapper(opened(path), "utf-8", "replace") as file:
        text, at = file.read(_CHUNK).lstrip(), 1
        if not text.startswith("["):
            raise UnusableError(f"{path} is not what py-spy writes as chrometrace; {_HINT}")
        complete = False
        while True:
            while at < len(text) and text[at] in ", \t\r\n":
                at += 1
            if at < len(text) and text[at] == "]":
                return
            try:
                # A number at the end of the text may continue in the next part.
                event, after = decoder.raw_decode(text, at)
                if after == len(text) and not complete:
                    raise ValueError
            except (ValueError, RecursionError):
                chunk = file.read(_CHUNK)
                complete = not chunk
                if complete or len(text) - at > _CHUNK:
                    raise UnusableError(
                        f"{path} is damaged or ends early, as after a full disk; {_HINT}"
                    ) from None
                text, at = text[at:] + chunk, 0
                continue
            at = after
            yield event


def _text(value: Any) -> str:
    """Escape lone surrogates, which pandas cannot store."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else ""


def _line(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else 0
