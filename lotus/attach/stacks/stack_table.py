"""Turns sampled stacks into samples with labels: the work of each thread over time."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from lotus.analysis.attached.evidence import phases
from lotus.attach.processes.stopped_time import StoppedTime
from lotus.attach.stacks import read_frames, stack_moments, stack_phases
from lotus.attach.stacks.source_lines import SourceLines
from lotus.attach.stacks.stack_phases import FEEDER, Label, Site
from native_map.recording.py_spy import PySpyStacks
from native_map.recording.python_frame import Frame

_COLUMNS = ("time_ns", "weight_ns", "pid", "tid", "label")
_MOST_LABELS = 19_000


class StackTable:
    """Samples with labels.

    torn: the number of impossible stacks, see read_frames.is_torn
    own_threads: the number of the program's Python threads besides the main one, by process
    moments: see stack_moments; at the earliest times that the clocks allow
    """

    def __init__(self, sources: SourceLines, watched: set[int]) -> None:
        self.labels: list[Label] = []
        self.sites: list[Site] = []
        self.threads: list[tuple[int, int, str]] = []
        self.samples = pd.DataFrame({name: pd.Series(dtype="int64") for name in _COLUMNS})
        self.moments = stack_moments.moments(self.samples.assign(exact=False))
        self.torn = 0
        self.own_threads: dict[int, int] = {}
        self._sources = sources
        self._watched = watched
        self._numbers: dict[Label, int] = {}
        self._makers: dict[int, int] = {}
        self._parts: list[tuple[PySpyStacks, set[int]]] = []

    def add(self, stacks: PySpyStacks, mains: set[int]) -> None:
        """Add the samples of one recorder; `mains` are the main processes."""
        self._parts.append((stacks, mains))

    def finish(self) -> None:
        """Label all samples, after the last stacks are added: these define the loops."""
        frames: dict[tuple[int, int], list[Frame] | None] = {}
        for part, (stacks, _) in enumerate(self._parts):
            for node, stack in _stacks(stacks).items():
                torn = read_frames.is_torn(stack)
                frames[part, node] = None if torn else read_frames.qualified(stack, self._sources)
        every: list[list[Frame]] = []
        for part, (stacks, _) in enumerate(self._parts):
            table = stacks.samples
            nodes = table.loc[table["pid"].isin(self._watched), "node"].unique()
            every += [kept for node in nodes if (kept := frames[part, int(node)])]
        self.sites = stack_phases.find_loops(every, self._sources)
        self._makers = stack_phases.made_elsewhere(every, self.sites)
        tables = []
        for part, (stacks, mains) in enumerate(self._parts):
            tables.append(self._labelled(part, stacks, mains, frames))
        if tables:
            self.samples = pd.concat([table for table, _ in tables], ignore_index=True)
            self.moments = pd.concat([table for _, table in tables], ignore_index=True)

    def rename(self, names: Mapping[str, str]) -> None:
        """Give operations other names."""
        self.labels = [
            replace(label, name=names.get(label.name, label.name))
            if label.phase == phases.OPERATION
            else label
            for label in self.labels
        ]

    def leave_out_after(self, end_ns: int) -> None:
        """Leave out samples after `end_ns`, when nothing else was read any more."""
        self.samples = self.samples[self.samples["time_ns"] < end_ns]
        self.moments = self.moments[self.moments["time_ns"] < end_ns]

    def leave_out_stopped(self, stopped: StoppedTime, bound_ns: int) -> None:
        """Leave out the time in which a process was stopped.

        bound_ns: largest difference between the clocks of stacks and of looks
        """
        begin = self.samples["time_ns"].to_numpy(np.int64)
        end = begin + self.samples["weight_ns"].to_numpy(np.int64)
        self.samples = self.samples[~stopped.overlaps(begin, end, bound_ns)]
        # Moments are at the earliest times that the clocks allow.
        time = self.moments["time_ns"].to_numpy(np.int64) + bound_ns
        self.moments = self.moments[~stopped.overlaps(time, time, bound_ns)]

    def _labelled(
        self,
        part: int,
        stacks: PySpyStacks,
        mains: set[int],
        frames: dict[tuple[int, int], list[Frame] | None],
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the samples of one recorder with their labels, and its moments."""
        names = {
            (int(pid), int(tid)): str(name)
            for pid, tid, name in stacks.threads.itertuples(index=False)
        }
        table = stacks.samples[stacks.samples["pid"].isin(self._watched)]
        numbers: dict[tuple[int, int, int], int] = {}
        keys = table[["pid", "tid", "node"]].drop_duplicates()
        for pid, tid, node in keys.itertuples(index=False, name=None):
            stack = frames[part, int(node)]
            if stack is None:
                numbers[pid, tid, node] = -1
                continue
            label = self._label(int(pid), int(tid), names.get((pid, tid), ""), stack, mains)
            numbers[pid, tid, node] = self._number(stack_phases.of_taker(label, self._makers))
        rows = zip(table["pid"], table["tid"], table["node"], strict=True)
        labelled = table.assign(label=[numbers[row] for row in rows])
        torn = labelled["label"] < 0
        self.torn += int(labelled.loc[torn, "count"].sum())
        kept = labelled.loc[~torn, list(_COLUMNS)].astype("int64")
        for pid, tid in kept[["pid", "tid"]].drop_duplicates().itertuples(index=False, name=None):
            name = names.get((pid, tid), "")
            self.threads.append((int(pid), int(tid), name[:200]))
            if tid != pid and not _is_of_loader(name, kept, self.labels, pid, tid):
                self.own_threads[int(pid)] = self.own_threads.get(int(pid), 0) + 1
        for pid in self._watched:
            self.own_threads.setdefault(pid, 0)
        times = stack_moments.moments(labelled)
        return kept, times.assign(time_ns=times["time_ns"] - stacks.bound_ns)

    def _label(self, pid: int, tid: int, name: str, stack: list[Frame], mains: set[int]) -> Label:
        if pid not in mains:
            if tid != pid:
                return stack_phases.label_helper(name, stack)
            return stack_phases.label_worker(stack, self.sites, self._sources)
        label = stack_phases.label_main(stack, self.sites, self._sources)
        if tid != pid and label.phase in (phases.OUTSIDE, phases.IMPORTS):
            return stack_phases.label_helper(name, stack)
        return label

    def _number(self, label: Label) -> int:
        if len(self._numbers) >= _MOST_LABELS:
            label = Label(label.phase, label.name, label.loop)
        number = self._numbers.get(label)
        if number is None:
            number = self._numbers[label] = len(self.labels)
            self.labels.append(label)
        return number


def _stacks(stacks: PySpyStacks) -> dict[int, list[Frame]]:
    """Return the frames of each sampled node, outermost first."""
    columns = (stacks.nodes[name].tolist() for name in ("parent", "function", "file", "line"))
    nodes = list(zip(*columns, strict=True))
    result: dict[int, list[Frame]] = {}
    for node in stacks.samples["node"].unique().tolist():
        frames, at = [], node
        while at >= 0:
            parent, *frame = nodes[at]
            frames.append(Frame(*frame))
            at = parent
        result[node] = frames[::-1]
    return result


def _is_of_loader(
    name: str, samples: pd.DataFrame, labels: list[Label], pid: int, tid: int
) -> bool:
    """Return whether torch started a thread: to feed a queue, to pin or to share memory."""
    if name.startswith(FEEDER) or "_serve" in name or "_pin_memory_loop" in name:
        return True
    mine = samples[(samples["pid"] == pid) & (samples["tid"] == tid)]
    of_loader = (phases.FEEDER_IDLE, phases.PIN)
    return any(labels[int(number)].phase in of_loader for number in mine["label"].unique())
