"""What every worker did over time, in bins: how long each kind of work took in each of them.

Nothing is picked out or left out: a bin holds the exact time of each kind, so that the density of
what is shown is right whatever the length of the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from lotus.analysis.common.columns import Floats, Ints, integer
from native_map.estimate import interval_join

# What a thread does, beside operations (which have their own names).
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
        """Seconds of each kind, one row per lane: their sums over all bins."""
        width = np.diff(self.edges_ns) / 1e9
        table = pd.DataFrame((self.share * width).sum(axis=2), columns=self.kinds)
        return pd.concat([self.lanes.reset_index(drop=True), table], axis=1)


def lanes(
    intervals: pd.DataFrame,
    workers: pd.DataFrame,
    ranks: pd.DataFrame,
    bins: int = 1000,
    most_kinds: int = 5,
    most_lanes: int = 64,
) -> Lanes:
    """Fill them from `Run.intervals`, `Run.workers`, and one row (rank, pid) per main process.

    Sending is left out: it is done by a thread beside. Operations beyond the `most_kinds` longest
    are one kind. An interval inside another takes its time away from that.
    """
    kept = intervals[intervals["kind"].isin(KINDS.keys() | {"operation"})]
    if not len(kept):
        return Lanes(0, np.zeros(1), _lane_table([]), [], np.zeros((0, 0, 0)), 0)
    index = interval_join.index(kept.reset_index(drop=True))
    start, end, rows, parent = index.start_ns, index.end_ns, index.rows, index.parent
    thread = np.repeat(np.arange(len(index.keys)), np.diff(index.bounds))
    lane_of_thread, table = _lanes_of(index.keys, workers, ranks)
    kind, names = _kinds(kept, rows, np.maximum(end - start, 0), most_kinds)
    lane = lane_of_thread[thread]
    begin, last = int(start.min()), int(end.max())
    edges = np.linspace(0, max(last - begin, 1), max(min(bins, last - begin), 1) + 1)
    # An interval's time is its kind's, and no longer that of the kind around it.
    inner = parent >= 0
    code = np.concatenate((lane * len(names) + kind, (lane * len(names) + kind[parent])[inner]))
    sign = np.concatenate((np.ones(len(kind)), np.full(int(inner.sum()), -1.0)))
    starts = np.concatenate((start - begin, (start - begin)[inner]))
    ends = np.concatenate((end - begin, (end - begin)[inner]))
    until = _until(code, sign, starts, ends, edges, len(table) * len(names))
    share = np.diff(until, axis=1) / np.diff(edges)
    share = np.clip(share, 0.0, 1.0).reshape(len(table), len(names), len(edges) - 1)
    busy = share.sum(axis=(1, 2))
    order = sorted(np.argsort(-busy, kind="stable")[:most_lanes].tolist())
    return Lanes(
        begin,
        edges,
        table.iloc[order].reset_index(drop=True),
        names,
        share[order],
        len(table) - len(order),
    )


def _lane_table(rows: Sequence[tuple[int, int, int, int]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["rank", "loader", "worker", "pid"]).astype("int64")


def _lanes_of(keys: Ints, workers: pd.DataFrame, ranks: pd.DataFrame) -> tuple[Ints, pd.DataFrame]:
    """The lane of each thread, and a row for each lane; workers of one number share one."""
    columns = (integer(workers, name).tolist() for name in ("pid", "rank", "loader", "worker"))
    known = {
        pid: (rank, loader, worker) for pid, rank, loader, worker in zip(*columns, strict=True)
    }
    rank_of = dict(
        zip(integer(ranks, "pid").tolist(), integer(ranks, "rank").tolist(), strict=True)
    )
    numbers: dict[tuple[int, int, int, int], int] = {}
    lane = []
    for key in keys.tolist():
        pid, tid = key >> 32, key & 0xFFFFFFFF
        if pid in known and tid == pid:
            rank, loader, worker = known[pid]
            name = (rank, loader, worker, -1)
        else:  # a process that iterates: each of its threads that does
            name = (rank_of.get(pid, known.get(pid, (0,))[0]), -1, -1, tid)
        lane.append(numbers.setdefault(name, len(numbers)))
    ordered = sorted(numbers, key=lambda key: (key[0], key[2] >= 0, *key[1:]))
    place = {numbers[name]: number for number, name in enumerate(ordered)}
    return np.array([place[number] for number in lane], np.int64), _lane_table(ordered)


def _kinds(kept: pd.DataFrame, rows: Ints, length: Ints, most: int) -> tuple[Ints, list[str]]:
    """The kind of each interval, and their names."""
    operation = kept["operation"].astype("category")
    codes = operation.cat.codes.to_numpy(np.int64)[rows]
    kind = kept["kind"].astype("category")
    kinds = kind.cat.codes.to_numpy(np.int64)[rows]
    names: list[str] = []
    numbers = np.zeros(len(rows), np.int64)
    operations = (
        list(kind.cat.categories).index("operation") if ("operation" in kind.cat.categories) else -1
    )
    mine = kinds == operations
    if mine.any():
        total = np.bincount(codes[mine], length[mine], len(operation.cat.categories))
        longest = [code for code in np.argsort(-total, kind="stable")[:most] if total[code] > 0]
        more = bool((total > 0).sum() > len(longest))
        names = [str(operation.cat.categories[code]) for code in longest]
        names += [OTHER_OPERATIONS] if more else []
        place = np.full(len(operation.cat.categories), max(len(names) - 1, 0), np.int64)
        place[longest] = np.arange(len(longest))
        numbers[mine] = place[codes[mine]]
    for name, words in KINDS.items():
        if name in kind.cat.categories:
            theirs = kinds == list(kind.cat.categories).index(name)
            if theirs.any():
                numbers[theirs] = len(names)
                names.append(words)
    return numbers, names


def _until(
    code: Ints, sign: Floats, start: Ints, end: Ints, edges: Floats, count: int
) -> npt.NDArray[np.float64]:
    """For each code and each edge: the time of its intervals before that, with their signs.

    Of an interval, t - start from its start on and less t - end from its end on: two sorted sums.
    """
    totals = np.zeros((count, len(edges)))
    for times, factor in ((start, 1.0), (end, -1.0)):
        order = np.lexsort((times, code))
        codes, sorted_times, weight = code[order], times[order].astype(np.float64), sign[order]
        bounds = np.searchsorted(codes, np.arange(count + 1))
        number = np.concatenate(([0.0], np.cumsum(weight)))
        for lane in range(count):
            low, high = bounds[lane], bounds[lane + 1]
            if low == high:
                continue
            mine = sorted_times[low:high]
            sums = np.concatenate(([0.0], np.cumsum(mine * weight[low:high])))
            at = np.searchsorted(mine, edges, side="right")
            totals[lane] += factor * (edges * (number[low + at] - number[low]) - sums[at])
    return totals
