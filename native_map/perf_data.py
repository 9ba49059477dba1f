"""perf.data → samples and what a profile needs to make sense of them (numpy, in bounded memory).

The records have variable lengths, but mostly come in long runs of samples of one size: the reader
hops over such a run with one comparison, and then gathers the wanted words of all records at once.
Files that it does not read (pipe mode, compressed, other byte order, layouts that tell no event
apart) go through `perf script`, and `Recording.reader` and `Recording.notes` say so.

Source: Linux include/uapi/linux/perf_event.h and tools/lib/perf/include/perf/event.h.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from io import FileIO
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from native_map.errors import Unusable
from native_map.perf_header import Event, Header, NeedsPerf, read_header
from native_map.perf_tasks import Tables, TaskRecords

Words = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]
Columns = dict[str, npt.NDArray[np.generic]]

BLOCK = 1 << 20  # bytes of records that are looked at in one go
LONGEST = 1 << 16  # bytes of the longest record
KEPT = 512 << 20  # bytes of records up to which the samples stay in memory once read
SAMPLE = 9
SAMPLE_COLUMNS: dict[str, str] = {
    "time_ns": "int64",
    "pid": "int32",
    "tid": "int32",
    "event": "int16",
    "ip": "uint64",
    "period": "uint64",
    "cpu_mode": "int8",
}
RECORDS = dict(
    enumerate(
        "mmap lost comm exit throttle unthrottle fork read sample mmap2 aux itrace_start"
        " lost_samples switch switch_cpu_wide namespaces ksymbol bpf_event cgroup text_poke"
        " aux_output_hw_id".split(),
        1,
    )
) | dict(
    enumerate(
        "attr event_type tracing_data build_id finished_round id_index auxtrace_info auxtrace"
        " auxtrace_error thread_map cpu_map stat_config stat stat_round event_update time_conv"
        " feature compressed finished_init compressed2".split(),
        64,
    )
)
LAST_TYPE = 255  # a larger type is no record of any perf: the file is damaged there
PERF_ONLY = {71: "it carries a hardware trace (AUXTRACE)", 81: "its records are compressed"}
PERF_ONLY |= {66: "it was written to a pipe", 83: "its records are compressed"}


@dataclass
class Recording:
    """What a perf.data file holds. All times are ns of `clock`, addresses and counts uint64.

    samples     whole, in the file's order (see `chunks` and `in_time_order`): time_ns int64, pid
                int32, tid int32, event int16 (number in `events`), ip uint64, period uint64 (count
                that the sample stands for), cpu_mode int8 (perf's misc & 7: 1 kernel, 2 user,
                4 guest kernel, 5 guest user)
    mappings    pid int32 (-1: the kernel's own), start, end, offset uint64, time_ns int64 (valid
                from), until_ns int64 (valid before: an exec or the number's next process; the
                largest int64 if never), path, build_id (hex or ""), executable bool. What a forked
                process inherits is repeated for it. Later rows hide earlier ones that they overlap.
    comms       pid, tid, time_ns, comm, exec bool
    forks       pid, ppid, tid, ptid, time_ns; exits likewise. A thread's start has pid == ppid.
    lost        time_ns, event (-1: unknown), count, kind ("records" or "samples"). time_ns is
                when the kernel reported it, not when it happened.
    throttles   time_ns, pid, tid, cpu (-1: not recorded), event, throttle bool (False: it ended)
    clock       "monotonic", "other:NAME" or "default" (the kernel's own, not any that a program
                can read)
    facts       hostname, osrelease, arch, cpudesc, cpuid, cmdline, version, nr_cpus ... as far as
                the file has them
    counted     number of records by type. counted["sample"] = len(samples) + unreadable.
    sampled     number of samples that can be read, for each event
    unreadable  samples whose event is unknown or whose bytes are too few
    unread      bytes of records behind a damaged one; what they held is not known
    damage      texts: what of the file could not be read
    notes       texts: how it was read, where that is worth a word
    reader      "direct" or "perf script"
    """

    path: str
    events: list[str]
    attrs: list[Event]
    mappings: pd.DataFrame
    comms: pd.DataFrame
    forks: pd.DataFrame
    exits: pd.DataFrame
    lost: pd.DataFrame
    throttles: pd.DataFrame
    clock: str
    facts: dict[str, str | int]
    counted: dict[str, int]
    sampled: list[int]
    unreadable: int = 0
    unread: int = 0
    damage: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    reader: str = "direct"
    pieces: Callable[[], Iterator[Columns]] = field(default=lambda: iter(()), repr=False)

    def __len__(self) -> int:
        """The number of samples, known without reading them again."""
        return sum(self.sampled)

    def chunks(self, rows: int = 1 << 20) -> Iterator[pd.DataFrame]:
        """The samples in tables of `rows` (the last has fewer), in the file's order."""
        if rows < 1:
            raise ValueError("a chunk has at least one row")
        held: list[Columns] = []
        size = seen = 0
        for piece in self.pieces():
            held.append(piece)
            size += len(piece["tid"])
            while size >= rows:
                whole = _joined(held)
                yield _frame({name: column[:rows] for name, column in whole.items()})
                seen += rows
                size -= rows
                held = [{name: column[rows:] for name, column in whole.items()}]
        if size:
            yield _frame(_joined(held))
        if seen + size != len(self):
            raise Unusable(f"{self.path} changed while it was read")

    @cached_property
    def samples(self) -> pd.DataFrame:
        """All samples at once: 34 bytes each. Use `chunks` where the file is large."""
        pieces = list(self.pieces())
        whole = _frame(_joined(pieces))
        if len(whole) != len(self):
            raise Unusable(f"{self.path} changed while it was read")
        return whole


def in_time_order(samples: pd.DataFrame) -> pd.DataFrame:
    """The samples by time; those of one time stay in the file's order.

    perf writes the buffers of the CPUs one after the other: the file's order is not that of time.
    """
    return samples.iloc[np.argsort(samples["time_ns"].to_numpy(), kind="stable")]


def read(path: str | os.PathLike[str], perf: str = "perf") -> Recording:
    """Read a perf.data file.

    perf is the binary that is asked where the file is not for our own reader. Raises Unusable where
    nothing can be read.
    """
    try:
        return _read_direct(Path(path))
    except NeedsPerf as reason:
        from native_map.perf_script import read_script

        return read_script(Path(path), reason, perf)
    except OSError as error:
        raise Unusable(f"cannot read {path}: {error.strerror or error}") from error


def _joined(
    pieces: list[Columns],
) -> Columns:
    if len(pieces) == 1:
        return pieces[0]
    if not pieces:
        return {name: np.empty(0, kind) for name, kind in SAMPLE_COLUMNS.items()}
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in SAMPLE_COLUMNS}


def _frame(columns: Columns) -> pd.DataFrame:
    return pd.DataFrame(columns, copy=False)


@dataclass
class Block:
    """Some records: their bytes as words, and the word at which each record starts."""

    words: Words
    starts: Places
    heads: Words  # their first words: type, misc, size
    kinds: npt.NDArray[np.uint8]


def boundaries(words: Words, stop: int) -> tuple[Places, int, bool]:
    """The words at which records start, up to word `stop`; where the next one starts; all well?

    False: the record there has a size that cannot be, or ends behind the words.
    """
    sizes = words.view("<u2")[3::4]
    size_at = sizes.data
    total = len(words)
    found: list[Places] = []
    at, well = 0, True
    while at < stop and well:
        # A run of records of one size: each of them says where the next one starts.
        size = size_at[at]
        step = size >> 3
        count, window = 0, 32
        if step and not size & 7:
            room = min((stop - at + step - 1) // step, (total - at) // step)
            while count < room:
                window = min(window, room - count)
                begin = at + count * step
                other = sizes[begin : begin + (window - 1) * step + 1 : step] != size
                first = int(other.argmax())
                if other[first]:
                    count += first
                    break
                count += window
                window *= 8
            found.append(np.arange(at, at + count * step, step, dtype=np.int64))
            at += count * step
        if count >= 32:
            continue
        # Sizes that change: one by one is faster than many short runs.
        single = []
        for _ in range(256):
            if at >= stop:
                break
            size = size_at[at]
            if size & 7 or not size or at + (size >> 3) > total:
                well = False
                break
            single.append(at)
            at += size >> 3
        found.append(np.array(single, np.int64))
    return (np.concatenate(found) if found else np.empty(0, np.int64)), at, well


class _Reader:
    """Reads the records of one file, block after block. What is wrong ends up in `damage`."""

    def __init__(self, path: Path, header: Header) -> None:
        self.path, self.header = path, header
        self.damage: list[str] = []
        self.unread = 0
        self._id_field = _id_field(header)
        self.lookup = _Lookup(header.events)
        self._needs = np.array([1 + len(event.fields) for event in header.events])
        self._layouts: dict[tuple[int, ...], list[int]] = {}
        for number, event in enumerate(header.events):
            layout = tuple(event.fields.get(n, 0) for n in ("ip", "tid", "time", "period"))
            self._layouts.setdefault(layout, []).append(number)
        self._periods = np.array([max(event.period, 1) for event in header.events], np.uint64)

    def blocks(self) -> Iterator[Block]:
        """All records in turn. The words of a block are overwritten by the next block's.

        The file is read and not mapped: a file that shrinks meanwhile must not end the process.
        """
        offset, size = self.header.data
        buffer = np.empty((BLOCK + LONGEST) // 8, "<u8")
        raw = buffer.data.cast("B")
        at = 0
        with self.path.open("rb", buffering=0) as file:
            while at < size:
                file.seek(offset + at)
                got = _fill(file, raw[: min(len(raw), size - at)])
                words = buffer[: got // 8]
                stop = min(BLOCK // 8, len(words))
                starts, following, well = boundaries(words, stop)
                if len(starts):
                    heads = words[starts]
                    types = heads.astype(np.uint32)
                    if types.max() > LAST_TYPE or not types.min():
                        first = int(((types > LAST_TYPE) | (types == 0)).argmax())
                        following, well = int(starts[first]), False
                        starts, heads, types = starts[:first], heads[:first], types[:first]
                    yield Block(words, starts, heads, types.astype(np.uint8))
                at += following * 8
                if not well and following < len(words):
                    kind = int(words[following] & np.uint64(0xFFFFFFFF))
                    if kind in PERF_ONLY:  # the size of these need not be whole words
                        raise NeedsPerf(PERF_ONLY[kind], self.header)
                if not well or following == 0 or got < 8:
                    break
        if at < size:
            self._tell_end(offset + at, size - at)

    def _tell_end(self, at: int, left: int) -> None:
        self.unread = left
        text = f"the record at byte {at} is cut or damaged: {left} bytes from there are not read"
        if text not in self.damage:
            self.damage.append(text)

    def sample_events(self, words: Words, starts: Places, heads: Words) -> npt.NDArray[np.int16]:
        """The number of each sample's event, -1 where it is unknown or the sample is too short."""
        if not len(starts):
            return np.empty(0, np.int16)
        sizes = (heads >> np.uint64(51)).astype(np.int16)
        shortest = int(sizes.min())
        if self._id_field is None:
            found = np.zeros(len(starts), np.int16)
        elif shortest > self._id_field:
            found = self.lookup.events_of(words[starts + self._id_field])
        else:
            place = np.minimum(starts + self._id_field, len(words) - 1)
            found = self.lookup.events_of(words[place])
            found[sizes <= self._id_field] = -1
        if shortest < self._needs.max():
            found[sizes < self._needs[found]] = -1
        return found

    def pieces(self) -> Iterator[Columns]:
        """The samples of each block as columns."""
        for block in self.blocks():
            mine = np.flatnonzero(block.kinds == SAMPLE)
            starts, heads = block.starts[mine], block.heads[mine]
            events = self.sample_events(block.words, starts, heads)
            yield self.columns(block.words, starts, heads, events)

    def columns(
        self, words: Words, starts: Places, heads: Words, events: npt.NDArray[np.int16]
    ) -> Columns:
        """The samples at these places, without those of event -1."""
        if len(events) and events.min() < 0:
            known = events >= 0
            starts, heads, events = starts[known], heads[known], events[known]
        if len(self._layouts) == 1:
            only = next(iter(self._layouts))
            return _columns(words, starts, heads, events, only, self._periods)
        # Several layouts: read each by its own, then back into the file's order.
        parts, places = [], []
        for layout, numbers in self._layouts.items():
            mine = np.flatnonzero(np.isin(events, numbers))
            part = (starts[mine], heads[mine], events[mine])
            parts.append(_columns(words, *part, layout, self._periods))
            places.append(mine)
        order = np.argsort(np.concatenate(places), kind="stable")
        return {name: column[order] for name, column in _joined(parts).items()}


class _Kept:
    """The samples of a file of moderate size, written where they stay: no second reading.

    The columns have room for the most samples that the file can hold; what is not written to costs
    no memory.
    """

    def __init__(self, most: int) -> None:
        self._columns = {name: np.empty(most, kind) for name, kind in SAMPLE_COLUMNS.items()}
        self._size = 0

    def add(self, piece: Columns) -> None:
        end = self._size + len(piece["tid"])
        for name, column in self._columns.items():
            column[self._size : end] = piece[name]
        self._size = end

    def pieces(self) -> Iterator[Columns]:
        yield {name: column[: self._size] for name, column in self._columns.items()}


def _fill(file: FileIO, into: memoryview) -> int:
    """Read until the buffer is full or the file ends."""
    got = 0
    while got < len(into):
        more = file.readinto(into[got:])
        if not more:
            break
        got += more
    return got


def _columns(
    words: Words,
    starts: Places,
    heads: Words,
    events: npt.NDArray[np.int16],
    layout: tuple[int, ...],
    periods: npt.NDArray[np.uint64],
) -> Columns:
    ip, tid, time, period = layout
    threads = words[starts + tid].view("<i4")  # pid and tid in turn
    return {
        "time_ns": words[starts + time].view(np.int64),
        "pid": threads[0::2],
        "tid": threads[1::2],
        "event": events,
        "ip": words[starts + ip],
        "period": words[starts + period] if period else periods[events],
        "cpu_mode": heads.view(np.int8)[4::8] & 7,
    }


def _id_field(header: Header) -> int | None:
    """At which word a sample names its event; None where there is one event only."""
    if len(header.events) == 1:
        return None
    places = {event.fields.get("identifier") or event.fields.get("id") for event in header.events}
    place = places.pop()
    if places or place is None:
        raise NeedsPerf("its samples do not say at one place which event they belong to", header)
    return place


class _Lookup:
    """ids → numbers of events. As perf does it: id 0, and any of a lone event, is the first."""

    SPAN = 1 << 20

    def __init__(self, events: list[Event]) -> None:
        ids = np.array([n for event in events for n in event.ids], np.uint64)
        numbers = np.repeat(np.arange(len(events)), [len(event.ids) for event in events])
        order = np.argsort(ids, kind="stable")
        self._ids, self._numbers = ids[order], numbers[order].astype(np.int16)
        self._lone = len(events) == 1
        self._table: npt.NDArray[np.int16] | None = None
        if len(ids) and int(ids.max()) < self.SPAN:  # small numbers: a table is fastest
            self._table = np.full(int(ids.max()) + 2, -1, np.int16)
            self._table[self._ids] = self._numbers
            self._table[0] = 0

    def events_of(self, ids: Words) -> npt.NDArray[np.int16]:
        if self._lone:
            return np.zeros(len(ids), np.int16)
        if self._table is not None:
            return self._table[np.minimum(ids, np.uint64(len(self._table) - 1))]
        if not len(self._ids):
            return np.where(ids == 0, 0, -1).astype(np.int16)
        place = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        known = self._ids[place] == ids
        return np.where(known, self._numbers[place], np.where(ids == 0, 0, -1)).astype(np.int16)


def _read_direct(path: Path) -> Recording:
    with path.open("rb") as file:
        length = os.fstat(file.fileno()).st_size
        header = read_header(file, length)
    if sys.byteorder != "little":
        raise NeedsPerf("this machine's byte order is the other one", header)
    for event in header.events:
        for wanted, option in (("tid", ""), ("ip", ""), ("time", " -T")):
            if wanted not in event.fields and event.type != 1 | 1 << 31:
                raise Unusable(
                    f"the samples of {event.name} carry no {wanted}: record with"
                    f" `perf record{option} -k CLOCK_MONOTONIC ...`"
                )
    reader = _Reader(path, header)
    counted: Counter[int] = Counter()
    sampled = np.zeros(len(header.events), np.int64)
    unreadable = 0
    tasks = TaskRecords(header, reader.lookup.events_of)
    smallest = 8 * min(1 + len(event.fields) for event in header.events)
    kept = _Kept(header.data[1] // smallest) if header.data[1] <= KEPT else None
    for block in reader.blocks():
        for kind, number in enumerate(np.bincount(block.kinds).tolist()):
            if number and kind in PERF_ONLY:
                raise NeedsPerf(PERF_ONLY[kind], header)
            counted[kind] += number
        is_sample = block.kinds == SAMPLE
        mine, others = np.flatnonzero(is_sample), np.flatnonzero(~is_sample)
        starts, heads = block.starts[mine], block.heads[mine]
        events = reader.sample_events(block.words, starts, heads)
        if kept:
            kept.add(reader.columns(block.words, starts, heads, events))
        found = np.bincount(events + 1, minlength=len(sampled) + 1)  # first those of event -1
        sampled += found[1:]
        unreadable += int(found[0])
        tasks.add(block.words, block.starts[others], block.kinds[others])
    tables = tasks.tables(header.build_ids)
    damage = header.damage + reader.damage + tables.damage
    if unreadable:
        damage.append(f"{unreadable} samples are of no known event or too short")
    return _recording(path, header, tables, counted, sampled, unreadable, damage, reader, kept)


def _recording(
    path: Path,
    header: Header,
    tables: Tables,
    counted: Counter[int],
    sampled: npt.NDArray[np.int64],
    unreadable: int,
    damage: list[str],
    reader: _Reader,
    kept: _Kept | None,
) -> Recording:
    clocks = {event.clock for event in header.events}
    return Recording(
        path=str(path),
        events=[event.name for event in header.events],
        attrs=header.events,
        mappings=tables.mappings,
        comms=tables.comms,
        forks=tables.forks,
        exits=tables.exits,
        lost=tables.lost,
        throttles=tables.throttles,
        clock=clocks.pop() if len(clocks) == 1 else "other:several",
        facts=header.facts,
        counted={RECORDS.get(k, f"type {k}"): n for k, n in sorted(counted.items()) if n},
        sampled=sampled.tolist(),
        unreadable=unreadable,
        unread=reader.unread,
        damage=damage,
        pieces=kept.pieces if kept else reader.pieces,
    )
