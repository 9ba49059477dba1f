"""Finds the records of a perf.data file, and returns the samples among them as columns.

Records have variable lengths, but mostly come in long runs of samples of one size. The reader
passes over such a run with one comparison, and then gathers the fields of all records at once.
Source: Linux include/uapi/linux/perf_event.h.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import numpy as np
import numpy.typing as npt

from native_map.recording.perf_header import EventAttr, Header, NeedsPerfError
from native_map.recording.perf_unpack import Unpacking, library
from native_map.recording.record_bounds import Places, Words, boundaries

Columns = dict[str, npt.NDArray[np.generic]]

BLOCK = 1 << 20  # bytes of records in a block
LONGEST = 1 << 16  # bytes of the longest record
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
LAST_TYPE = 255  # no perf has larger types: the file is damaged there
PERF_ONLY = {71: "it carries a hardware trace (AUXTRACE)", 81: "its records are compressed"}
PERF_ONLY |= {66: "it was written to a pipe", 83: "its records are compressed"}


def joined(
    pieces: list[Columns],
) -> Columns:
    """Return pieces as one, by column."""
    if len(pieces) == 1:
        return pieces[0]
    if not pieces:
        return {name: np.empty(0, kind) for name, kind in SAMPLE_COLUMNS.items()}
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in SAMPLE_COLUMNS}


@dataclass
class RecordBlock:
    """Records: their bytes as words, and the word at which each record starts."""

    words: Words
    starts: Places
    heads: Words  # their first words: type, misc, size
    kinds: npt.NDArray[np.uint8]


class Reader:
    """Reads the records of a file by blocks; problems are added to `damage`."""

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
        if header.compressed and library() is None:
            raise NeedsPerfError("its records are compressed, and libzstd is not installed", header)
        self._periods = np.array([max(event.period, 1) for event in header.events], np.uint64)

    def blocks(self) -> Iterator[RecordBlock]:
        """Yield all records by blocks. The words of a block are overwritten by the next block.

        The file is read, not mapped: a file that shrinks meanwhile must not kill the process.
        """
        offset, size = self.header.data
        unpacking: Unpacking | None = None
        buffer = np.empty((BLOCK + LONGEST) // 8, "<u8")
        raw = buffer.data.cast("B")
        at = carried = 0
        with self.path.open("rb", buffering=0) as file:
            if self.header.compressed:
                unpacking = Unpacking(file, self.header)
            file.seek(offset)
            while at < size or unpacking:
                if unpacking:
                    filled = carried + unpacking.fill(raw[carried:])
                else:
                    filled = carried + _fill(file, raw[carried : min(len(raw), size - at)])
                words = buffer[: filled // 8]
                stop = min(BLOCK // 8, len(words))
                starts, following, well = boundaries(words, stop)
                if len(starts):
                    heads = words[starts]
                    types = heads.astype(np.uint32)
                    if types.max() > LAST_TYPE or not types.min():
                        first = int(((types > LAST_TYPE) | (types == 0)).argmax())
                        following, well = int(starts[first]), False
                        starts, heads, types = starts[:first], heads[:first], types[:first]
                    yield RecordBlock(words, starts, heads, types.astype(np.uint8))
                if not well and following < len(words):
                    kind = int(words[following] & np.uint64(0xFFFFFFFF))
                    if kind in PERF_ONLY:  # their size need not be a multiple of a word
                        raise NeedsPerfError(PERF_ONLY[kind], self.header)
                at += following * 8
                carried = filled - following * 8
                raw[:carried] = bytes(
                    raw[following * 8 : filled]
                )  # a record that is cut by the end of the block
                if not well or following == 0 or filled < 8:
                    break
        if unpacking:
            self._note_unpacked_end(unpacking, at, carried)
        elif at < size:
            self._note_unread_end(offset + at, size - at)

    def _note_unread_end(self, at: int, unread: int) -> None:
        self.unread = unread
        self._note(
            f"the record at byte {at} is cut or damaged: {unread} bytes from there are not read"
        )

    def _note_unpacked_end(self, unpacking: Unpacking, at: int, carried: int) -> None:
        self.unread = unpacking.unread
        for text in unpacking.damage:
            self._note(text)
        if carried and not unpacking.damage:
            self.unread = carried + unpacking.skip()
            self._note(
                f"the record at byte {at} of those unpacked is cut or damaged: {self.unread} bytes"
                " from there are not read"
            )

    def _note(self, text: str) -> None:
        if text not in self.damage:
            self.damage.append(text)

    def sample_events(self, words: Words, starts: Places, heads: Words) -> npt.NDArray[np.int16]:
        """Return each sample's event index, -1 if it is unknown or the sample is too short."""
        if not len(starts):
            return np.empty(0, np.int16)
        sizes = (heads >> np.uint64(51)).astype(np.int16)
        shortest = int(sizes.min())
        if self._id_field is None:
            events = np.zeros(len(starts), np.int16)
        elif shortest > self._id_field:
            events = self.lookup.events_of(words[starts + self._id_field])
        else:
            place = np.minimum(starts + self._id_field, len(words) - 1)
            events = self.lookup.events_of(words[place])
            events[sizes <= self._id_field] = -1
        if shortest < self._needs.max():
            events[sizes < self._needs[events]] = -1
        return events

    def pieces(self) -> Iterator[Columns]:
        """Yield the samples of each block as columns."""
        for block in self.blocks():
            mine = np.flatnonzero(block.kinds == SAMPLE)
            starts, heads = block.starts[mine], block.heads[mine]
            events = self.sample_events(block.words, starts, heads)
            yield self.columns(block.words, starts, heads, events)

    def columns(
        self, words: Words, starts: Places, heads: Words, events: npt.NDArray[np.int16]
    ) -> Columns:
        """Return the samples at these places, without those of event -1."""
        if len(events) and events.min() < 0:
            known = events >= 0
            starts, heads, events = starts[known], heads[known], events[known]
        if len(self._layouts) == 1:
            only = next(iter(self._layouts))
            return _columns(words, starts, heads, events, only, self._periods)
        # Several layouts: read each separately, then restore the file's order.
        parts, places = [], []
        for layout, numbers in self._layouts.items():
            mine = np.flatnonzero(np.isin(events, numbers))
            part = (starts[mine], heads[mine], events[mine])
            parts.append(_columns(words, *part, layout, self._periods))
            places.append(mine)
        order = np.argsort(np.concatenate(places), kind="stable")
        return {name: column[order] for name, column in joined(parts).items()}


class Kept:
    """Keeps the samples of a file of moderate size, so that it is read only once.

    The columns have space for as many samples as the file can hold; unused pages cost no memory.
    """

    def __init__(self, most: int) -> None:
        self._columns = {name: np.empty(most, kind) for name, kind in SAMPLE_COLUMNS.items()}
        self._size = 0

    def add(self, piece: Columns) -> None:
        """Append a piece, which must fit."""
        end = self._size + len(piece["tid"])
        for name, column in self._columns.items():
            column[self._size : end] = piece[name]
        self._size = end

    def pieces(self) -> Iterator[Columns]:
        """Return all pieces as one."""
        yield {name: column[: self._size] for name, column in self._columns.items()}


def _fill(file: FileIO, into: memoryview) -> int:
    """Read until the buffer is full or the file ends."""
    filled = 0
    while filled < len(into):
        count = file.readinto(into[filled:])
        if not count:
            break
        filled += count
    return filled


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
    """Return the word of a sample that identifies its event; None if there is only one event."""
    if len(header.events) == 1:
        return None
    places = {event.fields.get("identifier") or event.fields.get("id") for event in header.events}
    place = places.pop()
    if places or place is None:
        raise NeedsPerfError("its samples do not name their event at a fixed place", header)
    return place


class _Lookup:
    """Map ids to event indices. As in perf, id 0 and any id of a single event are the first."""

    SPAN = 1 << 20

    def __init__(self, events: list[EventAttr]) -> None:
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
