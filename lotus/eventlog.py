"""Reads one event log (`events/*.ltr`) into numpy arrays, by the description in its own header.

A light loop walks the frame headers and checks each frame's CRC; everything else is gathered by
numpy from the places that it found. A log is never trusted: what does not fit is a counted loss.
"""

import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lotus.errors import LotusError
from lotus.inside import layout

Array = npt.NDArray[Any]

WINDOW = 64 << 20  # bytes of a log in memory at once
_LARGEST_HEADER = 4 << 20
_MAGIC = layout.FRAME_MAGIC.to_bytes(4, "little")
_HEADER = layout.FRAME_HEADER.size
_CODES = {"b", "B", "h", "H", "i", "I", "q", "Q", "f", "d"}
# Small arrays that every table needs: gathered while the frames are in memory anyway.
_AT_ONCE = {"batch": ("sends",), "wait": ("pins",)}


@dataclass(frozen=True)
class Lost:
    """Something that was not recorded or cannot be read; bytes 0 where that is not known."""

    what: str
    pid: int
    count: int
    bytes: int


class FrameType(NamedTuple):
    """A kind of frame: its fixed fields and its arrays, in the order in which they are stored."""

    name: str
    fixed: np.dtype[Any]
    arrays: tuple[tuple[str, np.dtype[Any]], ...]


def dtype_of(fields: Iterable[Sequence[str]]) -> np.dtype[Any]:
    """Packed little-endian dtype of (name, struct code) pairs."""
    return np.dtype([(name, "<" + np.dtype(code).str[1:]) for name, code in fields])


# What this version expects of a log, by the name of the frame.
EXPECTED = {
    name: FrameType(name, dtype_of(fixed), tuple((array, dtype_of(f)) for array, f in arrays))
    for name, fixed, arrays in layout.FRAMES.values()
}


class ForeignError(Exception):
    """The file is not one of our logs; the text says why."""


def gather(data: bytes, places: Array, dtype: np.dtype[Any]) -> Array:
    """Rows of `dtype` at byte offsets `places` of `data`, which need not be aligned."""
    if not len(places):
        return np.empty(0, dtype)
    width = dtype.itemsize
    # One opaque item at every byte: fancy indexing then copies rows, whatever their alignment.
    items = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))
    rows: Array = items[places].view(dtype)
    return rows


def ranges(starts: Array, counts: Array, step: int = 1) -> Array:
    """starts[0], starts[0] + step, ... (counts[0] of them), starts[1], ... as one int64 array."""
    ends = np.cumsum(counts, dtype=np.int64)
    places = np.arange(ends[-1] if len(ends) else 0, dtype=np.int64) * step
    places += np.repeat(starts - step * (ends - counts), counts)
    return places


class EventLog:
    """One process's log.

    fixed   frame name -> structured array, one row a frame, in the order of the file
    sends   rows of `sends` of all batch frames; `pins` likewise of the wait frames
    events  the JSON objects of the event frames
    lost    what could not be read

    `arrays` reads the other arrays from the file, when they are asked for.
    """

    def __init__(self, directory: str, name: str) -> None:
        """Scan the file `name` in `directory`. Raises ForeignError, OSError, LotusError (newer)."""
        self.directory = directory
        self.name = name
        self.lost: list[Lost] = []
        self.events: list[dict[str, Any]] = []
        with _open(directory, name) as fd:
            self._size = os.fstat(fd).st_size
            self.header, self._types, start = _read_header(fd, self._size, name)
            self.pid = _integer(self.header, "pid", -1)
            self.start_ns = _integer(self.header, "start_ns", 0)
            self._read_frames(fd, start)

    def _read_frames(self, fd: int, start: int) -> None:
        by_name = {frame.name: frame for frame in self._types.values()}
        fixed: dict[str, list[Array]] = {name: [] for name in EXPECTED}
        places: dict[str, list[Array]] = {name: [] for name in EXPECTED}
        eager: dict[str, list[Array]] = {"sends": [], "pins": []}
        samples_ns: list[Array] = []
        unfit = unfit_bytes = stray = 0
        for data, base, heads in _scan(fd, start, self._size, self._types, self._lose):
            header = gather(data, heads, _HEADER_DTYPE)
            for kind, frame in self._types.items():
                chosen = header["kind"] == kind
                bodies = heads[chosen] + _HEADER
                lengths = header["length"][chosen].astype(np.int64)
                big = lengths >= frame.fixed.itemsize
                rows = gather(data, bodies[big], frame.fixed)
                right = np.zeros(len(bodies), np.bool_)
                right[big] = _length(frame, rows) == lengths[big]
                unfit += int((~right).sum())
                unfit_bytes += int((lengths[~right] + _HEADER).sum())
                rows, bodies = rows[right[big]], bodies[right]
                expected = EXPECTED.get(frame.name)
                if expected is None or not len(rows):
                    continue
                fixed[frame.name].append(_as(rows, expected.fixed))
                places[frame.name].append(bodies + base)
                for array in _AT_ONCE.get(frame.name, ()):
                    eager[array].append(_take(data, bodies, rows, frame, array))
                if frame.name == "batch":
                    sums, outside = _sum_samples(_take(data, bodies, rows, frame, "samples"), rows)
                    samples_ns.append(sums)
                    stray += outside
                elif frame.name == "event":
                    self._read_events(data, bodies, rows, frame)
            other = ~np.isin(header["kind"], list(self._types))
            unfit += int(other.sum())
            unfit_bytes += int(header["length"][other].astype(np.int64).sum()) + _HEADER * int(
                other.sum()
            )
        if unfit:
            self._lose("frame that contradicts the file's description", unfit, unfit_bytes)
        if stray:
            width = dict(by_name["batch"].arrays)["ops"].itemsize
            self._lose("operation outside of the samples of its batch", stray, stray * width)
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
            event = parse_json(data[start : start + count])
            if isinstance(event, dict) and isinstance(event.get("event"), str):
                self.events.append(event)
            else:
                self._lose("event that is not readable", 1, count)

    def arrays(self, frame: str, names: Sequence[str]) -> dict[str, Array]:
        """Rows of the named arrays of all frames of one kind, back to back, from the file.

        Which frame a row belongs to follows from the counts in `fixed[frame]["n_<array>"]`.
        Raises LotusError where the file is no longer what was scanned.
        """
        rows, places = self.fixed[frame], self._places[frame]
        found: dict[str, list[Array]] = {name: [] for name in names}
        expected = dict(EXPECTED[frame].arrays)
        if any(rows[f"n_{name}"].any() for name in names):
            kind = next(kind for kind in self._types.values() if kind.name == frame)
            ends = places + _length(kind, rows)
            try:
                with _open(self.directory, self.name) as fd:
                    for first, last in _windows(places, ends):
                        base = int(places[first])
                        data = _read(fd, base, int(ends[last - 1]) - base)
                        inside = places[first:last] - base
                        for name in names:
                            taken = _take(data, inside, rows[first:last], kind, name)
                            found[name].append(taken)
            except OSError as error:
                raise LotusError(
                    f"{self.name} changed while it was read ({error}); load the run again"
                ) from None
        return {name: join(found[name], expected[name]) for name in names}


_HEADER_DTYPE = np.dtype(
    [("magic", "<u4"), ("kind", "<u2"), ("flags", "<u2"), ("length", "<u4"), ("crc", "<u4")]
)


class _open:  # a context manager around a descriptor
    def __init__(self, directory: str, name: str) -> None:
        # No link is followed, and a pipe must not make us wait.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        folder = os.open(directory, flags | os.O_DIRECTORY)
        try:
            self.fd = os.open(name, flags, dir_fd=folder)
        finally:
            os.close(folder)

    def __enter__(self) -> int:
        return self.fd

    def __exit__(self, *exc: object) -> None:
        os.close(self.fd)


def _read(fd: int, offset: int, size: int) -> bytes:
    """Exactly `size` bytes; raises OSError where the file has become shorter."""
    parts = []
    while size > 0:
        part = os.pread(fd, size, offset)
        if not part:
            raise OSError("it has become shorter")
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def parse_json(text: bytes) -> Any:
    """The value, or None where the text is not JSON (or nested too deeply to be ours)."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _integer(header: Mapping[str, Any], name: str, default: int) -> int:
    value = header.get(name)
    good = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return value if good and value is not None else default


def _read_header(fd: int, size: int, name: str) -> tuple[dict[str, Any], dict[int, FrameType], int]:
    """(header, frame types by kind, offset of the first frame)."""
    prefix = layout.FILE_HEADER.size
    if size == 0:
        raise ForeignError("empty event log")
    data = _read(fd, 0, min(size, prefix))
    if data[:4] != layout.FILE_MAGIC[: len(data)]:
        raise ForeignError("foreign file in events/")
    if size < prefix:
        raise ForeignError("event log cut short in its header")
    _, length = layout.FILE_HEADER.unpack(data)
    if length > _LARGEST_HEADER:
        raise ForeignError("event log whose header is damaged")
    if prefix + length > size:
        raise ForeignError("event log cut short in its header")
    header = parse_json(_read(fd, prefix, length))
    if not isinstance(header, dict):
        raise ForeignError("event log whose header is damaged")
    schema = _integer(header, "schema", -1)
    if schema > layout.SCHEMA:
        raise LotusError(newer(f"the event log {name}", schema))
    types = _frame_types(header.get("frames"))
    if schema < 1 or types is None:
        raise ForeignError("event log whose header is damaged")
    return header, types, prefix + length


def newer(what: str, schema: int) -> str:
    return (
        f"{what} has schema {schema} and this lotus reads up to {layout.SCHEMA}: "
        "pip install --upgrade lotus-profiler"
    )


def _frame_types(frames: Any) -> dict[int, FrameType] | None:
    """Frame types by kind, or None where they are damaged or lack what the tables need."""
    try:
        types = {}
        for frame in frames:
            arrays = [(str(array), _described(fields)) for array, fields in frame["arrays"]]
            types[int(frame["kind"])] = FrameType(
                str(frame["name"]), _described(frame["fields"]), tuple(arrays)
            )
        found = {frame.name: frame for frame in types.values()}
        for name, expected in EXPECTED.items():
            frame = found[name]
            for have, want in [
                (frame.fixed, expected.fixed),
                *((dict(frame.arrays)[array], fields) for array, fields in expected.arrays),
            ]:
                if not set(want.names or ()) <= set(have.names or ()):
                    return None
        if len(found) != len(types) or any(
            f"n_{array}" not in (frame.fixed.names or ())
            for frame in types.values()
            for array, _ in frame.arrays
        ):
            return None
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        return None
    return types


def _described(fields: Any) -> np.dtype[Any]:
    pairs = [(str(name), code) for name, code in fields]
    if not pairs or len(pairs) > 1000 or any(code not in _CODES for _, code in pairs):
        raise ValueError("not a field description")
    return dtype_of(pairs)


def _counts(rows: Array, array: str) -> Array:
    counts: Array = rows[f"n_{array}"].astype(np.int64)
    return counts


def _length(frame: FrameType, rows: Array) -> Array:
    """Payload length of each frame, from its counts."""
    total = np.full(len(rows), frame.fixed.itemsize, np.int64)
    for name, dtype in frame.arrays:
        total += _counts(rows, name) * dtype.itemsize
    return total


def _take(data: bytes, bodies: Array, rows: Array, frame: FrameType, array: str) -> Array:
    """All rows of one array of the frames whose payloads begin at `bodies`."""
    starts = bodies + frame.fixed.itemsize
    for name, dtype in frame.arrays:
        counts = _counts(rows, name)
        if name == array:
            taken = gather(data, ranges(starts, counts, dtype.itemsize), dtype)
            return _as(taken, dict(EXPECTED[frame.name].arrays)[array])
        starts = starts + counts * dtype.itemsize
    raise KeyError(array)


def _as(rows: Array, dtype: np.dtype[Any]) -> Array:
    """`rows` with just the fields of `dtype`."""
    if rows.dtype == dtype:
        return rows
    result = np.empty(len(rows), dtype)
    for name in dtype.names or ():
        result[name] = rows[name]
    return result


def join(parts: Sequence[Array], dtype: np.dtype[Any]) -> Array:
    """All rows of `parts`, which have that dtype; a single part as it is."""
    if len(parts) == 1:
        return parts[0]
    # As opaque items: numpy would copy structured ones field by field.
    opaque = np.dtype(f"V{dtype.itemsize}")
    whole: Array = np.concatenate(
        [np.empty(0, opaque), *(np.ascontiguousarray(part).view(opaque) for part in parts)]
    )
    return whole.view(dtype)


def _sum_samples(samples: Array, rows: Array) -> tuple[Array, int]:
    """Per batch frame the time in samples; and how many operations are in none of them."""
    counts = _counts(rows, "samples")
    ends = np.cumsum(counts)
    total = np.concatenate(([0], np.cumsum(samples["duration_ns"].astype(np.int64))))
    inside = np.zeros(len(rows), np.int64)
    some = counts > 0
    inside[some] = samples["ops"][ends[some] - 1].astype(np.int64)
    ops = _counts(rows, "ops")
    stray = ops - np.clip(inside, 0, ops)
    return total[ends] - total[ends - counts], int(stray.sum())


def _windows(places: Array, ends: Array) -> Iterator[tuple[int, int]]:
    """Runs of frames [first, last) that span at most WINDOW bytes (or are a single frame)."""
    first = 0
    while first < len(places):
        last = int(np.searchsorted(ends, places[first] + WINDOW, side="right"))
        last = max(last, first + 1)
        yield first, last
        first = last


def _walk(data: bytes, at: int, heads: list[int]) -> int:
    """Append the offset of every good frame from `at` on; return where the first other thing is."""
    unpack, crc32, size = layout.FRAME_HEADER.unpack_from, zlib.crc32, len(data)
    view, last, magic = memoryview(data), len(data) - _HEADER, layout.FRAME_MAGIC
    while at <= last:
        found, _, _, length, crc = unpack(data, at)
        body = at + _HEADER
        stop = body + length
        if (
            found != magic
            or stop > size
            or crc32(view[body:stop], crc32(view[at + 4 : at + 12])) != crc
        ):
            break
        heads.append(at)
        at = stop
    return at


def _wanted(data: bytes, at: int, types: Mapping[int, FrameType]) -> int:
    """Bytes that the frame at `at` needs if it is one; 0: it is none."""
    if len(data) - at < _HEADER:
        return _HEADER if data[at : at + 4] == _MAGIC[: len(data) - at] else 0
    magic, kind, _, length, _ = layout.FRAME_HEADER.unpack_from(data, at)
    frame = types.get(kind)
    if magic != layout.FRAME_MAGIC or frame is None or length < frame.fixed.itemsize:
        return 0
    body = at + _HEADER
    need = frame.fixed.itemsize
    if body + need > len(data):
        return _HEADER + need
    # A length that the counts do not bear out would only make us read and check at random.
    rows = np.frombuffer(data, frame.fixed, 1, body)
    return _HEADER + length if int(_length(frame, rows)[0]) == length else 0


def _scan(
    fd: int,
    start: int,
    size: int,
    types: Mapping[int, FrameType],
    lose: Callable[[str, int, int], None],
) -> Iterator[tuple[bytes, int, Array]]:
    """Yield (bytes, their offset in the file, offsets of good frames within them).

    After something that is no good frame it goes on at the next one; what was skipped is told to
    `lose` once a gap, as a truncated tail where the file ends inside a frame.
    """
    data, base, at = b"", start, 0
    heads: list[int] = []
    gap = -1  # where in the file the present gap began
    torn = False  # the gap began with a frame that wants more than the file has
    patience = 8 * size + WINDOW  # bytes checked in vain: a file can be made to cost its square

    def close_gap(end: int) -> None:
        nonlocal gap
        if gap >= 0 and end > gap:
            tail = end == size and torn
            lose("truncated tail" if tail else "corrupt frame", 1, end - gap)
        gap = -1

    while base + at < size and patience > 0:
        before = len(heads)
        if gap < 0 or _wanted(data, at, types):
            at = _walk(data, at, heads)
        if len(heads) > before:
            close_gap(base + heads[before])
            continue
        need = max(_wanted(data, at, types), 0 if len(data) - at >= _HEADER else _HEADER)
        if at + need > len(data) and base + len(data) < size and base + at + need <= size:
            # The frame goes on beyond the window.
            if heads:
                yield data, base, np.array(heads, np.int64)
                heads = []
            base += at
            data = _read(fd, base, min(max(WINDOW, need), size - base))
            at = 0
            continue
        if gap < 0:
            gap = base + at
            torn = need > 0 and base + at + need > size
        patience -= need
        # The next thing that looks like a frame; a magic number may straddle the window.
        found = data.find(_MAGIC, at + 1)
        at = found if found >= 0 else max(len(data) - 3, at + 1)
    if heads:
        yield data, base, np.array(heads, np.int64)
    close_gap(size)
