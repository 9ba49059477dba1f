"""Reads the other records of a perf.data file: mappings, processes, losses.

Source: Linux include/uapi/linux/perf_event.h (PERF_RECORD_*); tools/perf/util/thread.c for
inheritance by forked processes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from native_map.recording.perf_header import Header, NeedsPerfError, text

Words = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]
Column = npt.NDArray[np.generic]
Columns = Mapping[str, Column | Sequence[object]]

MMAP, LOST, COMM, EXIT, THROTTLE, UNTHROTTLE, FORK, MMAP2, LOST_SAMPLES = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    10,
    13,
)
# The fewest words of a record before its trailer; text takes at least one.
LEAST = {
    MMAP: 6,
    LOST: 3,
    COMM: 3,
    EXIT: 4,
    THROTTLE: 4,
    UNTHROTTLE: 4,
    FORK: 4,
    MMAP2: 10,
    LOST_SAMPLES: 2,
}
EXEC, DATA, BUILD_ID, NO_CLONE = 1 << 13, 1 << 13, 1 << 14, 1 << 13
FOREVER = np.iinfo(np.int64).max
MOST_MAPPINGS = 1_000_000  # rows; mappings that forks inherit beyond it are left out, with a note
MOST_PATHS = 64 << 20  # bytes of their paths, likewise
MOST_RECORDS = 1_000_000  # of processes and mappings; more are only counted
LONGEST_PATH = 4096  # PATH_MAX of Linux

COLUMNS: dict[str, dict[str, str]] = {
    "mappings": {
        "pid": "int32",
        "start": "uint64",
        "end": "uint64",
        "offset": "uint64",
        "time_ns": "int64",
        "until_ns": "int64",
        "path": "str",
        "build_id": "str",
        "executable": "bool",
    },
    "comms": {"pid": "int32", "tid": "int32", "time_ns": "int64", "comm": "str", "exec": "bool"},
    "forks": {
        "pid": "int32",
        "ppid": "int32",
        "tid": "int32",
        "ptid": "int32",
        "time_ns": "int64",
    },
    "lost": {"time_ns": "int64", "event": "int16", "count": "int64", "kind": "str"},
    "throttles": {
        "time_ns": "int64",
        "pid": "int32",
        "tid": "int32",
        "cpu": "int32",
        "event": "int16",
        "throttle": "bool",
    },
}


@dataclass
class Tables:
    """Tables, as documented in `PerfRecording`."""

    mappings: pd.DataFrame
    comms: pd.DataFrame
    forks: pd.DataFrame
    exits: pd.DataFrame
    lost: pd.DataFrame
    throttles: pd.DataFrame
    damage: list[str]


def table(name: str, columns: Columns) -> pd.DataFrame:
    """Return a table of `COLUMNS`, empty if there are no columns."""
    series = {}
    for key, kind in COLUMNS[name].items():
        values: Any = columns.get(key, [])
        series[key] = pd.Series(values, dtype=kind)
    return pd.DataFrame(series)


class TaskRecords:
    """Collects the records of all blocks; `tables` returns them."""

    def __init__(self, header: Header, events_of: Callable[[Words], npt.NDArray[np.int16]]) -> None:
        self._events_of = events_of
        self._trailers = [event.trailer for event in header.events]
        if len(set(self._trailers)) > 1 and any(
            "identifier" not in trailer for trailer in self._trailers
        ):
            raise NeedsPerfError("its records do not name their event at a fixed place", header)
        self._found: dict[int, list[dict[str, Column | list[str]]]] = {kind: [] for kind in LEAST}
        self._timed = all("time" in trailer for trailer in self._trailers)
        self._short = 0
        self._kept, self._refused = 0, 0

    def add(self, words: Words, starts: Places, kinds: npt.NDArray[np.uint8]) -> None:
        """Collect the relevant records of a block."""
        for kind in LEAST:
            mine = starts[kinds == kind]
            room = MOST_RECORDS - self._kept
            if len(mine) > room:
                self._refused += len(mine) - room
                mine = mine[:room]
            self._kept += len(mine)
            if len(mine):
                self._add(kind, words, mine)

    def _add(self, kind: int, words: Words, starts: Places) -> None:
        sizes = (words[starts] >> np.uint64(51)).astype(np.int64)
        longest = max(len(trailer) for trailer in self._trailers)
        long_enough = sizes >= LEAST[kind] + longest
        if not long_enough.all():
            self._short += int((~long_enough).sum())
            starts, sizes = starts[long_enough], sizes[long_enough]
        if not len(starts):
            return
        columns, width = self._trailer(words, starts + sizes)
        misc = (words[starts] >> np.uint64(32)).astype(np.uint16)
        low, high = _halves(words[starts + 1])
        body_time: Words | None = None
        if kind in (MMAP, MMAP2):
            columns |= {"pid": low, "tid": high, "start": words[starts + 2]}
            columns |= {"length": words[starts + 3], "offset": words[starts + 4]}
            name_at = 5 if kind == MMAP else 9
            columns["path"] = _strings(words, starts + name_at, starts + sizes - width)
            columns |= _mapped(kind, words, starts, misc)
        elif kind == COMM:
            columns |= {"pid": low, "tid": high, "exec": (misc & EXEC) != 0}
            columns["comm"] = _strings(words, starts + 2, starts + sizes - width)
        elif kind in (FORK, EXIT):
            columns |= {"pid": low, "ppid": high}
            body_time = words[starts + 3]
            columns["tid"], columns["ptid"] = _halves(words[starts + 2])
            columns["clones"] = (misc & NO_CLONE) == 0
        elif kind == LOST:
            columns["event"] = self._events_of(words[starts + 1])
            columns["count"] = words[starts + 2].astype(np.int64)
        elif kind == LOST_SAMPLES:
            columns["count"] = words[starts + 1].astype(np.int64)
        else:
            body_time = words[starts + 1]
            columns["event"] = self._events_of(words[starts + 2])
        if body_time is not None and not self._timed:  # perf shows the trailer's time
            columns["time_ns"] = body_time.view(np.int64)
        self._found[kind].append(columns)

    def _trailer(self, words: Words, ends: Places) -> tuple[dict[str, Column | list[str]], Places]:
        """Return the values of the trailers, and the number of words of each."""
        number = len(ends)
        kinds = np.zeros(number, np.int64)
        if len(set(self._trailers)) > 1:
            kinds = np.maximum(self._events_of(words[ends - 1]), 0).astype(np.int64)
        time = np.zeros(number, np.int64)
        event = np.full(number, -1, np.int16)
        pid, tid, cpu = (np.full(number, -1, np.int32) for _ in range(3))
        width = np.array([len(trailer) for trailer in self._trailers])[kinds]
        for trailer in set(self._trailers):
            has_trailer = np.array([other == trailer for other in self._trailers])[kinds]
            at = ends[has_trailer] - len(trailer)
            for place, name in enumerate(trailer):
                value = words[at + place]
                if name == "time":
                    time[has_trailer] = value.view(np.int64)
                elif name == "tid":
                    pid[has_trailer], tid[has_trailer] = _halves(value)
                elif name == "cpu":
                    cpu[has_trailer] = _halves(value)[0]
                elif name in ("id", "identifier"):
                    event[has_trailer] = self._events_of(value)
        return {"time_ns": time, "pid": pid, "tid": tid, "cpu": cpu, "event": event}, width

    def _all(self, *kinds: int) -> dict[str, Column | list[str]]:
        """Return the records of these types by time, those of the same time in the file's order."""
        parts = [part for kind in kinds for part in self._found[kind]]
        if not parts:
            return {}
        joined: dict[str, Column | list[str]] = {}
        order = np.argsort(np.concatenate([part["time_ns"] for part in parts]), kind="stable")
        for name, column in parts[0].items():
            if isinstance(column, list):
                texts = [word for part in parts for word in part[name]]
                joined[name] = [texts[at] for at in order.tolist()]
            else:
                joined[name] = np.concatenate([np.asarray(part[name]) for part in parts])[order]
        return joined

    def tables(self, build_ids: dict[str, str]) -> Tables:
        """Return all tables. `build_ids` are those of the header, by path."""
        damage = []
        if self._short:
            damage.append(f"{self._short} records of processes and mappings are too short")
        if self._refused:
            damage.append(
                f"{self._refused} records of processes, mappings and losses are beyond the first"
                f" {MOST_RECORDS:,} and were not kept"
            )
        maps, forks, comms = self._all(MMAP, MMAP2), self._all(FORK), self._all(COMM)
        lost = [
            table("lost", {**self._all(kind), "kind": [name] * _length(self._all(kind))})
            for kind, name in ((LOST, "records"), (LOST_SAMPLES, "samples"))
        ]
        throttles = []
        for kind in (THROTTLE, UNTHROTTLE):
            records = self._all(kind)
            flags = np.full(_length(records), kind == THROTTLE)
            throttles.append(table("throttles", {**records, "throttle": flags}))
        return Tables(
            mappings=inherit(maps, forks, comms, build_ids, damage),
            comms=table("comms", comms),
            forks=table("forks", forks),
            exits=table("forks", self._all(EXIT)),
            lost=pd.concat(lost, ignore_index=True),
            throttles=pd.concat(throttles, ignore_index=True).sort_values(
                "time_ns", kind="stable", ignore_index=True
            ),
            damage=damage,
        )


def _length(columns: dict[str, Column | list[str]]) -> int:
    return len(columns["time_ns"]) if columns else 0


def _halves(words: Words) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    halves = words.astype("<u8", copy=False).view("<i4").reshape(-1, 2)
    return halves[:, 0].copy(), halves[:, 1].copy()


def _strings(words: Words, begins: Places, ends: Places) -> list[str]:
    raw = words.data.cast("B")
    strings: dict[bytes, str] = {}
    texts = []
    for begin, end in zip((begins * 8).tolist(), (ends * 8).tolist(), strict=True):
        word = bytes(raw[begin : min(end, begin + LONGEST_PATH)])
        if word not in strings:
            strings[word] = text(word)
        texts.append(strings[word])
    return texts


def _mapped(
    kind: int, words: Words, starts: Places, misc: npt.NDArray[np.uint16]
) -> dict[str, Column | list[str]]:
    if kind == MMAP:
        return {"executable": (misc & DATA) == 0, "build_id": [""] * len(starts)}
    build_ids = [""] * len(starts)
    for at in np.flatnonzero(misc & BUILD_ID).tolist():
        raw = words[starts[at] + 5 : starts[at] + 8].tobytes()
        build_ids[at] = raw[4 : 4 + min(raw[0], 20)].hex()
    protection = _halves(words[starts + 8])[0]
    return {"executable": (protection & 4) != 0, "build_id": build_ids}


# What happens to a process's mappings, in the order of steps of one time.
FORKED, EXECUTED, MAPPED = range(3)


def _steps(maps: Columns, forks: Columns, comms: Columns) -> list[tuple[int, int, int, int, int]]:
    """Return what changes mappings, by time: (time, kind, row, pid, parent).

    `row` is that of a mapping; of a fork it says whether the child has its parent's mappings.
    """
    steps = [
        (time, MAPPED, row, pid, 0) for row, (time, pid) in enumerate(_rows(maps, "time_ns", "pid"))
    ]
    steps += [
        (time, FORKED, int(clones), pid, parent)
        for time, pid, parent, clones in _rows(forks, "time_ns", "pid", "ppid", "clones")
        if pid != parent
    ]
    steps += [
        (time, EXECUTED, 0, pid, 0)
        for time, pid, executed in _rows(comms, "time_ns", "pid", "exec")
        if executed
    ]
    # Processes that perf found running have time 0; their forks inherit no later mappings.
    return sorted(steps, key=lambda step: step[:2])


def _rows(columns: Columns, *names: str) -> Iterator[tuple[Any, ...]]:
    if not columns:
        return iter(())
    return zip(*(np.asarray(columns[name]).tolist() for name in names), strict=True)


def inherit(
    maps: Columns,
    forks: Columns,
    comms: Columns,
    build_ids: dict[str, str],
    damage: list[str],
) -> pd.DataFrame:
    """Return the mappings of each process, with inherited ones, without those an exec dropped."""
    if not maps:
        return table("mappings", {})
    origin: list[int] = []
    owner: list[int] = []
    since: list[int] = []
    until: list[int] = []
    live: dict[int, list[int]] = {}
    lengths = [len(str(path)) for path in maps["path"]]
    sizes: dict[int, int] = {}  # of the paths of each process
    size = sum(lengths)
    refused = 0
    for time, kind, row, pid, ppid in _steps(maps, forks, comms):
        if kind == MAPPED:
            live.setdefault(pid, []).append(len(origin))
            sizes[pid] = sizes.get(pid, 0) + lengths[row]
            origin.append(row)
            owner.append(pid)
            since.append(time)
            until.append(FOREVER)
            continue
        for mapping in live.pop(pid, []):
            until[mapping] = time
        sizes.pop(pid, None)
        if kind == FORKED and row:
            parent = live.get(ppid, [])
            inherited = sizes.get(ppid, 0)
            if len(origin) + len(parent) > MOST_MAPPINGS or size + inherited > MOST_PATHS:
                refused += 1
                continue
            size += inherited
            sizes[pid] = inherited
            live[pid] = list(range(len(origin), len(origin) + len(parent)))
            origin += [origin[at] for at in parent]
            owner += [pid] * len(parent)
            since += [time] * len(parent)
            until += [FOREVER] * len(parent)
    if refused:
        damage.append(f"too many mappings: {refused} processes lack those of their parent")
    paths = maps["path"]
    own_ids = [
        str(build_id) or build_ids.get(str(path), "")
        for build_id, path in zip(maps["build_id"], paths, strict=True)
    ]
    pick = np.array(origin)
    start = np.asarray(maps["start"], np.uint64)[pick]
    length = np.asarray(maps["length"], np.uint64)[pick]
    room = np.iinfo(np.uint64).max - start
    return table(
        "mappings",
        {
            "pid": np.array(owner, np.int32),
            "start": start,
            "end": start + np.minimum(length, room),
            "offset": np.asarray(maps["offset"], np.uint64)[pick],
            "time_ns": np.array(since, np.int64),
            "until_ns": np.array(until, np.int64),
            "path": np.array(paths, object)[pick],
            "build_id": np.array(own_ids, object)[pick],
            "executable": np.asarray(maps["executable"])[pick],
        },
    )
