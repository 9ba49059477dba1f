"""Writes and reads attach.json, the observations of a running program; each value is checked."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.evidence.evidence import SETTINGS, AttachEvidence, CounterEvidence
from lotus.attach.files import checked_values, function_file
from lotus.attach.stacks.frame_locals import FrameLocals
from lotus.attach.stacks.stack_phases import Label, Site
from lotus.attach.threads.thread_readings import ASLEEP, COLUMNS
from lotus.common.errors import LotusError
from lotus.common.storage import files
from lotus.common.text import redaction
from lotus.format.run_directory import ATTACHED
from lotus.reading.launcher import launcher_readings
from lotus.reading.launcher.launcher_record import LauncherRecord
from lotus.recording.looks.blocked_reason import REASONS

SCHEMA = 1
_MOST_BYTES, _MOST_VALUES = 64 << 20, 12_000_000  # ten minutes hold less
_MOST_LABELS, _MOST_CHAIN = 20_000, 16
_MOST_EVENTS = 64
_WHOLE = range(-1, 1 << 62)
_PIDS = range(0, 1 << 31)
_TOLD = range(-1, 1 << 31)
_ALL_REASONS = (*REASONS, ASLEEP)
PROCESS = {
    "pid": _PIDS, "main": _PIDS, "worker": range(-1, 1 << 16), "rank": range(-1, 1 << 24),
    "threads": range(-1, 1 << 20), "cpu_ns": _WHOLE, "read_bytes": _WHOLE, "children_ns": _WHOLE,
    "kept_ns": _WHOLE, "descriptors": _WHOLE, "descriptor_limit": _WHOLE, "ended": range(-1, 2),
}  # fmt: skip
_SAMPLE = {
    "time_ns": range(-(1 << 62), 1 << 62), "weight_ns": range(0, 1 << 50), "pid": _PIDS,
    "tid": _PIDS, "label": range(0, _MOST_LABELS),
}  # fmt: skip
_COUNT = {
    "pid": _PIDS, "tid": _PIDS, "event": range(0, _MOST_EVENTS),
    **dict.fromkeys(("count", "enabled_ns", "running_ns"), range(0, 1 << 62)),
}  # fmt: skip
_CLOCK = {"pid": _PIDS, "clock_ns": _WHOLE, "before_ns": range(0, 1 << 62)}
_LOOK = dict.fromkeys(COLUMNS, _WHOLE) | {"reason": range(0, len(_ALL_REASONS)), "pid": _PIDS}
_NUMBERS = {"cores": (0, 1 << 20), "machine_cores": (0, 1 << 20), "bound_ns": (0, 1 << 62)}
_COUNTS = ("start_ns", "end_ns", "pid", "stacks", "errors", "torn", "cost_ns", "memory_bytes")


def is_attached(path: str | os.PathLike[str]) -> bool:
    """Return whether `lotus attach` wrote a directory."""
    return os.path.isfile(Path(path) / ATTACHED)


@dataclass(frozen=True)
class AttachRecord:
    """The content of attach.json; `load` returns it as an AttachEvidence."""

    facts: Mapping[str, Any]
    processes: Sequence[Mapping[str, int]]  # rows with the fields of PROCESS
    sites: Sequence[Site]
    labels: Sequence[Label]
    samples: pd.DataFrame
    threads: Sequence[tuple[int, int, str]]  # (pid, tid, name)
    looks: Sequence[tuple[int, int, str, int, int, int, int]]  # COLUMNS of thread_readings
    machine: Sequence[Sequence[int]]
    memory: Sequence[Sequence[int]]
    missing: Sequence[str]  # sentences
    settings: Sequence[FrameLocals] = ()
    counters: Mapping[str, Any] | None = None  # as of `ThreadCounters.finish`


def write(directory: Path, record: AttachRecord) -> None:
    """Write attach.json. Raises LotusError."""
    numbers = {reason: number for number, reason in enumerate(_ALL_REASONS)}
    columns = list(zip(*record.looks, strict=True)) or [() for _ in COLUMNS]
    content = {
        "schema": SCHEMA,
        **record.facts,
        "processes": list(record.processes),
        "loops": [
            {
                "function": site.function,
                "file": redaction.text(site.file),
                "head": site.head,
                "first": site.first,
                "last": site.last,
            }
            for site in record.sites
        ],
        "labels": [
            [label.phase, label.name, label.loop, [_frame(frame) for frame in label.chain]]
            for label in record.labels[:_MOST_LABELS]
        ],
        "samples": {name: record.samples[name].tolist() for name in _SAMPLE},
        "threads": [list(thread) for thread in record.threads],
        "looks": {
            name: [numbers[value] for value in column] if name == "reason" else list(column)
            for name, column in zip(COLUMNS, columns, strict=True)
        },
        "machine": list(record.machine),
        "memory": list(record.memory),
        "missing": list(record.missing),
        "settings": [asdict(each) for each in record.settings],
        "counters": record.counters,
    }
    text = files.json_text(content, indent=None) + "\n"
    files.replace(directory / ATTACHED, text, mode=0o600)


def _frame(frame: Any) -> list[Any]:
    return [redaction.text(frame.function), redaction.text(frame.file), frame.line]


def load(directory: str | os.PathLike[str]) -> AttachEvidence:
    """Read attach.json, and functions.json where there is one.

    Raises LotusError, with one line that names the next step.
    """
    path = Path(directory) / ATTACHED
    again = "look again with: lotus attach PID"
    try:
        content = files.read_json(path, _MOST_BYTES, _MOST_VALUES)
    except OSError as error:
        raise LotusError(f"cannot read {path}: {error.strerror}; see: ls -ld {path}") from None
    except ValueError as error:
        raise LotusError(f"{path} is damaged: {error}; {again}") from None
    if not isinstance(content, dict) or type(content.get("schema")) is not int:
        raise LotusError(f"{path} is damaged, or lotus did not write it; {again}")
    if content["schema"] > SCHEMA:
        raise LotusError(f"{path} was written by a newer lotus; update lotus to read it")
    try:
        evidence = _evidence(content)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        what = "".join(char if char.isprintable() else "?" for char in str(error))[:200]
        raise LotusError(f"{path} is damaged: {what}; {again}") from None
    functions = function_file.load(Path(directory), len(evidence.labels))
    return replace(evidence, functions=functions)


def _evidence(content: Mapping[str, Any]) -> AttachEvidence:
    record = LauncherRecord(dict(content))
    loops = _rows(content, "loops", _loop, ["function", "file", "head", "first", "last"])
    labels, chains = _labels(content, len(loops))
    samples = checked_values.columns(content, "samples", _SAMPLE)
    if len(samples) and int(samples["label"].max()) >= len(labels):
        raise ValueError("a sample has a label that is not there")
    looks = checked_values.columns(content, "looks", _LOOK)
    looks["reason"] = [_ALL_REASONS[number] for number in looks["reason"]]
    return AttachEvidence(
        facts=_facts(content),
        processes=_rows(content, "processes", _process, list(PROCESS)),
        loops=loops,
        labels=labels,
        chains=chains,
        samples=samples.sort_values("time_ns", kind="stable", ignore_index=True),
        threads=_rows(content, "threads", _thread, ["pid", "tid", "name"]),
        looks=looks.sort_values("time_ns", kind="stable", ignore_index=True),
        machine=launcher_readings.table(record, "machine"),
        memory=launcher_readings.table(record, "memory"),
        missing=tuple(
            checked_values.text(each) for each in checked_values.items(content, "missing")[:50]
        ),
        # A run of an older lotus has none.
        settings=_rows({"settings": [], **content}, "settings", _settings, list(SETTINGS)),
        counters=_counters(content.get("counters")),
    )


def _facts(content: Mapping[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {"schema": content["schema"]}
    for name in ("lotus", "state", "host"):
        facts[name] = checked_values.text(content.get(name) or "")
    facts["command"] = redaction.command(
        [checked_values.text(word) for word in checked_values.items(content, "command")]
    )
    for name in _COUNTS:
        facts[name] = checked_values.whole(content.get(name), _WHOLE, name)
    for name, (least, most) in _NUMBERS.items():
        value = content.get(name)
        if value is None:
            facts[name] = float("nan")
        elif type(value) in (int, float) and least <= value < most:
            facts[name] = float(value)
        else:
            raise ValueError(f"{name} is {value!r:.50}")
    if not facts["end_ns"] > facts["start_ns"]:
        raise ValueError("it ends before it starts")
    return facts


def _labels(content: Mapping[str, Any], loops: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    labels, chains = [], []
    for number, row in enumerate(checked_values.items(content, "labels")[: _MOST_LABELS + 1]):
        if not isinstance(row, list) or len(row) != 4 or not isinstance(row[3], list):
            raise ValueError("a label is not of four parts")
        if row[0] not in phases.ALL:
            raise ValueError(f"a label has the phase {row[0]!r:.50}")
        labels.append(
            (
                row[0],
                checked_values.text(row[1]),
                checked_values.whole(row[2], range(-1, loops), "a label's loop"),
            )
        )
        for depth, frame in enumerate(row[3][:_MOST_CHAIN]):
            if not isinstance(frame, list) or len(frame) != 3:
                raise ValueError("a frame is not of three parts")
            line = checked_values.whole(frame[2], range(0, 1 << 31), "a frame's line")
            chains.append(
                (number, depth, checked_values.text(frame[0]), checked_values.text(frame[1]), line)
            )
    return (
        pd.DataFrame(labels, columns=["phase", "name", "loop"]),
        pd.DataFrame(chains, columns=["label", "depth", "function", "file", "line"]),
    )


def _rows(content: Mapping[str, Any], name: str, row_of: Any, columns: list[str]) -> pd.DataFrame:
    rows = [row_of(row) for row in checked_values.items(content, name)[:_MOST_LABELS]]
    return pd.DataFrame(rows, columns=columns)


def _process(row: Any) -> list[int]:
    if not isinstance(row, dict):
        raise ValueError("a process is not an object")
    row = {"kept_ns": -1, "ended": -1, **row}  # a run of an older lotus has none
    return [checked_values.whole(row[name], sound, name) for name, sound in PROCESS.items()]


def _loop(row: Any) -> list[Any]:
    if not isinstance(row, dict):
        raise ValueError("a loop is not an object")
    lines = [checked_values.whole(row.get(name), _PIDS, name) for name in ("head", "first", "last")]
    return [checked_values.text(row.get("function")), checked_values.text(row.get("file")), *lines]


def _settings(row: Any) -> list[Any]:
    if not isinstance(row, dict):
        raise ValueError("settings are not an object")
    numbers = [
        checked_values.whole(row.get(name), _PIDS if name == "pid" else _TOLD, name)
        for name in SETTINGS[:-1]
    ]
    return [*numbers, checked_values.text(row.get(SETTINGS[-1]))]


def _counters(content: Any) -> CounterEvidence | None:
    if content is None:
        return None
    if not isinstance(content, dict) or not isinstance(content.get("metrics"), dict):
        raise ValueError("counters are not an object")
    events = [
        checked_values.text(name) for name in checked_values.items(content, "events")[:_MOST_EVENTS]
    ]
    counts = checked_values.columns(content, "counts", _COUNT)
    if len(counts) and int(counts["event"].max()) >= len(events):
        raise ValueError("a count has an event that is not there")
    if len(set(events)) < len(events):
        raise ValueError("two events have one name")
    return CounterEvidence(
        uarch=checked_values.text(content.get("uarch")),
        metrics={
            checked_values.text(name): checked_values.text(text)
            for name, text in content["metrics"].items()
        },
        events=tuple(events),
        counts=counts,
        clocks=checked_values.columns(content, "clocks", _CLOCK),
        notes=tuple(
            checked_values.text(note) for note in checked_values.items(content, "notes")[:20]
        ),
    )


def _thread(row: Any) -> list[Any]:
    if not isinstance(row, list) or len(row) != 3:
        raise ValueError("a thread is not of three parts")
    return [
        checked_values.whole(row[0], _PIDS, "pid"),
        checked_values.whole(row[1], _PIDS, "tid"),
        checked_values.text(row[2]),
    ]
