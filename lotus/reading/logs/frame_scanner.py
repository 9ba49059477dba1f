"""Frames of an event log as numpy rows: parses the file's description and locates its frames.

A simple loop walks the frame headers and checks each frame's CRC; numpy reads everything else from
these offsets. A file is never trusted: data that does not match the description is not a frame.
"""

import contextlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lotus.common.storage import long_arrays, sparse_files
from lotus.inside.trace.log import log_format

Array = npt.NDArray[Any]

CORRUPT, TORN = "corrupt frame", "truncated tail"
TOO_LONG, HOLE = "corrupt frame, longer than lotus writes any", "corrupt: a hole in the file"
WINDOW = 16 << 20  # bytes of a log in memory at the same time
HEADER = np.dtype(
    [("magic", "<u4"), ("kind", "<u2"), ("flags", "<u2"), ("length", "<u4"), ("crc", "<u4")]
)
MAGIC = log_format.FRAME_MAGIC.to_bytes(4, "little")
_HEADER = log_format.FRAME_HEADER.size
_LONG_RUNS = 16  # rows of a run, on average
# Kinds of frames that early logs of schema 1 do not describe.
_LATER = frozenset(("counts", "sync", "device"))
# Fields that they lack; they are read as UNMEASURED.
LATER_FIELDS = {
    "batch": ("run_delay_ns", "process_cpu_ns", "snapshot_ns"),
    "wait": (
        "snapshot_ns",
        "sampler_ns",
        *(
            f"{edge}_{name}"
            for edge in ("start", "end")
            for name in ("cpu_ns", "run_delay_ns", "process_cpu_ns")
        ),
    ),
}
# And those of arrays.
LATER_OF_ARRAYS = dict.fromkeys(("ops_cpu", "loose_cpu"), ("run_delay_ns", "process_cpu_ns"))
_CODES = {"b", "B", "h", "H", "i", "I", "q", "Q", "f", "d"}


class FrameType(NamedTuple):
    """A kind of frame: its fixed fields and its arrays, in the order in which they are stored."""

    name: str
    fixed: np.dtype[Any]
    arrays: tuple[tuple[str, np.dtype[Any]], ...]


def dtype_of(fields: Iterable[Sequence[str]]) -> np.dtype[Any]:
    """Return the packed little-endian dtype of (name, struct code) pairs."""
    return np.dtype([(name, "<" + np.dtype(code).str[1:]) for name, code in fields])


# The frames and fields that this version expects in a log, by name.
EXPECTED = {
    name: FrameType(name, dtype_of(fixed), tuple((array, dtype_of(f)) for array, f in arrays))
    for name, fixed, arrays in log_format.FRAMES.values()
}


# The description that was read last, with its types: a job's thousand logs have the same.
_latest: list[tuple[Any, dict[int, FrameType]]] = []


def frame_types(frames: Any) -> dict[int, FrameType] | None:
    """Return frame types by kind, or None if they are damaged or lack what the tables need."""
    with contextlib.suppress(RecursionError):  # not of lotus; it may be of no concern
        if _latest and _latest[0][0] == frames:
            return _latest[0][1]
    types = _types_of(frames)
    if types is not None:
        _latest[:] = [(frames, types)]
    return types


def _types_of(frames: Any) -> dict[int, FrameType] | None:
    try:
        types = {}
        for frame in frames:
            arrays = [(str(array), _described(fields)) for array, fields in frame["arrays"]]
            types[int(frame["kind"])] = FrameType(
                str(frame["name"]), _described(frame["fields"]), tuple(arrays)
            )
        by_name = {frame.name: frame for frame in types.values()}
        for name, expected in EXPECTED.items():
            if name in _LATER and name not in by_name:
                continue  # an older log without it
            frame = by_name[name]
            for have, want, later in [
                (frame.fixed, expected.fixed, LATER_FIELDS.get(name, ())),
                *(
                    (dict(frame.arrays)[array], fields, LATER_OF_ARRAYS.get(array, ()))
                    for array, fields in expected.arrays
                ),
            ]:
                if not set(want.names or ()) - set(later) <= set(have.names or ()):
                    return None
                if any(
                    have[field].kind == "f"
                    for field in want.names or ()
                    if field in (have.names or ())
                ):
                    return None
        if len(by_name) != len(types) or not all(map(_is_countable, types.values())):
            return None
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        return None
    return types


def _is_countable(frame: FrameType) -> bool:
    """Return True if the numbers of its arrays' rows have the type that lotus writes.

    With wider numbers a product could wrap around, so that a short frame would announce 2**61 rows.
    """
    fixed = frame.fixed
    counts = [f"n_{array}" for array, _ in frame.arrays]
    return all(
        name in (fixed.names or ()) and fixed[name].kind == "u" and fixed[name].itemsize <= 4
        for name in counts
    )


def _described(fields: Any) -> np.dtype[Any]:
    pairs = [(str(name), code) for name, code in fields]
    if not pairs or len(pairs) > 1000 or any(code not in _CODES for _, code in pairs):
        raise ValueError("not a field description")
    return dtype_of(pairs)


def gather(data: bytes, places: Array, dtype: np.dtype[Any]) -> Array:
    """Return rows of `dtype` at byte offsets `places` of `data`, which need not be aligned."""
    if not len(places):
        return np.empty(0, dtype)
    width = dtype.itemsize
    # An opaque item at every byte: fancy indexing then copies rows of any alignment.
    items = np.ndarray((len(data) - width + 1,), f"V{width}", data, strides=(1,))
    rows: Array = items[places].view(dtype)
    return rows


def ranges(starts: Array, counts: Array, step: int = 1) -> Array:
    """Return starts[0], starts[0] + step, ... (counts[0] of them), starts[1], ... as int64."""
    ends = np.cumsum(counts, dtype=np.int64)
    places = np.arange(ends[-1] if len(ends) else 0, dtype=np.int64) * step
    places += np.repeat(starts - step * (ends - counts), counts)
    return places


def _gather_runs(data: bytes, starts: Array, counts: Array, dtype: np.dtype[Any]) -> Array:
    """Return counts[0] rows of `dtype` that begin at byte starts[0] of `data`, counts[1], ..."""
    if int(counts.sum()) <= _LONG_RUNS * len(counts):
        return gather(data, ranges(starts, counts, dtype.itemsize), dtype)
    # Long runs are copied whole, which is quicker than row by row.
    view, ends = memoryview(data), starts + counts * dtype.itemsize
    runs = zip(starts.tolist(), ends.tolist(), strict=True)
    return np.frombuffer(bytearray().join([view[start:end] for start, end in runs]), dtype)


def counts_of(rows: Array, array: str) -> Array:
    """Return the number of elements of an array in each row, int64 (n,)."""
    counts: Array = rows[f"n_{array}"].astype(np.int64)
    return counts


def length_of(frame: FrameType, rows: Array) -> Array:
    """Return the payload length of each frame, computed from its counts."""
    total = np.full(len(rows), frame.fixed.itemsize, np.int64)
    for name, dtype in frame.arrays:
        total += counts_of(rows, name) * dtype.itemsize
    return total


def take(data: bytes, bodies: Array, rows: Array, frame: FrameType, array: str) -> Array:
    """Return all rows of one array of the frames whose payloads begin at `bodies`."""
    starts = bodies + frame.fixed.itemsize
    for name, dtype in frame.arrays:
        counts = counts_of(rows, name)
        if name == array:
            taken = _gather_runs(data, starts, counts, dtype)
            return narrow(taken, dict(EXPECTED[frame.name].arrays)[array])
        starts = starts + counts * dtype.itemsize
    raise KeyError(array)


def narrow(rows: Array, dtype: np.dtype[Any]) -> Array:
    """Return `rows` with exactly the fields of `dtype`; UNMEASURED in fields that they lack."""
    if rows.dtype == dtype:
        return rows
    result, known = np.empty(len(rows), dtype), set(rows.dtype.names or ())
    for name in dtype.names or ():
        result[name] = rows[name] if name in known else log_format.UNMEASURED
    return result


def join(parts: Sequence[Array], dtype: np.dtype[Any]) -> Array:
    """Concatenate `parts`, which have this dtype; a single part is not copied."""
    return long_arrays.joined(parts, dtype)


def read_exactly(fd: int, offset: int, size: int) -> bytes:
    """Read exactly `size` bytes. Raises OSError if the file has become shorter."""
    parts = []
    while size > 0:
        part = os.pread(fd, size, offset)
        if not part:
            raise OSError("it has become shorter")
        parts.append(part)
        offset += len(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def windows(places: Array, ends: Array, apart: int) -> Iterator[tuple[int, int]]:
    """Yield runs of frames [first, last) that span at most WINDOW bytes (or are a single frame).

    `apart`: the most bytes between two frames of a run.
    """
    breaks = np.flatnonzero(places[1:] - ends[:-1] > apart) + 1
    first = 0
    while first < len(places):
        last = int(np.searchsorted(ends, places[first] + WINDOW, side="right"))
        following = int(np.searchsorted(breaks, first, side="right"))
        if following < len(breaks):
            last = min(last, int(breaks[following]))
        last = max(last, first + 1)
        yield first, last
        first = last


def _walk(data: bytes, at: int, heads: list[int]) -> int:
    """Append the offsets of the valid frames from `at` on; return where the last of them ends."""
    unpack, crc32, size = log_format.FRAME_HEADER.unpack_from, zlib.crc32, len(data)
    view, last, magic = memoryview(data), len(data) - _HEADER, log_format.FRAME_MAGIC
    most = log_format.MOST
    while at <= last:
        word, _, _, length, crc = unpack(data, at)
        body = at + _HEADER
        stop = body + length
        if (
            word != magic
            or stop > size
            or length > most
            or crc32(view[body:stop], crc32(view[at + 4 : at + 12])) != crc
        ):
            break
        heads.append(at)
        at = stop
    return at


def _wanted(data: bytes, at: int, types: Mapping[int, FrameType]) -> int:
    """Return how many bytes the frame at `at` takes; 0 if it is not a frame."""
    if len(data) - at < _HEADER:
        return _HEADER if data[at : at + 4] == MAGIC[: len(data) - at] else 0
    magic, kind, _, length, _ = log_format.FRAME_HEADER.unpack_from(data, at)
    frame = types.get(kind)
    if magic != log_format.FRAME_MAGIC or frame is None or length < frame.fixed.itemsize:
        return 0
    if length > log_format.MOST:
        return 0
    body = at + _HEADER
    need = frame.fixed.itemsize
    if body + need > len(data):
        return _HEADER + need
    # Do not trust a length that contradicts the counts: it would only cost time to check it.
    rows = np.frombuffer(data, frame.fixed, 1, body)
    return _HEADER + length if int(length_of(frame, rows)[0]) == length else 0


def _is_too_long(data: bytes, at: int, types: Mapping[int, FrameType]) -> bool:
    """Return True if the data at `at` looks like a frame, apart from its length."""
    if len(data) - at < _HEADER:
        return False
    magic, kind, _, length, _ = log_format.FRAME_HEADER.unpack_from(data, at)
    return bool(magic == log_format.FRAME_MAGIC and kind in types and length > log_format.MOST)


class _Gap:
    """Data between frames: reported once per gap, by what the gap begins with."""

    def __init__(self, lose: Callable[[str, int, int], None]) -> None:
        self._lose = lose
        self.at = -1  # where in the file the gap began; -1: no gap
        self._what = ""
        self._hole = 0  # bytes

    def pass_hole(self, first: int, end: int) -> None:
        """Report a hole of the file."""
        self.open(first, HOLE)
        self._hole += end - first

    def open(self, at: int, what: str) -> None:
        if self.at < 0:
            self.at, self._what, self._hole = at, what, 0

    def close(self, end: int, size: int) -> None:
        """`size`: of the file."""
        if self.at >= 0 and end > self.at:
            what = self._what
            if what == CORRUPT and 2 * self._hole > end - self.at:
                what = HOLE  # before it, the rest of a block is zeros
            # A length beyond the end of the file means a truncated frame only if nothing follows.
            torn = what == TORN and end < size
            self._lose(CORRUPT if torn else what, 1, end - self.at)
        self.at = -1


def scan(
    fd: int,
    start: int,
    size: int,
    types: Mapping[int, FrameType],
    lose: Callable[[str, int, int], None],
) -> Iterator[tuple[bytes, int, Array]]:
    """Yield (bytes, their offset in the file, offsets of valid frames within them).

    Data that is not a valid frame is skipped up to the next frame and reported to `lose` once per
    gap. Holes of the file are read only within frames, at most a few times the size of its data.
    """
    data, base, at = b"", start, 0
    heads: list[int] = []
    gap = _Gap(lose)
    # Bytes checked in vain, and of holes: a malicious file could cost its squared size or more.
    patience = 8 * sparse_files.data_in(fd, start, size) + 4 * WINDOW
    end = start  # end of the data that is known to exist

    while base + at < size and patience > 0:
        before = len(heads)
        if gap.at < 0 or _wanted(data, at, types):
            at = _walk(data, at, heads)
        if len(heads) > before:
            gap.close(base + heads[before], size)
            continue
        need = max(_wanted(data, at, types), 0 if len(data) - at >= _HEADER else _HEADER)
        if at + need > len(data) and base + len(data) < size and base + at + need <= size:
            # The frame continues beyond the window.
            if heads:
                yield data, base, np.array(heads, np.int64)
                heads = []
            base += at
            if base >= end:
                first, end = sparse_files.data_from(fd, base, size)
                if first > base:
                    gap.pass_hole(base, first)
                    base, data, at = first, b"", 0
                    continue
            patience -= max(base + need - end, 0)
            data = read_exactly(fd, base, max(min(WINDOW, end - base), need))
            at = 0
            continue
        if gap.at < 0:
            what = TOO_LONG if _is_too_long(data, at, types) else CORRUPT
            gap.open(base + at, TORN if need > 0 and base + at + need > size else what)
        patience -= need
        # Find the next possible frame; a magic number may straddle the window.
        next_magic = data.find(MAGIC, at + 1)
        at = next_magic if next_magic >= 0 else max(len(data) - 3, at + 1)
    if heads:
        yield data, base, np.array(heads, np.int64)
    if base + at < size:
        gap.open(base + at, CORRUPT)
    gap.close(size, size)
