"""The work of every worker over time, in bins: the time of each kind of work in each bin.

Nothing is selected or left out: a bin holds the exact time of each kind, so that the density of
what is shown is right for any length of the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import int_column
from lotus.analysis.common.run_contents import RunContents
from lotus.common.numbers.array_types import Bools, Floats, Ints
from native_map.estimate import interval_join

# What a thread does other than operations (which have their own names).
OTHER_OPERATIONS = "other operations"
REST = "own code, rest of fetch"
KINDS = {
    "collate": "collate",
    "fetch": REST,
    "idle": "idle",
    "start-up": "start-up",
    "wait": "wait",
    "step": "step",
}
_Lane = tuple[int, int, int, int]  # rank, loader, worker, thread (-1: a worker's only one)
_FILLED = 2  # lanes whose bins are filled, for each that is shown; a run may have thousands


@dataclass(frozen=True)
class Lanes:
    """Shares of time: `share[lane, kind, bin]`, of bins between `edges_ns`.

    edges_ns  points in time, from `start_ns` of the whole on (float, one more than bins)
    lanes     rank, loader, worker (-1: the process that iterates) and pid, one row each
    kinds     operations of most time first, then those of KINDS that occur
    left_out  lanes beyond `most_lanes`, those with the least work
    """

    start_ns: int
    edges_ns: Floats
    lanes: pd.DataFrame
    kinds: list[str]
    share: Floats
    left_out: int

    def seconds(self) -> pd.DataFrame:
        """Return seconds of each kind, one row per lane: their sums over all bins."""
        width = np.diff(self.edges_ns) / 1e9
        table = pd.DataFrame((self.share * width).sum(axis=2), columns=self.kinds)
        return pd.concat([self.lanes.reset_index(drop=True), table], axis=1)


def lanes(
    others: pd.DataFrame,
    contents: RunContents,
    workers: pd.DataFrame,
    ranks: pd.DataFrame,
    bins: int = 1000,
    most_kinds: int = 5,
    most_lanes: int = 64,
) -> Lanes:
    """Fill the lanes.

    From `Run.other_intervals`, the operations of `contents`, which are read again part by part,
    `Run.workers`, and one row (rank, pid) per main process. Sending is left out: another thread
    does it. Operations beyond the `most_kinds` longest are one kind. An interval inside another
    takes its time away from that.
    """
    kept = others[others["kind"].isin(KINDS.keys())]
    sums = contents.operations
    if not len(kept) and not len(sums.cells):
        return Lanes(0, np.zeros(1), _lane_table([]), [], np.zeros((0, 0, 0)), 0)
    begin = min(int(kept["start_ns"].min()) if len(kept) else sums.begin_ns, sums.begin_ns)
    last = max(int(kept["end_ns"].max()) if len(kept) else sums.end_ns, sums.end_ns)
    edges = np.linspace(0, max(last - begin, 1), max(min(bins, last - begin), 1) + 1)
    kinds = _Kinds(kept, sums.cells, most_kinds)
    filled = _Filled(begin, edges, len(kinds.names), workers, ranks, _FILLED * most_lanes)
    beside = _IntervalsBeside(kept.reset_index(drop=True), kinds)
    filled.add(beside.intervals, np.ones(len(kept), np.bool_))
    for part in contents.again(range(len(contents.parts))) if len(sums.cells) else ():
        ops = part.ops
        if len(ops):
            near = beside.around(ops)
            new = np.arange(len(ops) + len(near)) < len(ops)
            filled.add(pd.concat([kinds.of_operations(ops), near], ignore_index=True), new)
    return filled.lanes(kinds.names, most_lanes)


def _lane_table(rows: Sequence[_Lane]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["rank", "loader", "worker", "pid"]).astype("int64")


class _Kinds:
    """Numbers of the kinds of work: operations of most time first, then those of KINDS."""

    def __init__(self, others: pd.DataFrame, cells: pd.DataFrame, most: int) -> None:
        took = cells.groupby("operation", sort=False)["duration_ns"].sum()
        took = took[took > 0].sort_values(ascending=False, kind="stable")
        longest = [str(name) for name in took.index[:most]]
        self.names = longest + ([OTHER_OPERATIONS] if len(took) > most else [])
        self._operations = {name: index for index, name in enumerate(longest)}
        self._rest = max(len(self.names) - 1, 0)
        occur = set(others["kind"].unique())
        self.others = {}
        for name, words in KINDS.items():
            if name in occur:
                self.others[name] = len(self.names)
                self.names.append(words)

    def of_operations(self, ops: pd.DataFrame) -> pd.DataFrame:
        """Return rows of `Run.ops` as intervals with the number of their kind."""
        operation = ops["operation"].astype("category")
        known = [str(name) for name in operation.cat.categories]
        place = np.array([self._operations.get(name, self._rest) for name in known], np.int64)
        start = int_column(ops, "start_ns")
        columns = {"pid": int_column(ops, "pid"), "tid": int_column(ops, "tid"), "start_ns": start}
        end = start + int_column(ops, "duration_ns")
        return pd.DataFrame({**columns, "end_ns": end, "code": place[operation.cat.codes]})


class _IntervalsBeside:
    """The intervals that are no operations, ready for finding those around some operations."""

    def __init__(self, others: pd.DataFrame, kinds: _Kinds) -> None:
        code = np.zeros(len(others), np.int64)
        for name, number in kinds.others.items():
            code[(others["kind"] == name).to_numpy()] = number
        columns = {name: int_column(others, name) for name in ("pid", "tid", "start_ns", "end_ns")}
        self.intervals = pd.DataFrame({**columns, "code": code})
        order = np.lexsort((columns["start_ns"], columns["pid"]))
        self._sorted = self.intervals.iloc[order]
        self._start = columns["start_ns"][order]
        pid = columns["pid"][order]
        first = np.flatnonzero(np.append(True, pid[1:] != pid[:-1])) if len(pid) else pid
        ends = np.append(first[1:], len(pid))[: len(first)]
        self._of = {
            int(pid[low]): (int(low), int(high)) for low, high in zip(first, ends, strict=True)
        }
        self._latest = columns["end_ns"][order]  # end of those of a process that began until then
        for low, high in self._of.values():
            np.maximum.accumulate(self._latest[low:high], out=self._latest[low:high])

    def around(self, ops: pd.DataFrame) -> pd.DataFrame:
        """Return the intervals of the same processes at the time of these operations."""
        pids, start = int_column(ops, "pid"), int_column(ops, "start_ns")
        end, parts = start + int_column(ops, "duration_ns"), []
        for pid in np.unique(pids).tolist():
            low, high = self._of.get(pid, (0, 0))
            mine = pids == pid
            since = np.searchsorted(self._latest[low:high], start[mine].min(), side="left")
            until = np.searchsorted(self._start[low:high], end[mine].max(), side="right")
            parts.append(self._sorted.iloc[low + int(since) : low + max(int(since), int(until))])
        return pd.concat(parts)


class _Filled:
    """Lanes that are filled with intervals, a part at a time."""

    def __init__(
        self,
        begin: int,
        edges: Floats,
        kinds: int,
        workers: pd.DataFrame,
        ranks: pd.DataFrame,
        most: int,
    ) -> None:
        self.begin, self.edges, self.kinds, self.most = begin, edges, kinds, most
        self.width = edges[-1] / (len(edges) - 1)
        columns = (
            int_column(workers, name).tolist() for name in ("pid", "rank", "loader", "worker")
        )
        self.workers = {
            pid: (rank, loader, worker) for pid, rank, loader, worker in zip(*columns, strict=True)
        }
        of_ranks = (int_column(ranks, name).tolist() for name in ("pid", "rank"))
        self.ranks: dict[int, int] = dict(zip(*of_ranks, strict=True))
        # Per lane and bin: how many begin less how many end, and how long from then to the bin's
        # end.
        self.sums: dict[_Lane, Floats] = {}
        self.left_out: set[_Lane] = set()

    def add(self, intervals: pd.DataFrame, new: Bools) -> None:
        """Add the time of the `new` ones; the others are around them, or within."""
        if not len(intervals):
            return
        index = interval_join.index(intervals)
        parent, fresh = index.parent, new[index.rows]
        kind = int_column(intervals, "code")[index.rows]
        thread = np.repeat(np.arange(len(index.keys)), np.diff(index.bounds))
        names = [self._lane(key) for key in index.keys.tolist()]
        lasted = np.maximum(index.end_ns - index.start_ns, 0).astype(np.float64)
        took = np.bincount(thread, lasted, len(names)).astype(np.float64)
        known = self._places(names, took)
        lane = np.array([known.get(name, -1) for name in names], np.int64)[thread]
        # An interval's time counts for its kind, and no longer for the kind around it.
        inside = np.flatnonzero(fresh & (parent >= 0))
        between = np.flatnonzero(~fresh & (parent >= 0) & fresh[np.maximum(parent, 0)])
        beyond = parent[between]
        while (deeper := (beyond >= 0) & fresh[np.maximum(beyond, 0)]).any():
            beyond[deeper] = parent[beyond[deeper]]
        further = beyond >= 0
        own = np.flatnonzero(fresh)
        position = np.concatenate((own, inside, between, between[further]))
        of = np.concatenate((own, parent[inside], parent[between], beyond[further]))
        counts = (len(own), len(inside), len(between), int(further.sum()))
        sign = np.repeat((1.0, -1.0, -1.0, 1.0), counts)
        shown = lane[position] >= 0
        position, of, sign = position[shown], of[shown], sign[shown]
        sums = self._binned(
            (lane[position] * self.kinds + kind[of]),
            sign,
            (index.start_ns[position], np.maximum(index.end_ns, index.start_ns)[position]),
            len(known),
        )
        for name, place in known.items():
            self.sums[name] = self.sums[name] + sums[place] if name in self.sums else sums[place]

    def _places(self, names: Sequence[_Lane], took: Floats) -> dict[_Lane, int]:
        """Number the lanes of these threads: those there already, and the longest that fit."""
        lengths: dict[_Lane, float] = {}
        for name, length in zip(names, took.tolist(), strict=True):
            lengths[name] = lengths.get(name, 0.0) + length
        fresh = [name for name in lengths if name not in self.sums and name not in self.left_out]
        if (room := self.most - len(self.sums)) < len(fresh):
            fresh.sort(key=lambda name: -lengths[name])
            self.left_out.update(fresh[room:])
        kept = [name for name in lengths if name not in self.left_out]
        return {name: index for index, name in enumerate(kept)}

    def _binned(self, code: Ints, sign: Floats, times: tuple[Ints, Ints], lanes: int) -> Floats:
        bins = len(self.edges) - 1
        size = lanes * self.kinds * bins
        total = np.zeros((2, size))
        for time, factor in zip(times, (1.0, -1.0), strict=True):
            since = (time - self.begin).astype(np.float64)
            at = np.minimum((since / self.width).astype(np.int64), bins - 1)
            place = code * bins + at
            total[0] += np.bincount(place, factor * sign, size)
            total[1] += np.bincount(place, factor * sign * (self.edges[at + 1] - since), size)
        return total.reshape(2, lanes, self.kinds, bins).transpose(1, 0, 2, 3)

    def _lane(self, key: int) -> _Lane:
        """Return the lane of a thread; workers of one number share one."""
        pid, tid = key >> 32, key & 0xFFFFFFFF
        if pid in self.workers and tid == pid:
            return (*self.workers[pid], -1)
        # A process that iterates: one lane for each thread that does.
        return (self.ranks.get(pid, self.workers.get(pid, (0,))[0]), -1, -1, tid)

    def lanes(self, names: list[str], most: int) -> Lanes:
        """Return the lanes, without the idlest beyond `most`."""
        ordered = sorted(self.sums, key=lambda key: (key[0], key[2] >= 0, *key[1:]))
        number, rest = (np.stack([self.sums[lane][each] for lane in ordered]) for each in (0, 1))
        open_before = np.cumsum(number, axis=2) - number
        widths = np.diff(self.edges)
        share = np.clip((open_before * widths + rest) / widths, 0.0, 1.0)
        busy = share.sum(axis=(1, 2))
        order = sorted(np.argsort(-busy, kind="stable")[:most].tolist())
        table = _lane_table(ordered).iloc[order].reset_index(drop=True)
        left_out = len(ordered) - len(order) + len(self.left_out)
        return Lanes(self.begin, self.edges, table, names, share[order], left_out)
