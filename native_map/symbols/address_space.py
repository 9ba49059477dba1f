"""Finds the mapping of each sampled address in its process at the time of the sample.

A later mapping hides those that it overlaps; a fork inherits the parent's mappings; an exec drops
all (at `until_ns` of a mapping, or at the exec in comms). perf does not record munmap, so an old
mapping remains until another covers it.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from native_map.symbols.elf import U64

NOWHERE, BY_TIME = -1, -2
FOREVER = np.iinfo(np.int64).max
MOST_SPACES = 1 << 16  # processes whose mappings are considered for one table of samples
MOST_STEPS = 100_000_000  # of samples times the mappings that covered them at some time
STEPS_EACH = 500  # fixed cost of a mapping
OVERLAPPING = "{n} mappings that overlap others where samples are were left out: too many"
CROWDED = "{n} places of samples in processes beyond the first 65,536 were not looked up"
LONGEST_LINE = 16  # generations of processes to search for inherited mappings

Rows = NDArray[np.intp]


@dataclass
class Match:
    """Unique places of samples. `pair` is the index of each sample's place.

    `source` is the index of the mapped file (`AddressSpaces.paths`), -1 if no mapping covers the
    address; `offset` is the offset in that file.
    """

    pair: Rows
    pid: NDArray[np.int64]
    ip: U64
    source: Rows
    offset: U64


class _Space:
    """The mappings of one process, sorted by start; clusters of those that overlap."""

    def __init__(self, rows: Rows, table: "AddressSpaces", execs: NDArray[np.int64]) -> None:
        self.rows = rows[np.lexsort((rows, table.time[rows], table.start[rows]))]
        self.start, end = table.start[self.rows], table.end[self.rows]
        reach = np.maximum.accumulate(end) if len(end) else end
        new = np.ones(len(self.rows), bool)
        new[1:] = self.start[1:] >= reach[:-1]
        self.first = np.flatnonzero(new)
        self.reach = np.maximum.reduceat(end, self.first) if len(self.first) else end
        self.execs = execs
        # Mapping the same file to the same place again changes nothing, unless one was dropped.
        other = ~new
        if not len(execs) and not (table.until[rows] < FOREVER).any():
            columns = (table.start, table.end, table.offset, table.source)
            differs = [c[self.rows[1:]] != c[self.rows[:-1]] for c in columns]
            other[1:] &= np.logical_or.reduce(differs)
        else:
            other[:] = True
        self.by_time = np.logical_or.reduceat(other, self.first) if len(self.first) else other

    def at(self, ip: U64) -> Rows:
        """Return the row for each address, NOWHERE, or BY_TIME if it depends on the time."""
        cluster = np.searchsorted(self.start[self.first], ip, "right") - 1
        inside = cluster >= 0
        inside[inside] = ip[inside] < self.reach[cluster[inside]]
        result = np.full(len(ip), NOWHERE)
        result[inside] = self.rows[self.first[cluster[inside]]]
        many = inside.copy()
        many[inside] = self.by_time[cluster[inside]]
        result[many] = BY_TIME
        return result

    def at_time(self, ip: U64, time: NDArray[np.int64], table: "AddressSpaces") -> Rows:
        """Return the row of each (address, time): the latest before, else the first after."""
        order = np.argsort(ip, kind="stable")
        ip, time = ip[order], time[order]
        era = np.searchsorted(self.execs, time, "right")
        rows = np.full(len(ip), NOWHERE)
        by_time = self.rows[np.lexsort((self.rows, table.time[self.rows]))]
        eras = np.searchsorted(self.execs, table.time[by_time], "right")
        low = np.searchsorted(ip, table.start[by_time])
        high = np.searchsorted(ip, table.end[by_time])
        hit = low < high
        # If there are too many, the latest are used, because they hide the others.
        steps = np.cumsum(np.where(hit, high - low + STEPS_EACH, 0)[::-1])[::-1]
        if left_out := int((hit & (steps > table.steps)).sum()):
            table.refused[OVERLAPPING] += left_out
        hit &= steps <= table.steps
        table.steps -= int(steps[hit][0]) if hit.any() else 0
        spans = list(zip(by_time[hit], eras[hit], low[hit], high[hit], strict=True))
        for row, of, a, b in spans:
            ours = (time[a:b] >= table.time[row]) & (time[a:b] < table.until[row])
            rows[a:b][ours & (era[a:b] == of)] = row
        for row, of, a, b in spans:
            ours = (rows[a:b] == NOWHERE) & (time[a:b] < table.until[row])
            rows[a:b][ours & (era[a:b] == of)] = row
        result = np.empty(len(ip), np.intp)
        result[order] = rows
        return result


class AddressSpaces:
    """The mappings of all processes of a recording.

    `mappings`, `forks` and `comms` are tables of a PerfRecording; of `mappings` only pid, start,
    end and path are required.
    """

    def __init__(
        self,
        mappings: pd.DataFrame,
        forks: "pd.DataFrame | None" = None,
        comms: "pd.DataFrame | None" = None,
    ) -> None:
        count = len(mappings)
        self.steps = MOST_STEPS
        self.refused: Counter[str] = Counter()  # texts with {n} on what was left out

        def column(name: str, kind: type) -> NDArray[np.generic]:
            if name not in mappings:
                return np.zeros(count, kind)
            return mappings[name].to_numpy(kind)

        self.start: U64 = column("start", np.uint64).astype(np.uint64)
        self.end: U64 = column("end", np.uint64).astype(np.uint64)
        self.offset: U64 = column("offset", np.uint64).astype(np.uint64)
        self.time = column("time_ns", np.int64).astype(np.int64)
        self.until = np.full(count, FOREVER)
        if "until_ns" in mappings:
            self.until = column("until_ns", np.int64).astype(np.int64)
        paths, path_names = _texts(mappings, "path")
        ids, id_names = _texts(mappings, "build_id")
        self.source, pairs = pd.factorize(paths.astype(np.int64) * max(len(id_names), 1) + ids)
        self.paths = [path_names[int(pair) // max(len(id_names), 1)] for pair in pairs]
        self.build_ids = [id_names[int(pair) % max(len(id_names), 1)] for pair in pairs]
        usable = np.flatnonzero(self.end > self.start)
        pid = column("pid", np.int64).astype(np.int64)[usable]
        self._rows = _Grouped(pid, usable)
        self._spaces: dict[int, _Space] = {}
        none = np.zeros(0, np.int64)
        self._execs = _Grouped(none, none)
        if comms is not None and "exec" in comms and len(comms):
            real = comms[comms["exec"].astype(bool)]
            pids = real["pid"].to_numpy(np.int64)
            self._execs = _Grouped(pids, real["time_ns"].to_numpy(np.int64))
        self._parents: dict[int, tuple[int, int]] = {}
        if forks is not None:
            new = forks[forks["pid"] != forks["ppid"]]
            columns = (new[name].tolist() for name in ("pid", "ppid", "time_ns"))
            for child, parent, when in zip(*columns, strict=True):
                self._parents.setdefault(child, (parent, when))

    def space(self, pid: int) -> _Space:
        """Return the mappings of a process, built on first use."""
        if pid not in self._spaces:
            rows = self._rows.of(pid)
            execs = np.unique(self._execs.of(pid))
            if len(rows):  # an exec before the first mapping changes nothing
                execs = execs[execs > self.time[rows].min()]
            self._spaces[pid] = _Space(rows, self, execs if len(rows) else execs[:0])
        return self._spaces[pid]

    def ancestors(self, pid: int) -> list[int]:
        """Return the process and its ancestors by fork, without an exec in between."""
        line, last = [pid], pid
        while len(line) <= LONGEST_LINE and last in self._parents and not len(self._execs.of(last)):
            last = self._parents[last][0]
            line.append(last)
        return line

    def kernel_marks(self) -> list[tuple[str, int]]:
        """Return names and addresses of marks (`_text` or `_stext`) in the recorded kernel."""
        marks = []
        for row in self._rows.of(-1):
            path = self.paths[self.source[row]]
            if path.startswith("[kernel.kallsyms]") and not path.endswith("]"):
                marks.append((path.rsplit("]", 1)[1], int(self.offset[row])))
        return marks

    def match(self, pid: NDArray[np.int64], ip: U64, time: NDArray[np.int64]) -> Match:
        """Return the mapped file of each sample, and the offset in it."""
        pid_code, pids = pd.factorize(pid)
        ip_code, ips = pd.factorize(ip)
        pair, keys = pd.factorize(pid_code.astype(np.int64) * len(ips) + ip_code)
        pair = pair.astype(np.intp)
        of_pid, of_ip = pids[keys // len(ips)], ips[keys % len(ips)].astype(np.uint64)
        row = np.full(len(keys), NOWHERE)
        mapped = np.flatnonzero(self._rows.has(of_pid))
        groups = _by_value(of_pid[mapped])
        for number, mine in groups[:MOST_SPACES]:
            bases = mapped[mine]
            row[bases] = self.space(number).at(of_ip[bases])
        if len(groups) > MOST_SPACES:
            self.refused[CROWDED] += sum(len(mine) for _, mine in groups[MOST_SPACES:])
        timed = np.flatnonzero(row[pair] == BY_TIME)
        if len(timed):
            at = np.full(len(timed), NOWHERE)
            for number, mine in _by_value(pid[timed]):
                at[mine] = self.space(number).at_time(ip[timed][mine], time[timed][mine], self)
            code, codes = pd.factorize(pair[timed] * (len(self.start) + 1) + at + 1)
            base = codes // (len(self.start) + 1)
            pair[timed] = len(row) + code
            row = np.concatenate([row, codes % (len(self.start) + 1) - 1])
            of_pid, of_ip = (np.concatenate([column, column[base]]) for column in (of_pid, of_ip))
            row[row == BY_TIME] = NOWHERE  # no sample refers to it any more
        self._inherit(of_pid, of_ip, row)
        inside = row >= 0
        source, offset = np.full(len(row), NOWHERE), np.zeros(len(row), np.uint64)
        source[inside] = self.source[row[inside]]
        offset[inside] = of_ip[inside] - self.start[row[inside]] + self.offset[row[inside]]
        return Match(pair, of_pid, of_ip, source, offset)

    def _inherit(self, pid: NDArray[np.int64], ip: U64, row: Rows) -> None:
        """Search addresses without a mapping in the parent's mappings, as of the fork."""
        children = np.fromiter(self._parents, np.int64, len(self._parents))
        lacking = np.flatnonzero((row == NOWHERE) & np.isin(pid, children))
        groups = _by_value(pid[lacking])
        if len(groups) > MOST_SPACES:
            self.refused[CROWDED] += sum(len(mine) for _, mine in groups[MOST_SPACES:])
        for number, mine in groups[:MOST_SPACES]:
            missing = lacking[mine]
            line = self.ancestors(number)
            for child, parent in pairwise(line):
                if not len(missing):
                    break
                when = np.full(len(missing), self._parents[child][1], np.int64)
                space = self.space(parent)
                inherited = space.at(ip[missing])
                by_time = inherited == BY_TIME
                inherited[by_time] = space.at_time(ip[missing][by_time], when[by_time], self)
                row[missing] = inherited
                missing = missing[inherited == NOWHERE]


class _Grouped:
    """Values by key, found by binary search, without a Python object for each key."""

    def __init__(self, keys: NDArray[np.int64], values: NDArray[Any]) -> None:
        order = np.argsort(keys, kind="stable")
        self._keys, self._values = keys[order], values[order]

    def of(self, key: int) -> NDArray[Any]:
        """Return the values of a key, in the order in which they were given."""
        low, high = (
            np.searchsorted(self._keys, key, "left"),
            np.searchsorted(self._keys, key, "right"),
        )
        return self._values[low:high]

    def has(self, keys: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of the keys have a value."""
        at = np.searchsorted(self._keys, keys)
        known = at < len(self._keys)
        known[known] = self._keys[at[known]] == keys[known]
        return known


def _texts(frame: pd.DataFrame, name: str) -> tuple[NDArray[np.int64], list[str]]:
    if name not in frame:
        return np.zeros(len(frame), np.int64), [""]
    codes, texts = pd.factorize(frame[name].astype(object).fillna("").to_numpy())
    return codes.astype(np.int64), [str(text) for text in texts] or [""]


def _by_value(values: NDArray[np.int64]) -> list[tuple[int, Rows]]:
    """Yield each value and its rows."""
    order = np.argsort(values, kind="stable")
    unique, first = np.unique(values[order], return_index=True)
    return list(zip(unique.tolist(), np.split(order, first[1:]), strict=True)) if len(order) else []
