"""Flame graphs: folded stacks, and speedscope's file format.

Sources: Brendan Gregg's FlameGraph (one line per stack: frames separated
by semicolons, then the weight); speedscope's file-format-schema.json.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lotus.common.errors import LotusError
from lotus.common.storage import files
from lotus.common.terminal.progress import Advance
from lotus.common.text.formatting import plain
from lotus.common.version import __version__
from lotus.export.export_request import ExportRequest
from lotus.export.profiles.profile_stacks import NS, TIME, EventStacks, StackRow, Weight

if TYPE_CHECKING:
    from lotus.reading.run import Run
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def pieces(
    run: "Run", request: ExportRequest, notes: list[str], progress: Advance
) -> Iterator[bytes | memoryview]:
    """Yield the file in one piece. Raises LotusError if the run does not have the event."""
    stacks, event = EventStacks(run, notes), request.weight
    if request.format == "folded":
        weight = stacks.chosen(event, progress)
        if not weight.rows:
            raise LotusError(_nothing(weight.event))
        if event is None:
            events = [TIME, *stacks.sampled, *stacks.counted]
            others = [other for other in events if other != weight.event]
            alternatives = (
                f"; --weight takes also {', '.join(map(plain, others))}" if others else ""
            )
            unit = " in ns" if weight.unit == NS else ""
            notes.append(f"weighted by {plain(weight.event)}{unit}{alternatives}")
        yield folded(weight).encode("utf-8", "backslashreplace")
        return
    weights = [stacks.chosen(event, progress)] if event is not None else list(stacks.all(progress))
    if not any(weight.rows for weight in weights):
        raise LotusError(_nothing(event or TIME))
    yield speedscope(weights, run.path.absolute().name)


def _nothing(event: str) -> str:
    return (
        f"there is nothing of {plain(event)} in this run: no loader was iterated while it was "
        "recorded; see: lotus report RUN"
    )


def folded(weight: Weight) -> str:
    """Return lines of `frame;frame;frame weight`; all workers of a rank are combined."""
    several = len({row.rank for row in weight.rows}) > 1
    sums: dict[tuple[str, ...], float] = {}
    for row in weight.rows:
        frames = ((f"rank {row.rank}",) if several else ()) + row.frames
        # A semicolon separates frames, and the format has no way to escape it.
        key = tuple(plain(frame).replace(";", ":") for frame in frames)
        sums[key] = sums.get(key, 0.0) + row.value
    lines = (f"{';'.join(frames)} {round(value)}\n" for frames, value in sorted(sums.items()))
    return "".join(lines)


def speedscope(weights: list[Weight], name: str) -> bytes:
    """Return a profile per event, rank and process, or one per run for samples."""
    frames: dict[tuple[str, str], int] = {}
    profiles = []
    for weight in weights:
        grouped: dict[str, list[StackRow]] = {}
        for row in weight.rows:
            of = f"{weight.event}: rank {row.rank}, {row.process}" if row.process else weight.event
            grouped.setdefault(of, []).append(row)
        for of, rows in grouped.items():
            samples = [
                [
                    frames.setdefault((frame, library), len(frames))
                    for frame, library in zip(row.frames, row.libraries, strict=True)
                ]
                for row in rows
            ]
            values = [row.value for row in rows]
            profiles.append(
                {
                    "type": "sampled",
                    "name": plain(of),
                    "unit": "nanoseconds" if weight.unit == NS else "none",
                    "startValue": 0,
                    "endValue": sum(values),
                    "samples": samples,
                    "weights": values,
                }
            )
    shared = [
        {"name": plain(frame), **({"file": plain(library)} if library else {})}
        for frame, library in frames
    ]
    document = {
        "$schema": _SCHEMA,
        "exporter": f"lotus@{__version__}",
        "name": plain(name),
        "activeProfileIndex": 0,
        "shared": {"frames": shared},
        "profiles": profiles,
    }
    return files.json_text(document, indent=None).encode()
