"""Finds the interval of each sample: a join of samples and intervals by (pid, tid, time).

Threads are identified by (pid, tid), because a tid is reused after its thread has ended. An
interval is half open, [start_ns, end_ns). The innermost interval at a time is the open one that
started last (of several that start together the shorter, then the later row). For proper
intervals, which nest or are disjoint within a thread, that is the usual meaning. If a defective
clock makes two overlap without nesting, the result is still one definite row, and `Index.crossing`
counts them. `Index.reversed` counts intervals that end before they start, which hold no sample.

No sample is dropped: one outside all intervals gets row -1 and a kind.
"""

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]

# Kinds of samples that no interval holds.
STARTUP = "startup"  # a thread with intervals, before its first
OTHER = "other"  # a thread with intervals, between two or after the last
HELPER = "helper threads"  # another thread of a process with intervals: pools, feeders
ELSEWHERE = "other processes"  # an unknown process
OUTSIDE = (STARTUP, OTHER, HELPER, ELSEWHERE)

# Refined by `classify`, from the functions.
GC = "gc"
INTERPRETER = "interpreter"

# Kinds that a pool of threads may be working for. Not waits, in which idle pools spin.
HELPED = ("operation", "collate", "fetch", "step")

CHUNK = 1 << 20  # samples at a time: about 100 MB of intermediate arrays

# Prefixes of the functions of CPython's cycle collector (Modules/gcmodule.c, from 3.13
# Python/gc.c); everything else in its libraries is the interpreter.
GC_FUNCTIONS = (
    "gc_",
    "deduce_unreachable",
    "subtract_refs",
    "move_unreachable",
    "update_refs",
    "visit_decref",
    "visit_reachable",
    "untrack_tuples",
    "delete_garbage",
    "_Py_RunGC",
    "_PyGC_",
    "PyGC_",
)
INTERPRETER_LIBRARIES = ("libpython", "python3", "python")


@dataclass(frozen=True)
class Index:
    """Intervals in an order for searching, made by `index`. A position is an index into it."""

    keys: Ints  # per thread, sorted: pid << 32 | tid
    bounds: Ints  # per thread, and one more: its first position
    rows: Ints  # per position: row of the intervals table
    start_ns: Ints
    end_ns: Ints  # cut if a later interval crosses it
    parent: Ints  # per position: of the interval around it, -1 for none
    kinds: tuple[str, ...]  # those of the intervals and OUTSIDE, each once
    kind: npt.NDArray[np.int16]  # per row of the table, into `kinds`
    crossing: int  # intervals that are cut
    reversed: int  # intervals that end before they start

    def find(self, pid: Ints, tid: Ints, time_ns: Ints) -> Ints:
        """Return the row of the innermost interval of each sample, -1 for none."""
        position = self._positions(self._threads(_keys(pid, tid)), time_ns)
        return self._rows_of(position)

    def attribute(self, samples: pd.DataFrame) -> pd.DataFrame:
        """Attribute each sample: a table parallel to `samples` (pid, tid, time_ns).

        interval (row, -1 for none), kind (category: the interval's, else one of OUTSIDE),
        helper_of (for HELPER: row of the interval of a kind in HELPED that the process was in, on
        any thread; -1 if there is none, or if several threads were in one).
        """
        pid, tid, time_ns = (_int64(samples[name]) for name in ("pid", "tid", "time_ns"))
        thread = self._threads(_keys(pid, tid))
        row = self._rows_of(self._positions(thread, time_ns))
        inside, of_known_thread = row >= 0, thread >= 0
        code = {name: self.kinds.index(name) for name in OUTSIDE}
        kind = np.full(len(row), code[ELSEWHERE], np.int16)
        kind[inside] = self.kind[row[inside]]
        outside = np.flatnonzero(of_known_thread & ~inside)
        if len(outside):
            first = self.start_ns[self.bounds[thread[outside]]]
            kind[outside] = np.where(time_ns[outside] < first, code[STARTUP], code[OTHER])
        helper_of = np.full(len(row), -1, np.int64)
        strange = np.flatnonzero(~of_known_thread)
        if len(strange):
            process = np.unique(self.keys >> 32)
            ours = strange[np.isin(pid[strange], process)]
            kind[ours] = code[HELPER]
            helper_of[ours] = self._helped(pid[ours], time_ns[ours])
        return pd.DataFrame(
            {
                "interval": row,
                "kind": pd.Categorical.from_codes(kind, categories=pd.Index(self.kinds)),
                "helper_of": helper_of,
            },
            index=samples.index,
        )

    def _rows_of(self, position: Ints) -> Ints:
        if not len(self.rows):
            return position
        return np.where(position >= 0, self.rows[position], -1)

    def _threads(self, keys: Ints) -> Ints:
        """Number of each sample's thread, -1 if it has no interval."""
        if not len(self.keys):
            return np.full(len(keys), -1, np.int64)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, at, -1)

    def _positions(self, thread: Ints, time_ns: Ints) -> Ints:
        positions = np.full(len(thread), -1, np.int64)
        for number, where in _groups(thread, len(self.keys)):
            positions[where] = self.within(number, time_ns[where])
        return positions

    def within(self, thread: int, time_ns: Ints) -> Ints:
        """Return the position of the innermost interval of one thread at each time, -1 for none.

        The result is the interval that started last or, if that is over, one around it.
        """
        low, high = self.bounds[thread], self.bounds[thread + 1]
        at: Ints = np.searchsorted(self.start_ns[low:high], time_ns, side="right") - 1 + low
        at[at < low] = -1
        over = np.flatnonzero((at >= 0) & (self.end_ns[at] <= time_ns))
        while len(over):
            at[over] = self.parent[at[over]]
            still = (at[over] >= 0) & (self.end_ns[at[over]] <= time_ns[over])
            over = over[still]
        return at

    def _helped(self, pid: Ints, time_ns: Ints) -> Ints:
        """Return the row of the one interval of HELPED that each process was in, else -1."""
        processes, process_number = np.unique(pid, return_inverse=True)
        helped = np.array([kind in HELPED for kind in self.kinds])
        answer = np.full(len(pid), -1, np.int64)
        for number, where in _groups(process_number.astype(np.int64), len(processes)):
            seen = np.zeros(len(where), np.int64)
            for thread in np.flatnonzero(self.keys >> 32 == processes[number]):
                row = self._rows_of(self.within(int(thread), time_ns[where]))
                working = (row >= 0) & helped[self.kind[row]]
                seen += working
                answer[where[working]] = row[working]
            answer[where[seen != 1]] = -1
        return answer


def index(intervals: pd.DataFrame) -> Index:
    """Prepare the table of intervals (pid, tid, start_ns, end_ns and, if it has it, kind)."""
    start, end = _int64(intervals["start_ns"]), _int64(intervals["end_ns"])
    all_keys = thread_keys(intervals)
    holding = np.flatnonzero(start < end)
    keys, thread = np.unique(all_keys[holding], return_inverse=True)
    kinds, kind = _kind_codes(intervals)
    kept, pieces, crossing = [], [], 0
    bounds = np.zeros(len(keys) + 1, np.int64)
    for number, where in _groups(thread.astype(np.int64), len(keys)):
        where = holding[where]
        where = where[_order(start[where], end[where])]
        begins, ends = start[where], end[where]
        parent = _parents(begins, ends)
        if np.any((parent >= 0) & (ends > ends[parent])):
            cut = _cut(begins, ends)
            crossing += int(np.count_nonzero(cut < ends))
            ends = cut
            parent = _parents(begins, ends)
        base = bounds[number]
        bounds[number + 1] = base + len(where)
        kept.append(where)
        pieces.append((begins, ends, np.where(parent >= 0, parent + base, -1)))
    empty = np.zeros(0, np.int64)
    starts, ends, parents = (
        np.concatenate([piece[i] for piece in pieces] or [empty]) for i in range(3)
    )
    return Index(
        keys=keys,
        bounds=bounds,
        rows=np.concatenate(kept or [empty]),
        start_ns=starts,
        end_ns=ends,
        parent=parents,
        kinds=kinds,
        kind=kind,
        crossing=crossing,
        reversed=int(np.count_nonzero(end < start)),
    )


def join(samples: pd.DataFrame, intervals: pd.DataFrame | Index, chunk: int = CHUNK) -> Ints:
    """Return the row of the innermost interval of each sample (pid, tid, time_ns), -1: none."""
    prepared = intervals if isinstance(intervals, Index) else index(intervals)
    answer = np.empty(len(samples), np.int64)
    for low in range(0, len(samples), chunk):
        part = samples.iloc[low : low + chunk]
        pid, tid, time_ns = (_int64(part[name]) for name in ("pid", "tid", "time_ns"))
        answer[low : low + chunk] = prepared.find(pid, tid, time_ns)
    return answer


def classify(attributed: pd.DataFrame, functions: pd.DataFrame) -> pd.Series:
    """Refine the kind OTHER by the functions of its samples.

    The rules, in order, for samples whose library is CPython's (libpython*, python*): a function
    that begins with one of GC_FUNCTIONS is GC; any other is INTERPRETER. Samples
    in other libraries, and of all other kinds, are unchanged: interpreter time of an operation
    belongs to the operation, that of the start-up to the start-up. Without call chains, memory that
    the collector frees counts as the interpreter's. `functions` has categorical library and
    function, parallel to `attributed`.
    """
    kind = attributed["kind"]
    library = functions["library"].astype("category").cat
    function = functions["function"].astype("category").cat
    python = np.array([_is_python(str(name)) for name in library.categories] + [False])
    collector = np.array([str(f).startswith(GC_FUNCTIONS) for f in function.categories] + [False])
    refine = (kind == OTHER).to_numpy() & python[library.codes.to_numpy()]
    collects = collector[function.codes.to_numpy()]
    categories = list(dict.fromkeys([*kind.cat.categories, GC, INTERPRETER]))
    kind = kind.cat.set_categories(categories)
    codes = kind.cat.codes.to_numpy().copy()
    codes[refine] = np.where(
        collects[refine], categories.index(GC), categories.index(INTERPRETER)
    ).astype(codes.dtype)
    return pd.Series(
        pd.Categorical.from_codes(codes, categories=pd.Index(categories)),
        index=attributed.index,
        name="kind",
    )


def sample_reconciliation(
    tally: pd.DataFrame, in_file: dict[str, int], lost: dict[str, int] | None = None
) -> pd.DataFrame:
    """Check that every sample is accounted for: a row per event.

    `tally` has event, attributed (bool: within an interval) and samples, as joined; `in_file` is
    the number of sample records of each event, counted by the reader of the file (as `perf script`
    prints them); `lost` is the number that the kernel reports as dropped. Columns: attributed,
    unattributed, lost, recorded (in_file + lost) and missing (recorded less the other three; any
    value but 0 is a defect).
    """
    lost_samples = lost or {}
    rows = []
    events = dict.fromkeys(
        [*in_file, *lost_samples, *(str(name) for name in tally["event"].unique())]
    )
    for event in events:
        of = tally[tally["event"].astype(str) == event]
        inside = of["attributed"].to_numpy(dtype=bool)
        count = of["samples"].to_numpy(dtype=np.int64)
        attributed, outside = int(count[inside].sum()), int(count[~inside].sum())
        lost_here = lost_samples.get(event, 0)
        recorded = in_file.get(event, 0) + lost_here
        rows.append(
            {
                "event": event,
                "attributed": attributed,
                "unattributed": outside,
                "lost": lost_here,
                "recorded": recorded,
                "missing": recorded - attributed - outside - lost_here,
            }
        )
    columns = ["event", "attributed", "unattributed", "lost", "recorded", "missing"]
    return pd.DataFrame(rows, columns=columns)


def _is_python(library: str) -> bool:
    return library.startswith(INTERPRETER_LIBRARIES)


def _int64(column: pd.Series) -> Ints:
    return column.to_numpy().astype(np.int64, copy=False)


def thread_keys(table: pd.DataFrame) -> Ints:
    """Return pid << 32 | tid of each row."""
    return _keys(_int64(table["pid"]), _int64(table["tid"]))


def _keys(pid: Ints, tid: Ints) -> Ints:
    return (pid << 32) | (tid & 0xFFFFFFFF)


def _kind_codes(intervals: pd.DataFrame) -> tuple[tuple[str, ...], npt.NDArray[np.int16]]:
    if "kind" not in intervals:
        return ("operation", *OUTSIDE), np.zeros(len(intervals), np.int16)
    column = intervals["kind"].astype("category").cat
    kinds = tuple(dict.fromkeys([*(str(name) for name in column.categories), *OUTSIDE]))
    codes = column.codes.to_numpy().astype(np.int16)
    return kinds, np.where(codes >= 0, codes, kinds.index(OTHER)).astype(np.int16)


def _groups(number: Ints, count: int) -> list[tuple[int, Ints]]:
    """Return (number, its positions in order) for each number from 0 that occurs; -1: none."""
    small = number.astype(np.int16) if count < 1 << 15 else number  # numpy sorts these by radix
    order = np.argsort(small, kind="stable")
    present = number[order]
    edges = np.flatnonzero(np.diff(present, prepend=-2, append=-2))
    return [
        (int(present[low]), order[low:high])
        for low, high in itertools.pairwise(edges)
        if present[low] >= 0
    ]


def _order(start: Ints, end: Ints) -> Ints:
    """Return an order with outer before inner: by start, then longer first, then by row."""
    step = np.diff(start)
    if np.all((step > 0) | ((step == 0) & (np.diff(end) <= 0))):
        return np.arange(len(start))
    return np.lexsort((-end, start))


def _parents(start: Ints, end: Ints) -> Ints:
    """Return the interval around each of the ordered, nested intervals of one thread, -1 for none.

    The depth is the number of intervals that started before and have not ended; the parent is the
    last interval before with a depth one less. If intervals cross, a parent may end before its
    child, which reveals the crossing.
    """
    count = len(start)
    place = np.arange(count)
    depth = place - np.searchsorted(np.sort(end), start, side="right")
    by_depth = np.sort(depth * count + place)
    before = np.searchsorted(by_depth, (depth - 1) * count + place) - 1
    return np.where(depth > 0, by_depth[before] % count, -1)


def _cut(start: Ints, end: Ints) -> Ints:
    """Return ends with which the intervals nest and the last to start still owns each moment.

    An interval that is crossed by another (which starts within it and ends after it) is cut where
    the first such interval starts: from there on, the other started later and wins anyway. A Python
    loop is fine here, as only threads with defects need it.
    """
    cut = end.copy()
    open_ones: list[int] = []
    starts, ends = start.tolist(), end.tolist()
    for number, (begins, finishes) in enumerate(zip(starts, ends, strict=True)):
        while open_ones and ends[open_ones[-1]] < finishes:
            crossed = open_ones.pop()
            cut[crossed] = min(ends[crossed], begins)
        open_ones.append(number)
    return cut
