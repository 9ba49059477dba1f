"""Stacks with their share of an event, for flame graphs and profiles.

Traced time and exact counts have frames for loader, phase and operation; samples add library and
function. Nested operations are counted once, in the inner one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from lotus.common.errors import LotusError
from lotus.common.numbers.array_types import Ints
from lotus.common.terminal.progress import Advance
from lotus.common.text.formatting import operation_name, plain
from lotus.export.interval_nesting import Nested, nest
from lotus.export.timelines.timeline import (
    BACKWARD,
    DEVICE,
    EPOCH,
    KINDS,
    OPERATION,
    SAMPLE,
    SYNC,
    Slices,
    Timeline,
)
from lotus.export.timelines.tracks import Track, Tracks
from lotus.reading.logs.frame_scanner import Array
from lotus.reading.logs.process_tree import groups
from lotus.reading.tables import counter_tables, table_pieces

if TYPE_CHECKING:
    from lotus.reading.run import Run
TIME = "time"
NS, COUNT = "nanoseconds", "count"
_CLOCKS = ("task_clock", "cpu_clock", "task-clock", "cpu-clock")


class StackRow(NamedTuple):
    """A stack, outermost frame first, and its own share of the event."""

    rank: int
    process: str  # `worker 3 (pid 123)`; "": of all
    worker: int  # -1: none, or all
    frames: tuple[str, ...]
    libraries: tuple[str, ...]  # of the frames, "" for those that have none
    operation: str
    value: float


@dataclass(frozen=True)
class Weight:
    """An event and its stacks; stacks without any of it are left out."""

    event: str
    unit: str  # NS or COUNT
    rows: list[StackRow]
    sampled: bool = False


@dataclass
class EventStacks:
    """The stacks of a run by event; remarks on missing data are added to `notes`."""

    run: "Run"
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counted = counter_tables.names_of(self.run._outline)
        self._functions: pd.DataFrame | None = None

    @property
    def functions(self) -> pd.DataFrame:
        """`Run.functions`; empty, with a remark, if the samples cannot be read."""
        if self._functions is None:
            try:
                self._functions = self.run.functions
            except LotusError as error:
                self.notes.append(f"the samples are left out: {error}")
                self._functions = pd.DataFrame(columns=["event"])
        return self._functions

    @property
    def sampled(self) -> list[str]:
        """The events that were sampled."""
        return [str(event) for event in pd.unique(self.functions["event"])]

    def chosen(self, event: str | None, progress: Advance) -> Weight:
        """Return the stacks of an event; None: the first sampled event, else time.

        Raises LotusError if the run does not have the event.
        """
        if event is None:
            event = next(iter(self.sampled), TIME)
        if event == TIME:
            return self.time(progress)
        if event in self.counted and event not in self.sampled:
            return self.exact(event)
        if event in self.sampled:
            return self.samples(event)
        events = ", ".join(plain(name) for name in [TIME, *self.sampled, *self.counted])
        raise LotusError(f"this run has no {plain(event)}: --weight takes one of {events}")

    def all(self, progress: Advance) -> Iterator[Weight]:
        """Return stacks for every sampled event, for time, and for every counted event."""
        for event in self.sampled:
            yield self.samples(event)
        yield self.time(progress)
        for event in self.counted:
            yield self.exact(event)

    def samples(self, event: str) -> Weight:
        """Return stacks of operation, library and function, weighted by a sampled event."""
        rows = []
        table = self.functions
        columns = ("kind", "operation", "helper_of", "library", "function", "count")
        table = table[table["event"] == event]
        for kind, operation, helper_of, library, function, count in zip(
            *(table[name].tolist() for name in columns), strict=True
        ):
            title = operation_name(operation)
            first = title or str(kind)
            if isinstance(helper_of, str) and helper_of:
                first = f"threads of {operation_name(helper_of)}"
            frames = (first, str(library), str(function))
            libraries = ("", str(library), str(library))
            if count > 0:
                rows.append(StackRow(0, "", -1, frames, libraries, title, float(count)))
        name = event.partition(":")[0]
        return Weight(event, NS if name in _CLOCKS else COUNT, rows, sampled=True)

    def time(self, progress: Advance) -> Weight:
        """Return stacks of workers and operations, weighted by their own time in nanoseconds."""
        timeline = Timeline(self.run, self.notes)
        total = table_pieces.whole(self.run)
        tree = _StackSums(self.run, timeline.tracks)
        names: list[str] = []
        places: dict[int, Track] = {}
        for chunk in timeline.chunks(counters=False):
            names += chunk.names
            places |= {place.id: place for place in chunk.tracks}
            slices = chunk.slices
            # A backward pass and the work of the device are parts of a step.
            double = np.isin(slices.kind, (EPOCH, BACKWARD, SYNC, DEVICE))
            shown = np.flatnonzero(~double & (slices.track > 0))
            slices = Slices(*(column[shown] for column in slices))
            nested = nest(slices.track, slices.start_ns, slices.end_ns, slices.kind)
            slices = Slices(*(column[nested.order] for column in slices))
            durations = (nested.end - slices.start_ns).astype(np.float64)
            owner = np.array([places[track].owner for track in slices.track.tolist()], np.int64)
            # A sample is part of its fetch; its own time is that of the data set's own code.
            frame = np.where(slices.kind == SAMPLE, -1, slices.name)
            tree.add(
                nested, owner, slices.loader, frame, slices.kind == OPERATION, durations, names
            )
            progress(chunk.done, total)
        return Weight(TIME, NS, tree.rows())

    def exact(self, event: str) -> Weight:
        """Return stacks of workers and operations, weighted by their own count of an event."""
        counters = self.run.counters
        tracks = Tracks(self.run)
        tree = _StackSums(self.run, tracks)
        values = counters[event].to_numpy(np.float64)
        missing = int(np.isnan(values).sum())
        if missing:
            self.notes.append(f"{event} is not known of {missing} intervals, which are left out")
        some = counters[~np.isnan(values)]
        keys = zip(*(some[name] for name in ("rank", "host", "pid")), strict=True)
        owner = np.array([tracks.numbers[key] for key in keys], np.int64)
        thread = pd.factorize(pd.MultiIndex.from_arrays([owner, some["tid"]]))[0]
        kind = some["kind"].astype(str).to_numpy(object)
        names = list(KINDS) + [
            operation_name(operation) for operation in some["operation"].cat.categories
        ]
        name = np.array([KINDS.index(word) for word in kind], np.int64)
        is_op = kind == "operation"
        name = np.where(is_op, len(KINDS) + some["operation"].cat.codes.to_numpy(), name)
        start = some["start_ns"].to_numpy(np.int64)
        end = start + np.maximum(some["duration_ns"].to_numpy(np.int64), 0)
        nested = nest(thread.astype(np.int64), start, end, name * is_op + (kind == "collate"))
        order = nested.order
        loader = some["loader"].to_numpy(np.int64)
        value = some[event].to_numpy(np.float64)
        tree.add(
            nested, owner[order], loader[order], name[order], is_op[order], value[order], names
        )
        return Weight(event, NS if event in _CLOCKS else COUNT, tree.rows())


class _StackSums:
    """Sums of the exclusive values of each stack."""

    def __init__(self, run: "Run", tracks: Tracks) -> None:
        self._run = run
        self._tracks = tracks
        # Above it (-1 - process: none), frame, is it an operation.
        self._nodes: list[tuple[int, str, bool]] = []
        self._numbers: dict[tuple[int, str, bool], int] = {}
        self._sums = np.zeros(0)

    def add(
        self,
        nested: Nested,
        owner: Ints,
        loader: Ints,
        name: Ints,
        operation: Array,
        value: Array,
        names: list[str],
    ) -> None:
        """Add rows in nesting order; `name` -1: no separate frame. Values are inclusive."""
        node = np.full(len(name), -1, np.int64)
        for depth in range(int(nested.depth.max(initial=-1)) + 1):
            mine = np.flatnonzero(nested.depth == depth)
            parent = nested.parent[mine]
            above = np.where(parent >= 0, node[parent], -1) if depth else parent
            keys = (above, owner[mine], loader[mine], name[mine], operation[mine])
            code = groups(*keys)
            distinct, first = np.unique(code, return_index=True)
            of_code = np.zeros(int(code.max(initial=-1)) + 1, np.int64)
            columns = (column[first].tolist() for column in keys)
            of_code[distinct] = [self._node(names, *key) for key in zip(*columns, strict=True)]
            node[mine] = of_code[code]
        inside = nested.parent >= 0
        own = value - np.bincount(nested.parent[inside], value[inside], minlength=len(value))
        sums = np.zeros(len(self._nodes))
        sums[: len(self._sums)] = self._sums
        self._sums = sums + np.bincount(node, own, minlength=len(sums))

    def _node(
        self, names: list[str], above: int, owner: int, loader: int, name: int, operation: int
    ) -> int:
        if above < 0:
            above = self._child(-1 - owner, self._loader(owner, loader), False)
        return above if name < 0 else self._child(above, plain(names[name]), bool(operation))

    def _loader(self, owner: int, loader: int) -> str:
        if loader < 0:
            return "outside of loaders"
        return self._tracks.loader(self._run._outline.processes[owner].rank, loader)

    def _child(self, above: int, frame: str, operation: bool) -> int:
        key = (above, frame, operation)
        if key not in self._numbers:
            self._numbers[key] = len(self._nodes)
            self._nodes.append(key)
        return self._numbers[key]

    def rows(self) -> list[StackRow]:
        rows = []
        processes = self._run._outline.processes
        for at, value in enumerate(self._sums.tolist()):
            if value <= 0:
                continue
            frames, operation, above = [], "", at
            while above >= 0:
                above, frame, is_operation = self._nodes[above]
                frames.append(frame)
                operation = operation or (frame if is_operation else "")
            process = processes[-1 - above]
            label = self._tracks.label(-1 - above)
            stack = tuple(reversed(frames))
            none = ("",) * len(stack)
            rows.append(
                StackRow(process.rank, label, process.worker, stack, none, operation, value)
            )
        return rows
