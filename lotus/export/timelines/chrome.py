"""Exports a timeline as Chrome's trace events; --with merges a trace of torch.profiler.

Source: "Trace Event Format" of the Chromium project. Times are microseconds of CLOCK_MONOTONIC.
"""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from lotus.common.numbers.array_types import Ints
from lotus.common.terminal.progress import Advance
from lotus.common.text.formatting import shorten
from lotus.export.export_request import ExportRequest
from lotus.export.tables.spreadsheet_cells import LONGEST_REPEATED
from lotus.export.timelines import torch_trace
from lotus.export.timelines.counter_tracks import Points
from lotus.export.timelines.timeline import FETCH, KINDS, OPERATION, SAMPLE, WAIT, Slices, Timeline
from lotus.export.timelines.tracks import Track
from lotus.reading.tables import table_pieces

if TYPE_CHECKING:
    from lotus.reading.run import Run


def pieces(
    run: "Run", request: ExportRequest, notes: list[str], progress: Advance
) -> Iterator[bytes | memoryview]:
    """Yield the JSON text in pieces; `notes` gets what could not be shown, and how it was aligned.

    Raises LotusError if the trace of torch.profiler cannot be converted to the run's clock.
    """
    timeline = Timeline(run, notes)
    merged = None
    if request.torch_trace is not None:
        merged = torch_trace.read(request.torch_trace)
        aligned = torch_trace.align(run, merged)
        notes.append(str(aligned))
    total = table_pieces.whole(run)
    names: list[str] = []
    places: dict[int, Track] = {}
    yield b'{"displayTimeUnit": "ms",\n"traceEvents": [\n'
    between = ""
    for chunk in timeline.chunks():
        # Each slice repeats its name.
        names += [json.dumps(shorten(name, LONGEST_REPEATED)) for name in chunk.names]
        places |= {place.id: place for place in chunk.tracks}
        events = [event for place in chunk.tracks for event in _metadata(place)]
        events += _slices(chunk.slices, names, places)
        if chunk.points is not None:
            events += _points(chunk.points, places)
        if events:
            yield (between + ",\n".join(events)).encode()
            between = ",\n"
        progress(chunk.done, total)
    if merged is not None:
        for event in torch_trace.shifted(merged, aligned, {place.pid for place in places.values()}):
            yield (between + event).encode()
            between = ",\n"
    yield b"\n]}\n"


def _metadata(place: Track) -> list[str]:
    if place.counter:
        return []
    kind = "process" if place.process == place.id else "thread"
    where = {"ph": "M", "pid": place.pid, "tid": place.tid}
    records: dict[str, dict[str, object]] = {
        f"{kind}_name": {"name": place.name},
        f"{kind}_sort_index": {"sort_index": place.order},
    }
    return [json.dumps({"name": name, **where, "args": args}) for name, args in records.items()]


def _slices(slices: Slices, names: list[str], places: dict[int, Track]) -> list[str]:
    good = np.flatnonzero((slices.track > 0) & (slices.start_ns >= 0))
    slices = Slices(*(column[good] for column in slices))
    where = {id: f'"pid":{place.pid},"tid":{place.tid}' for id, place in places.items()}
    columns = (column.tolist() for column in slices)
    events = []
    for track, kind, name, start, end, loader, epoch, batch, sample, size, step, out, into in zip(
        *columns, strict=True
    ):
        length = end - start
        args = ""
        if kind != OPERATION:
            if batch >= 0:
                args = f'"batch":{batch}'
                if kind in (FETCH, WAIT):
                    args += f',"loader":{loader},"epoch":{epoch}'
            if kind == SAMPLE and sample >= 0:
                args += f'{"," if args else ""}"sample":{sample}'
            elif kind == FETCH and size >= 0:
                args += f'{"," if args else ""}"size":{size}'
            elif step >= 0:
                args = f'"step":{step}'
        events.append(
            f'{{"ph":"X","cat":"{KINDS[kind]}","name":{names[name]},{where[track]},'
            f'"ts":{start // 1000}.{start % 1000:03},"dur":{length // 1000}.{length % 1000:03}'
            + (f',"args":{{{args}}}}}' if args else "}")
        )
        if out >= 0:
            events.append(_flow("s", out, start, where[track]))
        if into >= 0:
            events.append(_flow("f", into, end if kind == WAIT else start, where[track]))
    return events


def _flow(phase: str, number: int, at_ns: int, where: str) -> str:
    return (
        f'{{"ph":"{phase}","cat":"batch","name":"batch","id":{number},"bp":"e",{where},'
        f'"ts":{at_ns // 1000}.{at_ns % 1000:03}}}'
    )


def _points(points: Points, places: dict[int, Track]) -> list[str]:
    good = np.flatnonzero((points.time_ns >= 0) & np.isfinite(points.value))
    start: Ints = points.time_ns[good]
    facts = {
        id: f'"pid":{place.pid},"name":{json.dumps(place.name)}'
        for id, place in places.items()
        if place.counter
    }
    return [
        f'{{"ph":"C",{facts[track]},"ts":{at // 1000}.{at % 1000:03},"args":{{"value":{value!r}}}}}'
        for track, at, value in zip(
            points.track[good].tolist(), start.tolist(), points.value[good].tolist(), strict=True
        )
    ]
