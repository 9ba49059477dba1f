"""Reads an event log (`events/*.ltr`) into numpy arrays, by the description in its header.

A log is never trusted: data that is damaged, foreign or inconsistent is counted as lost.
"""

import copy
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lotus.common.errors import LotusError
from lotus.common.storage import files, long_arrays, sparse_files
from lotus.format import job_ranks
from lotus.inside.trace.log import log_format
from lotus.reading.logs.frame_scanner import (
    EXPECTED,
    HEADER,
    Array,
    FrameType,
    counts_of,
    frame_types,
    gather,
    join,
    length_of,
    narrow,
    read_exactly,
    scan,
    take,
    windows,
)

_LARGEST_HEADER = 4 << 20
# Limits for a process: events, and their bytes (of 20,000 epochs).
_MOST_EVENTS, _MOST_EVENT_BYTES = 200_000, 16 << 20
_PLAIN = (str, int, float, type(None))
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]|\xed")  # escaped, or literally
STRAY = "operation outside of the samples of its batch"
# Columns of times, by frame and by array; the other times of a frame are close to its first one.
_TIMES = {
    "batch": ("fetch_start_ns", "idle_start_ns", "collate_start_ns", "put_ns"),
    "wait": ("start_ns", "end_ns", "arrival_ns"),
    "resources": ("time_ns",),
    "counts": ("fetch_start_ns",),
    "sync": ("start_ns", "ready_ns", "end_ns"),
    "device": ("start_ns",),
    "samples": ("start_ns",),
    "loose": ("start_ns",),
    "sends": ("start_ns",),
    "pins": ("start_ns", "end_ns"),
    "ops": ("start_low", "end_low"),
}
_EVENT_TIMES = (
    "start_ns",
    "end_ns",
    "time_ns",
    "loop_ns",
    "process_ns",
    "imported_ns",
    "last_next_ns",
)
Shift = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]]
# Small arrays that every table needs: they are read while the frames are in memory.
_AT_ONCE = {"batch": ("sends",), "wait": ("pins",)}


@dataclass(frozen=True)
class Lost:
    """Something that was not recorded or cannot be read; bytes 0 if their number is not known."""

    what: str
    pid: int
    count: int
    bytes: int


class ForeignError(Exception):
    """The file is not a log of lotus; the text says why."""


class EventLog:
    """The log of one process.

    fixed   frame name -> structured array, a row per frame, in the order of the file
    sends   rows of `sends` of all batch frames; `pins` likewise of the wait frames
    events  the JSON objects of the event frames
    lost    what could not be read

    `arrays` reads the other arrays from the file on request.
    """

    def __init__(
        self, directory: str, name: str, clocks: Mapping[str, Shift] | None = None
    ) -> None:
        """Scan the file `name` in `directory`. Raises ForeignError, OSError, LotusError (newer).

        `clocks` maps the clock that a log names to what to add to its times.
        """
        self.directory = directory
        self.name = name
        self.lost: list[Lost] = []
        self.events: list[dict[str, Any]] = []
        self._seen, self._unreadable, self._left = [0, 0], [0, 0], [0, 0]  # events, bytes
        with _open(directory, name) as fd:
            self._size = os.fstat(fd).st_size
            sparse = sparse_files.data_in(fd, 0, self._size) < self._size
            self._apart = 1 << 16 if sparse else self._size  # so that holes of a file are not read
            self.header, self._types, start, whole = _read_header(fd, self._size, name)
            self.pid = _integer(self.header, "pid", -1)
            if not whole:
                self._lose("description of a process, damaged", 1, start)
            self.start_ns = _integer(self.header, "start_ns", 0)
            self._read_frames(fd, start)
        known = job_ranks.clock_of(self.header)
        self._shifts: dict[str, npt.NDArray[np.int64]] = {}  # by frame, of each of its rows
        if clocks and known in clocks:
            self._move(clocks[known])

    @property
    def moved(self) -> bool:
        """True if its times were converted to another clock."""
        return bool(self._shifts)

    def part(self, rows: Mapping[str, Array]) -> "EventLog":
        """Return the log with only the frames at `rows` of these kinds."""
        result = copy.copy(self)
        for name in ("fixed", "_places", "_shifts"):
            per_frame = getattr(self, name)
            chosen = {kind: per_frame[kind][rows[kind]] for kind in rows if kind in per_frame}
            setattr(result, name, {**per_frame, **chosen})
        return result

    def holding(self, fixed: Mapping[str, Array]) -> "EventLog":
        """Return the log with these rows in place of its own of the same kinds of frames."""
        result = copy.copy(self)
        result.fixed = {**self.fixed, **fixed}
        return result

    def _move(self, shift: Shift) -> None:
        """Convert all times to another clock.

        All times of a frame are shifted by the same amount: with a drift, they would no longer
        match its durations.
        """
        for name, rows in self.fixed.items():
            times = _TIMES.get(name, ())
            if not times or name in ("loose", "event"):
                continue
            near = rows[times[0]].astype(np.int64)
            self._shifts[name] = moved = shift(np.where(near > 0, near, self.start_ns))
            self.fixed[name] = _moved(rows, times, moved)
        for array in ("sends", "pins"):
            rows = getattr(self, array)
            moved = shift(rows["start_ns"].astype(np.int64))
            setattr(self, array, _moved(rows, _TIMES[array], moved))
        self._shift = shift
        self.start_ns += int(shift(np.array([self.start_ns]))[0])
        for event in self.events:
            for name in _EVENT_TIMES:
                time = event.get(name)
                if type(time) is int and 0 < time < 1 << 62:
                    event[name] = time + int(shift(np.array([time]))[0])

    def _read_frames(self, fd: int, start: int) -> None:
        fixed: dict[str, list[Array]] = {name: [] for name in EXPECTED}
        places: dict[str, list[Array]] = {name: [] for name in EXPECTED}
        eager: dict[str, list[Array]] = {"sends": [], "pins": []}
        samples_ns: list[Array] = []
        unfit, unfit_bytes, stray = 0, 0, 0
        for data, base, heads in scan(fd, start, self._size, self._types, self._lose):
            header = gather(data, heads, HEADER)
            good = np.zeros(len(heads), np.bool_)
            there = set(header["kind"].tolist())
            for kind, frame in self._types.items():
                if kind not in there:
                    continue
                chosen = (header["kind"] == kind) & (header["length"] >= frame.fixed.itemsize)
                at = np.flatnonzero(chosen)
                rows = gather(data, heads[at] + HEADER.itemsize, frame.fixed)
                right = length_of(frame, rows) == header["length"][at]
                rows, at = rows[right], at[right]
                good[at] = True
                if frame.name not in EXPECTED or not len(rows):
                    continue
                bodies = heads[at] + HEADER.itemsize
                fixed[frame.name].append(long_arrays.kept(narrow(rows, EXPECTED[frame.name].fixed)))
                places[frame.name].append(bodies + base)
                for array in _AT_ONCE.get(frame.name, ()):
                    eager[array].append(take(data, bodies, rows, frame, array))
                if frame.name == "batch":
                    sums, outside = _sum_samples(take(data, bodies, rows, frame, "samples"), rows)
                    samples_ns.append(sums)
                    stray += outside
                elif frame.name == "event":
                    self._read_events(data, bodies, rows, frame)
            unfit += int((~good).sum())
            unfit_bytes += int((header["length"][~good].astype(np.int64) + HEADER.itemsize).sum())
        if unfit:
            self._lose("frame that contradicts the file's description", unfit, unfit_bytes)
        if stray:
            self._lose(STRAY, stray, 0)
        if self._unreadable[0]:
            self._lose("event that is not readable", *self._unreadable)
        if self._left[0]:
            self._lose("event after more events than lotus reads", *self._left)
        self.fixed = {name: join(fixed[name], EXPECTED[name].fixed) for name in EXPECTED}
        self._places = {name: join(places[name], np.dtype(np.int64)) for name in EXPECTED}
        self.sends = join(eager["sends"], dict(EXPECTED["batch"].arrays)["sends"])
        self.pins = join(eager["pins"], dict(EXPECTED["wait"].arrays)["pins"])
        self.samples_ns: Array = join(samples_ns, np.dtype(np.int64))

    def _lose(self, what: str, count: int, size: int) -> None:
        self.lost.append(Lost(what, self.pid, count, size))

    def _read_events(self, data: bytes, bodies: Array, rows: Array, frame: FrameType) -> None:
        starts = (bodies + frame.fixed.itemsize).tolist()
        for start, count in zip(starts, rows["n_text"].tolist(), strict=True):
            self._seen[0] += 1
            self._seen[1] += count
            if self._seen[0] > _MOST_EVENTS or self._seen[1] > _MOST_EVENT_BYTES:
                self._left[0] += 1
                self._left[1] += count
                continue
            event = parse_json(data[start : start + count]) if count <= _LARGEST_HEADER else None
            if isinstance(event, dict) and isinstance(event.get("event"), str):
                self.events.append(flat(event))
            else:
                self._unreadable[0] += 1
                self._unreadable[1] += count

    def arrays(self, frame: str, names: Sequence[str]) -> dict[str, Array]:
        """Read the rows of the named arrays of all frames of one kind, back to back.

        The counts in `fixed[frame]["n_<array>"]` tell which frame a row belongs to.
        Raises LotusError if the file has changed since it was scanned.
        """
        rows = self.fixed[frame]
        pieces: dict[str, list[Array]] = {name: [] for name in names}
        expected = dict(EXPECTED[frame].arrays)
        if any(rows[f"n_{name}"].any() for name in names):
            kind = self._kind(frame)
            for part, data, inside in self._bytes_of(frame, length_of(kind, rows)):
                for name in names:
                    pieces[name].append(take(data, inside, rows[part], kind, name))
        whole = {name: join(pieces[name], expected[name]) for name in names}
        if self._shifts:
            for name in names:
                if name in _TIMES and (frame == "loose" or name in _AT_ONCE.get(frame, ())):
                    moved = self._shift(whole[name]["start_ns"].astype(np.int64))
                    whole[name] = _moved(whole[name], _TIMES[name], moved)
                elif name in _TIMES:
                    moved = np.repeat(self._shifts[frame], counts_of(rows, name))
                    whole[name] = _moved(whole[name], _TIMES[name], moved)
        return whole

    def frames(self, frame: str) -> Array:
        """Read the fixed fields of all frames of one kind again. Raises as `arrays`."""
        fixed, parts = EXPECTED[frame].fixed, []
        if len(self._places[frame]):
            kind = self._kind(frame)
            width = np.full(len(self._places[frame]), kind.fixed.itemsize)
            for _, data, inside in self._bytes_of(frame, width):
                parts.append(narrow(gather(data, inside, kind.fixed), fixed))
        rows = join(parts, fixed)
        times = _TIMES.get(frame, ())
        return _moved(rows, times, self._shifts[frame]) if frame in self._shifts else rows

    def _kind(self, frame: str) -> FrameType:
        return next(kind for kind in self._types.values() if kind.name == frame)

    def _bytes_of(self, frame: str, lengths: Array) -> Iterator[tuple[slice, bytes, Array]]:
        """Yield (some frames of a kind, bytes, where in these each of them begins)."""
        places = self._places[frame]
        ends = places + lengths
        try:
            with _open(self.directory, self.name) as fd:
                for first, last in windows(places, ends, self._apart):
                    base = int(places[first])
                    data = read_exactly(fd, base, int(ends[last - 1]) - base)
                    yield slice(first, last), data, places[first:last] - base
        except OSError as error:
            raise LotusError(
                f"{self.name} changed while it was read ({error}); load the run again"
            ) from None


def _moved(rows: Array, times: Sequence[str], shift: npt.NDArray[np.int64]) -> Array:
    """Return `rows` with `shift` added to the columns `times`, modulo their width; 0 stays 0."""
    result = rows.copy()
    for name in times:
        column = rows[name]
        moved = (column.astype(np.int64) + shift).astype(column.dtype)
        result[name] = np.where((column == 0) & (column.dtype.itemsize == 8), column, moved)
    return result


class _open:  # a context manager around a descriptor
    def __init__(self, directory: str, name: str) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        folder = os.open(directory, flags)
        try:
            self.fd = files.open_plain(name, folder=folder)
        finally:
            os.close(folder)

    def __enter__(self) -> int:
        return self.fd

    def __exit__(self, *exc: object) -> None:
        os.close(self.fd)


def parse_json(text: bytes) -> Any:
    """Return the value, or None if the text is not JSON (or nested too deeply to be of lotus).

    Lone surrogates, such as bytes of a file's name, are escaped: with pyarrow installed, pandas
    cannot hold them.
    """
    try:
        value = json.loads(text)
        return _unicode(value) if _SURROGATE.search(text) else value
    except (ValueError, RecursionError):
        return None


def flat(event: dict[str, Any]) -> dict[str, Any]:
    """Return an event without values that lotus never writes, such as deeply nested ones.

    Other JSON can take 25 times the memory of its text.
    """
    return {
        name: value if isinstance(value, _PLAIN) else _flat(value) for name, value in event.items()
    }


def _flat(value: Any) -> Any:
    if not isinstance(value, list):
        return None
    items: list[Any] = []
    for item in value:
        if isinstance(item, dict) and len(item) > 1:
            items.append({name: inner for name, inner in item.items() if isinstance(inner, _PLAIN)})
        elif isinstance(item, _PLAIN):
            items.append(item)
    return items


def _unicode(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_unicode(name): _unicode(item) for name, item in value.items()}
    return [_unicode(item) for item in value] if isinstance(value, list) else value


def _integer(header: Mapping[str, Any], name: str, default: int) -> int:
    value = header.get(name)
    good = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return value if good and value is not None else default


def _read_header(
    fd: int, size: int, name: str
) -> tuple[dict[str, Any], dict[int, FrameType], int, bool]:
    """Return (header, frame types by kind, offset of the first frame, header is complete)."""
    prefix = log_format.FILE_HEADER.size
    if size == 0:
        raise ForeignError("empty event log")
    data = read_exactly(fd, 0, min(size, prefix))
    if data[:4] != log_format.FILE_MAGIC[: len(data)]:
        raise ForeignError("foreign file in events/")
    if size < prefix:
        raise ForeignError("event log cut short in its header")
    _, length = log_format.FILE_HEADER.unpack(data)
    if length > _LARGEST_HEADER:
        raise ForeignError("event log whose header is damaged")
    if prefix + length > size:
        raise ForeignError("event log cut short in its header")
    text = read_exactly(fd, prefix, length)
    header, whole = parse_json(text), log_format.is_whole(text)
    if not isinstance(header, dict):
        raise ForeignError("event log whose header is damaged")
    schema = _integer(header, "schema", -1)
    if schema > log_format.SCHEMA:
        raise LotusError(newer(f"the event log {name}", schema))
    # A damaged description may still parse.
    own = not whole and schema == log_format.SCHEMA
    # Not kept: the descriptions of a thousand ranks take 100 MB.
    described = header.pop("frames", None)
    types = frame_types(log_format.description() if own else described)
    if schema < 1 or types is None:
        raise ForeignError("event log whose header is damaged")
    return header, types, prefix + length, whole


def newer(what: str, schema: int) -> str:
    """Return the message for a file whose layout is newer than this version of lotus."""
    return (
        f"{what} has schema {schema} and this lotus reads up to {log_format.SCHEMA}: "
        "read it with the lotus that recorded it, or a later one"
    )


def _sum_samples(samples: Array, rows: Array) -> tuple[Array, int]:
    """Return the time in samples of each batch frame, and the number of operations outside them."""
    counts = counts_of(rows, "samples")
    ends = np.cumsum(counts)
    total = np.concatenate(([0], np.cumsum(samples["duration_ns"].astype(np.int64))))
    inside = np.zeros(len(rows), np.int64)
    some = counts > 0
    inside[some] = samples["ops"][ends[some] - 1].astype(np.int64)
    ops = counts_of(rows, "ops")
    stray = ops - np.clip(inside, 0, ops)
    return total[ends] - total[ends - counts], int(stray.sum())
