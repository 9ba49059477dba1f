"""Reads the settings of loaders from the local variables of torch's own frames, by `py-spy dump`.

A worker's loop has its arguments there: how many workers there are, what kind of data set, whether
the workers are kept; and the indices of the batch that it makes. What is in an object, as the
prefetch factor is, py-spy does not show. An operation that inherits its `__call__` has its own
class there too, where a stack has only the class that defines the method.
"""

import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lotus.attach.stacks import stack_phases
from lotus.recording.child_process import Child
from native_map.recording.python_frame import Frame

_MOST = 8  # dumps in all
_MOST_OF_WORKER = 2
_DETAIL = "-" + "l" * 99  # 12,800 characters a value: the indices of some thousand samples
_MOST_BYTES = 32 << 20
_SPAWN = re.compile(r"/multiprocessing/(spawn|forkserver)\.py$")
_INHERITED = re.compile(r"(?:.*\.)?(\w+)\.(?:__call__|forward)")
_LEAST_TIMES = 3  # an operation was seen: fewer do not show its class
_OBJECT = re.compile(r"^<([\w.]+) at 0x")
_INTEGERS = re.compile(r"\d{1,18}(, \d{1,18})*")


@dataclass(frozen=True)
class FrameLocals:
    """The variables of one process's frames that concern its loader; -1 and "": not known.

    workers      num_workers
    iterable, drop_last, persistent, spawned    1: yes, 0: no
    batch        samples of the batch that it made; 0: the data set makes batches (batch_size=None)
    in_sequence  1: these were numbered one after the other, 0: not
    dataset      its class
    """

    pid: int
    workers: int = -1
    iterable: int = -1
    drop_last: int = -1
    persistent: int = -1
    spawned: int = -1
    batch: int = -1
    in_sequence: int = -1
    dataset: str = ""


class LocalsReader:
    """Reads one process after the other.

    seen: what was read of each process
    classes: the classes of operations, counted by the class that defines their method
    """

    def __init__(self, path: str) -> None:
        self.seen: list[FrameLocals] = []
        self.classes: dict[str, Counter[str]] = {}
        self.cpu_ns = 0
        self._path = path
        self._dumps: dict[int, int] = {}
        self._complete: set[int] = set()  # processes of which all variables are known
        self._child: Child | None = None
        self._pid = -1

    def look(self, workers: Sequence[int], mains: Sequence[int]) -> None:
        """Collect what was read, and begin with the next worker, or main process without one."""
        if self._child is not None and not self._child.ended():
            return
        self._take()
        # The latest come first: they may be of another loader.
        left = [pid for pid in reversed(workers or mains) if pid not in self._complete]
        if workers:
            left = [pid for pid in left if self._dumps.get(pid, 0) < _MOST_OF_WORKER]
        if not left and any(set(met) - {owner} for owner, met in self.classes.items()):
            left = list(workers or mains)
        if left and sum(self._dumps.values()) < _MOST:
            self._begin(min(left, key=lambda pid: self._dumps.get(pid, 0)))

    def finish(self) -> None:
        """Wait for the reading in progress, collect it, and end."""
        if self._child is not None and self._child.wait(5.0):
            self._take()
        self.kill()

    def kill(self) -> None:
        """End and discard the reading in progress."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _begin(self, pid: int) -> None:
        self._dumps[pid] = self._dumps.get(pid, 0) + 1
        self._pid = pid
        words = [self._path, "dump", f"--pid={pid}", "--nonblocking", "--full-filenames", "--json"]
        try:
            self._child = Child([*words, _DETAIL])
        except OSError:
            self._dumps[pid] = _MOST

    def _take(self) -> None:
        if self._child is None:
            return
        self.cpu_ns += self._child.cpu_ns or 0
        settings, classes = of_dump(self._pid, self._child.text(_MOST_BYTES))
        self.kill()
        for owner, own in classes.items():
            self.classes.setdefault(owner, Counter())[own] += 1
        if settings is not None:
            self.seen.append(settings)
            if settings.batch >= 0:
                self._complete.add(settings.pid)


def names_of(classes: Mapping[str, Mapping[str, int]]) -> dict[str, str]:
    """Return names of operations by the name of the class that defines their method.

    A name says how often the operation was met, and how often with its most frequent class.
    """
    names = {}
    for owner, counts in classes.items():
        times = sum(counts.values())
        most = max(counts, key=lambda name: counts[name])
        if times >= _LEAST_TIMES and most != owner:
            names[owner] = f"{owner} (of {most}, {counts[most]} of {times} times)"
    return names


def of_dump(pid: int, text: str) -> tuple[FrameLocals | None, dict[str, str]]:
    """Return what a dump of a process says about its loader (None: nothing), and operations.

    These are classes by the class that defines their method, if any method is inherited.
    """
    try:
        threads, _ = json.JSONDecoder().raw_decode(text[max(text.find("["), 0) :])
        for thread in threads if isinstance(threads, list) else ():
            frames = [_frame(each) for each in thread["frames"]]
            settings = _of_frames(pid, frames)
            if settings is not None:
                return settings, _classes(frames)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass  # the process has ended, or it changed while it was read
    return None, {}


_Read = tuple[Frame, Mapping[str, str]]


def _frame(frame: Mapping[str, Any]) -> _Read:
    values = {str(row["name"]): str(row["repr"]) for row in frame["locals"] or ()}
    return Frame(str(frame["name"]), str(frame["filename"]), int(frame["line"])), values


def _of_frames(pid: int, frames: Sequence[_Read]) -> FrameLocals | None:
    loops = [place for place, each in enumerate(frames) if stack_phases.is_worker_loop(each[0])]
    # Innermost first. A data set may iterate a loader of its own.
    inner = frames[: loops[0]] if loops else frames
    fetches = [each for each in inner if stack_phases.is_fetch(each[0])]
    if not loops and not fetches:
        return None
    batch, in_sequence = _batch(fetches[-1][1]) if fetches else (-1, -1)
    if not loops:  # a main process without workers
        name = fetches[-1][0].function
        iterable = int("Iterable" in name) if "." in name else -1
        return FrameLocals(pid, 0, iterable, batch=batch, in_sequence=in_sequence)
    values = frames[loops[0]][1]
    named = _OBJECT.match(values.get("dataset", ""))
    return FrameLocals(
        pid,
        workers=_whole(values.get("num_workers", "")),
        iterable=min(_whole(values.get("dataset_kind", "")), 1),
        drop_last=_truth(values.get("drop_last", "")),
        persistent=_truth(values.get("persistent_workers", "")),
        spawned=int(any(_SPAWN.search(frame.file) for frame, _ in frames)),
        batch=0 if values.get("auto_collation") == "False" else batch,
        in_sequence=in_sequence,
        dataset=named[1][:200] if named else "",
    )


def _classes(frames: Sequence[_Read]) -> dict[str, str]:
    """Return the outermost frame in a fetch of each class that defines a method."""
    fetches = [place for place, each in enumerate(frames) if stack_phases.is_fetch(each[0])]
    classes: dict[str, str] = {}
    for frame, values in reversed(frames[: fetches[0]] if fetches else ()):
        owner, own = _INHERITED.fullmatch(frame.function), _OBJECT.match(values.get("self", ""))
        if owner and own:
            classes.setdefault(owner[1], own[1].rpartition(".")[2][:200])
    return classes


def _batch(values: Mapping[str, str]) -> tuple[int, int]:
    """Return (samples of a batch, whether their indices are consecutive); -1: unknown."""
    text = values.get("possibly_batched_index", "")
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else ""
    if inner and set(inner.split(", ")) == {"None"}:  # of a stream
        return inner.count("None"), -1
    if not _INTEGERS.fullmatch(inner):  # cut off, or other than numbers
        return -1, -1
    numbers = [int(number) for number in inner.split(", ")]
    follow = all(after == before + 1 for before, after in itertools.pairwise(numbers))
    return len(numbers), int(follow) if len(numbers) > 2 else -1


def _whole(text: str) -> int:
    return int(text) if re.fullmatch(r"\d{1,6}", text) else -1


def _truth(text: str) -> int:
    return {"True": 1, "False": 0}.get(text, -1)
