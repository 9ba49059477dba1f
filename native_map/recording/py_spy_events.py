"""Reads the events of `py-spy record --format chrometrace --threads`: each thread's stacks.

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

This module imports no pandas: the launcher reads such files while the program runs.
"""

import io
import json
import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from native_map.errors import UnusableError
from native_map.plain_file import opened
from native_map.recording.python_frame import Frame

_CHUNK = 1 << 20  # no event is longer than this
_PROCESS = re.compile(r"process (\d{1,9}):")
_THREAD = re.compile(r"thread \((\d{1,9}|0x[0-9A-F]{1,16})\)")
_ABOVE_KERNEL = 1 << 30
_MAX_US = 1 << 52  # times are below a century and a half
HINT = "record again with `lotus trace --py-spy`"


class StackTree:
    """All stacks as one tree, so that memory is proportional to the file."""

    def __init__(self) -> None:
        self.parents = array("q")
        self.frames: list[Frame] = []
        self._known: dict[tuple[int, Frame], int] = {}

    def child(self, parent: int, frame: Frame) -> int:
        """Return the node of a frame that `parent` calls (-1: nothing does)."""
        node = self._known.setdefault((parent, frame), len(self.frames))
        if node == len(self.frames):
            self.parents.append(parent)
            self.frames.append(frame)
        return node

    def stack(self, node: int) -> list[Frame]:
        """Return the frames of a stack, outermost first."""
        frames = []
        while node >= 0:
            frames.append(self.frames[node])
            node = self.parents[node]
        return frames[::-1]


class _Thread:
    """A thread according to py-spy, which may be the main threads of several forked processes."""

    def __init__(self) -> None:
        # (frame, node or -1 above a thread, pid, tid) from the bottom.
        self.stack: list[tuple[Frame, int, int, int]] = []
        self.current: tuple[int, int] | None = None
        self.open: dict[tuple[int, int], tuple[int, int]] = {}


class StackReader:
    """The stacks of each thread over time.

    `columns`: start and end (microseconds since the start of py-spy), pid, tid (the kernel's) and
    node (of `tree`, -1: no Python function) of each time in which a thread's stack was the same.
    `last`: the last time in the file.
    """

    def __init__(self, period_us: int, pid: int = 0) -> None:
        """`pid`: of the only process, where stacks have no frame for theirs."""
        self._pid = pid
        self.tree = StackTree()
        self.columns = {name: array("q") for name in ("start", "end", "pid", "tid", "node")}
        self.threads: dict[int, _Thread] = {}
        self.names: dict[tuple[int, int], str] = {}
        self._unknown: dict[tuple[int, str], int] = {}  # threads without a number of the kernel's
        self.last = 0
        self._period = period_us
        self._group: tuple[int, int] | None = None

    def take(self, event: Any) -> None:
        """Take the next event of the file. Raises UnusableError for one that py-spy never wrote."""
        if not isinstance(event, dict):
            raise UnusableError(
                f"py-spy's file holds {type(event).__name__} instead of events; {HINT}"
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
                f"py-spy's file holds an event without name, thread or time; {HINT}"
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
            raise UnusableError(f"py-spy's file leaves a function that was not entered; {HINT}")

    def _enter(self, thread: _Thread, frame: Frame) -> None:
        _, node, pid, tid = thread.stack[-1] if thread.stack else (frame, -1, self._pid, 0)
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
        """Record the stack of a thread after all events of one time.

        Raises UnusableError where the thread is not named.
        """
        if self._group is None:
            return
        key, time = self._group
        thread = self.threads[key]
        _, node, pid, tid = thread.stack[-1] if thread.stack else (None, -1, 0, 0)
        if thread.stack and not tid:
            raise UnusableError(
                f"py-spy's file names no threads: it was run without --threads; {HINT}"
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


def events(path: Path) -> Iterator[Any]:
    """Yield the elements of a JSON array without loading it. Raises OSError, UnusableError."""
    decoder = json.JSONDecoder()
    with io.TextIOWrapper(opened(path), "utf-8", "replace") as file:
        text, at = file.read(_CHUNK).lstrip(), 1
        if not text.startswith("["):
            raise UnusableError(f"{path} is not what py-spy writes as chrometrace; {HINT}")
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
                        f"{path} is damaged or ends early, as after a full disk; {HINT}"
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
