"""Operations on two CPUs side by side: the one that gains most, and what cannot be compared.

All values are those of the comparison's lines; this module adds only their order and sentences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import records
from lotus.analysis.common.scope import RunLike
from lotus.common.text.formatting import duration, operation_name
from lotus.compare.measures import OPERATIONS, MeasureLine
from native_map.events.event_model import EventTable
from native_map.events.metrics import LEVEL_2, METRICS, gives

TOP_DOWN = tuple(LEVEL_2)  # the nodes of level 1
_MEASURES = ("instructions", "ipc", *TOP_DOWN)
COLUMNS = ["operation", "a_ns", "b_ns", "times", "low", "high", "different"]
COLUMNS += [f"{side}_{name}" for name in _MEASURES for side in "ab"]


@dataclass(frozen=True)
class CpuPair:
    """The operations of a loader on the CPUs of both sides.

    names      the name of each CPU
    rows       one per operation, and collate, most time first: `a_ns` and `b_ns` per sample,
               `times` (how many times as fast b is; `low`, `high`: its 95 % interval), `different`
               as in its line, and for each side instructions per sample, ipc, and shares of slots
    gain       a sentence: which operation gains most
    gains_most, saves_most   the operations that gain most by factor and by time; "" if the gain is
               not significant
    notes      what cannot be compared, and why
    """

    names: tuple[str, str]
    rows: pd.DataFrame
    gain: str
    gains_most: str
    saves_most: str
    notes: list[str]


def cpu_pair(
    runs: Sequence[Sequence[RunLike]],
    cpus: Sequence[tuple[str, EventTable]],
    events: Sequence[Sequence[str]],
    lines: Sequence[MeasureLine],
    letters: Sequence[str],
) -> CpuPair | None:
    """Return the operations side by side, or None if both sides ran on the same kind of CPU.

    The arguments have one element per side: its runs, its CPU (see `known_events`), the events
    that it counted, its letter.
    """
    models = [_model(side[0]) for side in runs]
    known = {uarch for side in runs if (uarch := side[0].manifest.get("uarch"))}
    if models[0] == models[1] and len(known) < 2:  # it is not kept without --counters
        return None
    names = [
        model or (table.text if table.cpus else "an unknown CPU")
        for model, (_, table) in zip(models, cpus, strict=True)
    ]
    if names[0] == names[1]:
        names = [f"{name} ({uarch})" for name, (uarch, _) in zip(names, cpus, strict=True)]
    rows = _rows(lines)
    gain, gains_most, saves_most = _gain(rows)
    notes = _notes([table for _, table in cpus], events, letters)
    return CpuPair((names[0], names[1]), rows, gain, gains_most, saves_most, notes)


def _model(run: RunLike) -> str:
    cpu = run.manifest.get("cpu")
    model = cpu.get("model") if isinstance(cpu, dict) else None
    return str(model or "")


def _rows(lines: Sequence[MeasureLine]) -> pd.DataFrame:
    by_id = {line.id: line for line in lines}
    times = [(line.label, line) for line in lines if line.group == OPERATIONS]
    if "collate" in by_id:
        times.append(("collate", by_id["collate"]))
    rows = []
    for label, line in times:
        gap = line.difference
        row: dict[str, object] = {
            "operation": label,
            "a_ns": line.a,
            "b_ns": line.b,
            "times": _times(line.b / line.a - 1 if line.a > 0 else np.nan),
            "low": _times(gap.high),
            "high": _times(gap.low),
            "different": line.different,
        }
        for name in _MEASURES:
            found = by_id.get(f"counter:{label}:{name}")
            for side in "ab":
                row[f"{side}_{name}"] = np.nan if found is None else getattr(found, side)
        rows.append(row)
    table = pd.DataFrame(rows, columns=COLUMNS)
    order = np.argsort(-(table["a_ns"] + table["b_ns"]).to_numpy(np.float64), kind="stable")
    return table.iloc[order].reset_index(drop=True)


def _times(difference: float) -> float:
    """Convert a relative change of a time to how many times as fast it is."""
    return 1 / (1 + difference) if difference > -1 else float("nan")


def _gain(rows: pd.DataFrame) -> tuple[str, str, str]:
    """Return a sentence, and the operations that gain most by factor and by time."""
    different = [row for row in records(rows) if row["different"]]
    if not different:
        return "No operation was shown to take a different time.", "", ""
    best = max(different, key=lambda row: row["times"])
    if best["times"] <= 1:
        worst = min(different, key=lambda row: row["times"])
        return f"No operation gains; {_in_words(worst)}, loses most.", "", ""
    saving = max(different, key=lambda row: row["a_ns"] - row["b_ns"])
    text = f"{_in_words(best)}, gains most"
    if saving["operation"] == best["operation"]:
        text += " and saves most time"
    else:
        saved = duration(saving["a_ns"] - saving["b_ns"])
        text += f"; {operation_name(saving['operation'])} saves most time, {saved} a sample"
    return f"{text}.", best["operation"], saving["operation"]


def _in_words(row: Mapping[str, Any]) -> str:
    name = operation_name(row["operation"])
    return f"{name}, {row['times']:.2f} times as fast ({row['low']:.2f} to {row['high']:.2f})"


def _notes(
    tables: Sequence[EventTable], events: Sequence[Sequence[str]], letters: Sequence[str]
) -> list[str]:
    notes = []
    without = [letter for letter, counted in zip(letters, events, strict=True) if not counted]
    if without:
        uncounted = "neither side was" if len(without) == 2 else f"{without[0]} was not"
        return [f"{uncounted} recorded with --counters: only times can be compared"]
    first, second = tables
    vendors = [{models.vendor for models in table.cpus} for table in tables]
    if any("ARM" in names for names in vendors) and vendors[0] != vendors[1]:
        notes.append(
            "the instruction sets differ: the same work takes different instructions, so only "
            "times can be compared, not instructions or IPC"
        )
    metrics_of = [set(gives(counted, table)) for counted, table in zip(events, tables, strict=True)]
    common = metrics_of[0] & metrics_of[1] & set(TOP_DOWN)
    if common and (first.formula, first.width) != (second.formula, second.width):
        text = f"shares of slots come from different events on {first.text} and on {second.text}"
        if first.width != second.width:
            text += f" ({first.width} and {second.width} slots a cycle)"
        notes.append(text + ": compare which is largest, not the values")
    for letter, mine, other in zip(letters, metrics_of, metrics_of[::-1], strict=True):
        only = [name.replace("_", " ") for name in METRICS if name in mine and name not in other]
        if only:
            notes.append(f"only {letter} gives: {', '.join(only)}")
    return notes
