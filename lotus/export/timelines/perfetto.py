"""A timeline as Perfetto's trace packets, for https://ui.perfetto.dev and its trace processor.

Source: protos/perfetto/trace/trace_packet.proto and track_event/*.proto of the Perfetto project.
All slices of a piece have packets of one shape, so that numpy writes them.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from lotus.common.numbers.array_types import Ints
from lotus.common.terminal.progress import Advance
from lotus.export.export_request import ExportRequest
from lotus.export.interval_nesting import nest
from lotus.export.protobuf import (
    Bytes,
    Part,
    double_slot,
    fixed_slot,
    message,
    number,
    render,
    scatter,
    shaped,
    slot,
    text,
    width_of,
)
from lotus.export.timelines.counter_tracks import Points
from lotus.export.timelines.timeline import (
    FETCH,
    KINDS,
    OPERATION,
    SAMPLE,
    WAIT,
    Chunk,
    Slices,
    Timeline,
)
from lotus.export.timelines.tracks import Track
from lotus.reading.logs.process_tree import is_a
from lotus.reading.tables import table_pieces

if TYPE_CHECKING:
    from lotus.reading.run import Run
_MONOTONIC, _REALTIME = 3, 1  # of perfetto.protos.BuiltinClock
_CLOCKS = {_MONOTONIC: "ns", _REALTIME: "wall_ns"}
_BEGIN, _END, _COUNTER = 1, 2, 4  # of TrackEvent.Type
_CLEARED, _NEEDS = 1, 2  # of TracePacket.SequenceFlags
_EXPLICIT = 3  # of TrackDescriptor.ChildTracksOrdering
_NOTES = (
    "loader",
    "epoch",
    "batch",
    "sample",
    "size",
    "step",
)  # names of debug annotations, iid from 1
_FLOWS = {"flow_out": 47, "flow_in": 48}  # fields of TrackEvent
_SEQUENCE = number(10, 1)
_TIME_NS, _BYTES = 1, 3  # of CounterDescriptor.Unit
_AT_ONCE = 1 << 18  # names in one packet


def pieces(
    run: "Run", request: ExportRequest, notes: list[str], progress: Advance
) -> Iterator[bytes | memoryview]:
    """Yield the trace in pieces; remarks on what could not be shown are added to `notes`."""
    timeline = Timeline(run, notes)
    total = table_pieces.whole(run)
    yield _beginning(run)
    iid, clipped = 1, 0
    for chunk in timeline.chunks():
        for first in range(0, len(chunk.names), _AT_ONCE):
            yield _names(chunk.names[first : first + _AT_ONCE], iid + first)
        iid += len(chunk.names)
        for place in chunk.tracks:
            yield _descriptor(place)
        packets, cut = _slices(chunk)
        clipped += cut
        yield packets.data
        if chunk.points is not None:
            yield _points(chunk.points).data
        progress(chunk.done, total)
    if clipped:
        notes.append(
            f"{clipped} intervals ended after the one in which they began and are cut off there"
        )


def _packet(*fields: bytes) -> bytes:
    return message(1, b"".join((*fields, _SEQUENCE)))


def _beginning(run: "Run") -> bytes:
    """Return the packets that others refer to: the clock, and the names that every trace has."""
    times = {clock: run.manifest.get(f"start_{name}") for clock, name in _CLOCKS.items()}
    if not all(is_a(time, range(1 << 62)) for time in times.values()):
        times = {_MONOTONIC: 0}
    clocks = b"".join(
        message(1, number(1, clock) + number(2, int(time or 0))) for clock, time in times.items()
    )
    snapshot = _packet(message(6, clocks + number(2, _MONOTONIC)))
    interned = b"".join(
        message(1, number(1, iid) + text(2, kind)) for iid, kind in enumerate(KINDS, 1)
    ) + b"".join(message(3, number(1, iid) + text(2, name)) for iid, name in enumerate(_NOTES, 1))
    return snapshot + _packet(
        number(13, _CLEARED), message(59, number(58, _MONOTONIC)), message(12, interned)
    )


def _names(names: list[str], first: int) -> bytes:
    messages = (message(2, number(1, iid) + text(2, name)) for iid, name in enumerate(names, first))
    return _packet(number(13, _NEEDS), message(12, b"".join(messages)))


def _descriptor(place: Track) -> bytes:
    fields = number(1, place.id)
    if place.process == place.id:
        fields += message(3, number(1, place.pid) + text(6, place.name)) + number(11, _EXPLICIT)
        return _packet(message(60, fields))
    fields += number(5, place.process) + text(2, place.name) + number(12, place.order)
    if place.counter:
        units = {"ns": number(3, _TIME_NS), "bytes": number(3, _BYTES), "": b""}
        fields += message(8, units.get(place.unit) or text(6, place.unit))
    return _packet(message(60, fields))


def _slices(chunk: Chunk) -> tuple[Bytes, int]:
    """Return the packets that begin and end slices, by time, and the number of slices cut off."""
    slices = chunk.slices
    shown = np.flatnonzero((slices.track > 0) & (slices.start_ns >= 0))
    slices = Slices(*(column[shown] for column in slices))
    nested = nest(slices.track, slices.start_ns, slices.end_ns, slices.kind)
    slices = Slices(*(column[nested.order] for column in slices))
    size = len(slices.track)
    if not size:
        return np.empty(0, np.uint8), 0
    places = np.arange(size)
    begin_at, end_at = 2 * places - nested.depth, 2 * nested.last + 1 - nested.depth
    widths = {
        "time": width_of(int(nested.end.max())),
        "track": width_of(int(slices.track.max())),
        "name": width_of(int(slices.name.max()) + 1),
    }
    groups: list[tuple[Ints, Bytes]] = []
    for rows, parts in _shapes(slices, widths):
        columns = {name: getattr(slices, name)[rows] for name in (*_NOTES, *_FLOWS, "track")}
        columns |= {"time": slices.start_ns[rows], "name": slices.name[rows] + 1}
        columns["kind"] = slices.kind[rows] + 1
        groups.append((begin_at[rows], render(parts, len(rows), columns)))
    taken = (slices.flow_in >= 0) & (slices.kind == WAIT)
    for flow in (False, True):
        rows = np.flatnonzero(taken == flow)
        event = [number(9, _END), *slot(11, "track", widths["track"])]
        event += fixed_slot(_FLOWS["flow_in"], "flow_in") if flow else []
        columns = {"time": nested.end[rows], "track": slices.track[rows]}
        columns["flow_in"] = slices.flow_in[rows]
        groups.append((end_at[rows], render(_event(event, widths), len(rows), columns)))
    return _in_order(groups, 2 * size), nested.clipped


def _event(event: list[Part], widths: dict[str, int]) -> list[Part]:
    packet = [*slot(8, "time", widths["time"]), _SEQUENCE, number(13, _NEEDS)]
    return shaped(1, [*packet, *shaped(11, event)])


def _shapes(slices: Slices, widths: dict[str, int]) -> Iterator[tuple[Ints, list[Part]]]:
    """Yield rows of slices with the same fields, and the shape of the packets that begin them."""
    has_sample = (slices.kind == SAMPLE) & (slices.sample >= 0)
    has_batch = (slices.kind != OPERATION) & (slices.batch >= 0)
    has_size = (slices.kind == FETCH) & (slices.size >= 0)
    has_loader = (slices.loader >= 0) & (slices.epoch >= 0)
    has_loader &= (slices.kind == FETCH) | (slices.kind == WAIT)
    flows = (slices.flow_out >= 0, (slices.flow_in >= 0) & (slices.kind != WAIT))
    present = {"loader": has_loader, "epoch": has_loader, "batch": has_batch}
    present |= {"sample": has_sample, "size": has_size, "step": slices.step >= 0}
    shape = np.zeros(len(slices.track), np.int64)
    for bit, has in enumerate((*present.values(), *flows)):
        shape |= has.astype(np.int64) << bit
    for code in np.unique(shape).tolist():
        rows = np.flatnonzero(shape == code)
        event: list[Part] = [number(9, _BEGIN), *slot(11, "track", widths["track"])]
        event += [*slot(10, "name", widths["name"]), *slot(3, "kind", 1)]
        for bit, name in enumerate(present):
            if code >> bit & 1:
                most = int(getattr(slices, name)[rows].max())
                value = [number(1, bit + 1), *slot(4, name, width_of(most))]
                event += shaped(4, value)
        for bit, name in enumerate(_FLOWS):
            if code >> len(present) + bit & 1:
                event += fixed_slot(_FLOWS[name], name)
        yield rows, _event(event, widths)


def _in_order(groups: list[tuple[Ints, Bytes]], count: int) -> Bytes:
    """Return the rows of all groups, joined in the order of their places (0 to `count`)."""
    lengths = np.zeros(count, np.int64)
    for place, rows in groups:
        lengths[place] = rows.shape[1]
    ends = np.cumsum(lengths)
    out = np.empty(int(ends[-1]), np.uint8)
    for place, rows in groups:
        scatter(out, (ends - lengths)[place], rows)
    return out


def _points(points: Points) -> Bytes:
    good = np.flatnonzero((points.time_ns >= 0) & np.isfinite(points.value))
    columns = {"time": points.time_ns[good], "track": points.track[good]}
    columns["value"] = points.value[good]
    widths = {name: width_of(int(columns[name].max(initial=0))) for name in ("time", "track")}
    event = [number(9, _COUNTER), *slot(11, "track", widths["track"]), *double_slot(44, "value")]
    return render(_event(event, widths), len(good), columns).reshape(-1)
