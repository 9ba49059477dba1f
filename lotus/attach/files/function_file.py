"""Writes and reads functions.json, what perf sampled of a running program, by function."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from lotus.analysis.attached.evidence.evidence import FunctionEvidence
from lotus.attach.files import checked_values
from lotus.common.errors import LotusError
from lotus.common.storage import files
from lotus.format.run_directory import FUNCTIONS

SCHEMA = 1
_MOST_BYTES, _MOST_VALUES = 256 << 20, 16_000_000
_MOST_NAMES = 1_000_000
_PIDS = range(0, 1 << 31)
_TIMES = range(-(1 << 62), 1 << 62)
_SAMPLE = {"time_ns": _TIMES, "pid": _PIDS, "tid": _PIDS, "function": range(0, _MOST_NAMES)}
_MOMENT = {"time_ns": _TIMES, "pid": _PIDS, "tid": _PIDS, "label": range(0, 1 << 31)}


def write(directory: Path, functions: Mapping[str, Any], moments: pd.DataFrame) -> None:
    """Write functions.json; `moments` are those of stack_moments. Raises LotusError."""
    names = [[name[:1000] for name in pair] for pair in functions["names"]]
    record = {
        "schema": SCHEMA,
        **functions,
        "names": names,
        "moments": {name: moments[name].tolist() for name in _MOMENT},
    }
    files.replace(directory / FUNCTIONS, files.json_text(record, indent=None) + "\n", mode=0o600)


def load(directory: Path, labels: int) -> FunctionEvidence | None:
    """Read functions.json; None if there is none. Raises LotusError, one line with the next step.

    labels: the number of labels in attach.json
    """
    path = directory / FUNCTIONS
    if not path.is_file():
        return None
    again = "look again with: lotus attach PID --perf"
    try:
        content = files.read_json(path, _MOST_BYTES, _MOST_VALUES)
        if not isinstance(content, dict):
            raise ValueError("it is not an object")
        return _evidence(content, labels)
    except OSError as error:
        raise LotusError(f"cannot read {path}: {error.strerror}; see: ls -ld {path}") from None
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        what = "".join(char if char.isprintable() else "?" for char in str(error))[:200]
        raise LotusError(f"{path} is damaged: {what}; {again}") from None


def _evidence(content: Mapping[str, Any], labels: int) -> FunctionEvidence:
    if checked_values.whole(content.get("schema"), range(1, 1 << 31), "schema") > SCHEMA:
        raise ValueError("a newer lotus wrote it: update lotus to read it")
    names = []
    for pair in checked_values.items(content, "names")[:_MOST_NAMES]:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ValueError("a function is not of two parts")
        names.append([checked_values.text(each) for each in pair])
    samples = checked_values.columns(content, "samples", _SAMPLE)
    moments = checked_values.columns(content, "moments", _MOMENT)
    if len(samples) and int(samples["function"].max()) >= len(names):
        raise ValueError("a sample has a function that is not there")
    if len(moments) and int(moments["label"].max()) >= labels:
        raise ValueError("a moment has a label that is not there")
    return FunctionEvidence(
        event=checked_values.text(content.get("event")),
        frequency=checked_values.whole(content.get("frequency"), range(1, 1 << 31), "frequency"),
        kernel=content.get("kernel") is True,
        lost=checked_values.whole(content.get("lost"), range(0, 1 << 62), "lost"),
        names=pd.DataFrame(names, columns=["library", "function"]),
        samples=samples.sort_values("time_ns", kind="stable", ignore_index=True),
        moments=moments.sort_values("time_ns", kind="stable", ignore_index=True),
        notes=tuple(
            checked_values.text(note) for note in checked_values.items(content, "notes")[:10]
        ),
    )
