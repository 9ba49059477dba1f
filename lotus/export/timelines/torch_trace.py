"""Reads a trace of torch.profiler and aligns its clock with the run's.

torch.profiler writes wall-clock times: up to torch 2.3 in microseconds since 1970, later in
microseconds after `baseTimeNanoseconds`. run.json has both clocks at the start of the run, which
gives the offset. As wall clocks are corrected while programs run, the offset is checked: torch
records a range `enumerate(DataLoader)#...__next__` around each `next` of a loader, which contains
the wait recorded by lotus. The offsets that put every wait in its range bound the error.
"""

import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from lotus.common.errors import LotusError
from lotus.common.numbers.array_types import Ints
from lotus.common.storage import files
from lotus.common.text.formatting import duration, plain, plural
from lotus.reading.logs.process_tree import is_a

if TYPE_CHECKING:
    from lotus.reading.run import Run
_FIRST, _LAST = "enumerate(DataLoader)#", ".__next__"
_TRIED = 256  # ranges that must fit, spread over all
_NEAR_NS = 2_000_000  # from the start of a range to the start of its wait
_SLEW = 1e-3  # more than any daemon corrects a clock by
_STEP_NS = 1_000_000_000  # and what it may do at once without our giving up
_MOST = 1 << 30  # bytes of a trace
# Limit of the unpacked size: gzip shrinks torch's traces to a twentieth, but 1 MB can hold 1 GB.
_SMALL, _SHRUNK = 64 << 20, 64
_CHUNK = 1 << 20
# Most JSON values per byte of a trace: torch has 0.07, and each may need 100 bytes of memory.
_DENSEST = 0.15
_MOST_US = 1 << 51  # a time from 1970 until 2041: sums of a few fit 64 bits as nanoseconds


@dataclass(frozen=True)
class Trace:
    """A trace of torch.profiler; times are nanoseconds after `base_ns`."""

    path: Path
    base_ns: int  # of its times
    events: list[Any]


@dataclass(frozen=True)
class TraceClockOffset:
    """The clock offset: ns since 1970 in the trace plus `offset_ns` is CLOCK_MONOTONIC."""

    offset_ns: int
    error_ns: int | None  # at most; None: nothing to tell it by
    how: str

    def __str__(self) -> str:
        accuracy = "within an error that is not known"
        if self.error_ns is not None:
            accuracy = f"to {duration(self.error_ns)} or better"
        return f"the profiler's clock is aligned {accuracy}: {self.how}"


def read(path: Path) -> Trace:
    """Read the trace at `path`, which may be compressed with gzip. Raises LotusError."""
    try:
        content = _content(path)
    except OSError as error:
        raise LotusError(
            f"cannot read {path}: {error.strerror or error}; --with takes what torch.profiler's "
            "export_chrome_trace wrote"
        ) from None
    try:
        # torch writes names of kernels and NaN as they are.
        document = json.loads(content.decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        raise _no_trace(path) from None
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise LotusError(
            f"{path} has no traceEvents: --with takes what torch.profiler's export_chrome_trace "
            "wrote"
        )
    base = document.get("baseTimeNanoseconds") if isinstance(document, dict) else None
    return Trace(path, base if is_a(base, range(1 << 61)) else 0, events)  # type: ignore[arg-type]


def _content(path: Path) -> bytes:
    """Return the unpacked bytes of a trace. Raises OSError, or LotusError if there are too many."""
    with open(files.open_plain(path, follow=True), "rb") as file:
        packed = file.peek(2)[:2] == b"\x1f\x8b"
        content = _unpacked(path, file) if packed else _as_it_is(path, file)
    if len(content) > _MOST:
        raise LotusError(
            f"{path} has more than {_MOST >> 20:,} MiB, which would take ten times that of "
            "memory: record fewer steps of the program, with torch.profiler.schedule(...)"
        )
    values = sum(content.count(char) for char in (b"[", b"{", b","))
    if values > max(_CHUNK, _DENSEST * len(content)):
        raise _no_trace(path)
    return content


def _as_it_is(path: Path, file: IO[bytes]) -> bytes:
    """Return the file's bytes, at most one above the limit; refuse zeros, as in a sparse file."""
    parts, size = [], 0
    while size <= _MOST and (part := file.read(_CHUNK)):
        if b"\0" in part:
            raise _no_trace(path)
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _unpacked(path: Path, file: IO[bytes]) -> bytes:
    """Return the content of a gzip file, unless it is larger than a trace of its size can be."""
    unpacker, parts, size, packed_size = zlib.decompressobj(wbits=31), [], 0, 0
    try:
        while not unpacker.eof and size <= _MOST:
            if not unpacker.unconsumed_tail:
                packed = file.read(_CHUNK)
                packed_size += len(packed)
                if not packed:
                    raise _no_trace(path)
            parts.append(unpacker.decompress(unpacker.unconsumed_tail or packed, _CHUNK))
            size += len(parts[-1])
            if size > max(_SMALL, _SHRUNK * (packed_size - len(unpacker.unconsumed_tail))):
                raise LotusError(
                    f"{path} unpacks to {_SHRUNK} times its size and more, which no trace does: if "
                    "you know where it is from, unpack it with gunzip and give that to --with"
                )
    except zlib.error:
        raise _no_trace(path) from None
    return b"".join(parts)


def _no_trace(path: Path) -> LotusError:
    return LotusError(
        f"{path} is no trace that is complete: --with takes what torch.profiler's "
        "export_chrome_trace wrote"
    )


def align(run: "Run", trace: Trace) -> TraceClockOffset:
    """Align the clocks of a trace and a run. Raises LotusError if that is not possible."""
    start, end, pids = _ranges(trace)
    without = "the run alone is exported without --with"
    run_pids = set(run.waits["pid"].tolist()) | {rank["pid"] for rank in run.manifest["ranks"]}
    trace_pids = {event["pid"] for event in _durations(trace)}
    if not trace_pids & run_pids:
        own = ", ".join(str(pid) for pid in sorted(run_pids)[:5]) or "none"
        listed = ", ".join(plain(pid) for pid in sorted(trace_pids, key=str)[:5]) or "none"
        raise LotusError(
            f"{trace.path} is of another program: its processes ({listed}) are not those of the "
            f"run ({own}); {without}"
        )
    clocks = _by_clocks(run)
    mine = np.isin(pids, list(run_pids))
    start, end = start[mine], end[mine]
    waits = run.waits[run.waits["pid"].isin(set(pids[mine].tolist()))]
    begin = waits["start_ns"].to_numpy(np.int64)
    until = begin + waits["wait_ns"].to_numpy(np.int64)
    order = np.argsort(begin, kind="stable")
    begin, until = begin[order], until[order]
    if not len(start) or not len(begin):
        if clocks is None:
            raise LotusError(
                f"{trace.path} cannot be aligned: run.json does not tell the wall clock, and the "
                f"trace has no range of a DataLoader to go by; {without}"
            )
        return TraceClockOffset(
            clocks, None, "by the clocks of run.json, with no `next` to check it by"
        )
    offset = _vote(start, begin, clocks, _latitude(run))
    if offset is None:
        source = "with the clocks of run.json" if clocks is not None else "at a single offset"
        raise LotusError(
            f"{trace.path} cannot be aligned: its ranges around `next` do not fit the waits of the "
            f"run {source}; {without}"
        )
    return _bounded(start, end, begin, until, offset, clocks)


def _by_clocks(run: "Run") -> int | None:
    monotonic, wall = run.manifest.get("start_ns"), run.manifest.get("start_wall_ns")
    if not is_a(monotonic, range(1 << 62)) or not is_a(wall, range(1 << 62)):
        return None
    return int(monotonic or 0) - int(wall or 0)


def _latitude(run: "Run") -> int:
    """Return by how many ns the wall clock may have been corrected since the run began."""
    first, last = run.manifest.get("start_ns"), run.manifest.get("end_ns")
    if not is_a(first, int) or not is_a(last, int):
        return 10 * _STEP_NS
    return int(_STEP_NS + _SLEW * max(int(last or 0) - int(first or 0), 0))


def _durations(trace: Trace) -> Iterator[dict[str, Any]]:
    for event in trace.events:
        if isinstance(event, dict) and event.get("ph") == "X" and is_a(event.get("pid"), int):
            yield event


def _ranges(trace: Trace) -> tuple[Ints, Ints, Ints]:
    """Return start, end (ns since 1970) and pid of the ranges around `next`, in order."""
    rows = []
    for event in _durations(trace):
        name = str(event.get("name"))
        if name.startswith(_FIRST) and name.endswith(_LAST):
            start, durations = _ns(event.get("ts")), _ns(event.get("dur"))
            if start is not None and durations is not None:
                rows.append(
                    (start + trace.base_ns, start + trace.base_ns + durations, event["pid"])
                )
    table = np.array(sorted(rows), np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def _ns(microseconds: Any) -> int | None:
    if isinstance(microseconds, bool) or not isinstance(microseconds, (int, float)):
        return None
    if not math.isfinite(microseconds) or abs(microseconds) >= _MOST_US:
        return None
    whole = math.floor(microseconds)
    return whole * 1000 + round((microseconds - whole) * 1000)


def _nearest(values: Ints, sorted_values: Ints) -> Ints:
    """Return the index of the element nearest to each value."""
    after = np.clip(np.searchsorted(sorted_values, values), 1, max(len(sorted_values) - 1, 1))
    after = np.minimum(after, len(sorted_values) - 1)
    before = np.maximum(after - 1, 0)
    nearer = values - sorted_values[before] <= sorted_values[after] - values
    return np.where(nearer, before, after)


def _vote(start: Ints, begin: Ints, clocks: int | None, latitude: int) -> int | None:
    """Return the offset at which most ranges begin with a wait; None if there is none or several.

    Every epoch has one more range than waits: the one in which the loader reaches its end.
    """
    candidates = start[np.linspace(0, len(start) - 1, min(len(start), _TRIED)).astype(int)]
    # The first wait lies in one of the first ranges, which gives the offsets to try.
    offsets = np.unique(np.concatenate([begin - range_start for range_start in start[:2]]))
    if clocks is not None:
        offsets = np.append(offsets[np.abs(offsets - clocks) <= latitude], clocks)
    differences = []
    for offset in offsets.tolist():
        moved = candidates + offset
        away = begin[_nearest(moved, begin)] - moved
        near = np.abs(away) <= _NEAR_NS
        spread = float(np.abs(away[near] - np.median(away[near])).mean()) if near.any() else 0.0
        differences.append((int(near.sum()), -spread, offset))
    if not differences:
        return None
    hits, _, best = max(differences)
    if 2 * hits < len(candidates):
        return None
    if clocks is None:
        rivals = [votes for votes, _, offset in differences if abs(offset - best) > 5 * _NEAR_NS]
        # Without the clocks, one or two ranges fit at any offset.
        if hits < 4 or max(rivals, default=0) > 0.8 * hits:
            return None
    return int(best)


def _bounded(
    start: Ints, end: Ints, begin: Ints, until: Ints, offset: int, clocks: int | None
) -> TraceClockOffset:
    place = _nearest(start + offset, begin)
    good = np.abs(begin[place] - start - offset) <= _NEAR_NS
    # The wait lies in its range: the offset is at least `low` and at most `high`. Times of the
    # trace may be rounded to microseconds.
    low = int((until[place] - end)[good].max()) - 1000
    high = int((begin[place] - start)[good].min()) + 1000
    matched = plural(int(good.sum()), "wait")
    if clocks is not None and low <= clocks <= high:
        source = f"by the clocks of run.json, which {matched} in both bear out"
        return TraceClockOffset(clocks, max(high - clocks, clocks - low), source)
    middle = (low + high) // 2
    source = f"by {matched} in both"
    if clocks is not None:
        source += f" (the clocks of run.json are {duration(abs(middle - clocks))} off)"
    if low > high:
        source += ", between which the clocks drifted"
    return TraceClockOffset(middle, abs(high - low) // 2 + 1, source)


def shifted(trace: Trace, alignment: TraceClockOffset, pids: set[int]) -> Iterator[str]:
    """Yield the trace's events on the run's clock as JSON, without names of processes in `pids`."""
    for event in trace.events:
        if not isinstance(event, dict):
            continue
        about = str(event.get("name"))
        if event.get("ph") == "M" and about.startswith("process_") and event.get("pid") in pids:
            continue
        if "ts" in event:
            at = _ns(event["ts"])
            if at is None:
                continue
            at += trace.base_ns + alignment.offset_ns
            event = {**event, "ts": at / 1000}
        try:
            yield json.dumps(event, allow_nan=False)
        except ValueError:
            yield json.dumps(_finite(event))


def _finite(value: Any) -> Any:
    """Return the value with numbers that JSON cannot represent converted to text."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
