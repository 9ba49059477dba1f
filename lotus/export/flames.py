"""Flame graphs: folded stacks, and speedscope's file format.

Sources: Brendan Gregg's FlameGraph (a line a stack, frames between semicolons, then the weight);
speedscope's file-format-schema.json.
"""

import json
from typing import TYPE_CHECKING

import lotus
from lotus.errors import LotusError
from lotus.export.stacks import NS, TIME, Progress, Row, Stacks, Weight
from lotus.reporters.words import plain

if TYPE_CHECKING:
    from lotus.run import Run
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def content(
    run: "Run", format: str, event: str | None, notes: list[str], progress: Progress
) -> bytes:
    """The whole file. Raises LotusError where the run has nothing of the event."""
    stacks = Stacks(run, notes)
    if format == "folded":
        weight = stacks.chosen(event, progress)
        if not weight.rows:
            raise LotusError(_nothing(weight.event))
        if event is None:
            others = [
                one for one in [TIME, *stacks.sampled, *stacks.counted] if one != weight.event
            ]
            more = f"; --weight takes also {', '.join(map(plain, others))}" if others else ""
            unit = " in ns" if weight.unit == NS else ""
            notes.append(f"weighted by {plain(weight.event)}{unit}{more}")
        return folded(weight).encode("utf-8", "backslashreplace")
    weights = [stacks.chosen(event, progress)] if event is not None else list(stacks.all(progress))
    if not any(weight.rows for weight in weights):
        raise LotusError(_nothing(event or TIME))
    return speedscope(weights, run.path.absolute().name)


def _nothing(event: str) -> str:
    return (
        f"there is nothing of {plain(event)} in this run: no loader was iterated while it was "
        "recorded; see: lotus report RUN"
    )


def folded(weight: Weight) -> str:
    """Lines of `frame;frame;frame weight`, those of all workers of a rank together."""
    several = len({row.rank for row in weight.rows}) > 1
    sums: dict[tuple[str, ...], float] = {}
    for row in weight.rows:
        frames = ((f"rank {row.rank}",) if several else ()) + row.frames
        # A semicolon parts frames, and cannot be written otherwise.
        key = tuple(plain(frame).replace(";", ":") for frame in frames)
        sums[key] = sums.get(key, 0.0) + row.value
    lines = (f"{';'.join(frames)} {round(value)}\n" for frames, value in sorted(sums.items()))
    return "".join(lines)


def speedscope(weights: list[Weight], name: str) -> bytes:
    """One profile per event, rank and process; of samples one for the run."""
    frames: dict[tuple[str, str], int] = {}
    profiles = []
    for weight in weights:
        grouped: dict[str, list[Row]] = {}
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
        "exporter": f"lotus@{lotus.__version__}",
        "name": plain(name),
        "activeProfileIndex": 0,
        "shared": {"frames": shared},
        "profiles": profiles,
    }
    return json.dumps(document).encode()
