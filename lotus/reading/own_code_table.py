"""Which Python functions the data set's own code was in (blocking.json)."""

import re
from pathlib import Path

import pandas as pd

from lotus.common import files, redaction
from lotus.format.run_directory import BLOCKING as NAME
from lotus.inside.common.guard import HOOK_FILE

_MOST_BYTES, _MOST_FRAMES = 4 << 20, 200
_FRAME = re.compile(r"(.+) \((.+):(\d{1,9})\)")
_OURS = re.compile(r"/lotus/inside/(?:\w+/)*\w+\.py$")
_COLUMNS = {
    "stack": "int64", "depth": "int64", "function": "object", "file": "object", "line": "int64",
    "samples": "int64",
}  # fmt: skip


def read(directory: Path) -> pd.DataFrame:
    """The table of a run, empty where it has none; see lotus.Run.own_code."""
    try:
        record = files.read_json(directory / NAME, _MOST_BYTES)
    except (OSError, ValueError):
        record = None
    lines = record.get("own_code") if isinstance(record, dict) else None
    rows = []
    for place, line in enumerate(lines if isinstance(lines, list) else []):
        frames, samples = _parsed(line)
        rows += [(place, depth, *frame, samples) for depth, frame in enumerate(frames)]
    return pd.DataFrame(rows, columns=list(_COLUMNS)).astype(_COLUMNS)


def _parsed(line: object) -> tuple[list[tuple[str, str, int]], int]:
    """The frames of a stack above lotus's own in a fetch; none where it is in no fetch."""
    if not isinstance(line, str):
        return [], 0
    text, _, count = line.rpartition(" ")
    if not (count.isascii() and count.isdecimal() and len(count) < 10):
        return [], 0
    parts = [_FRAME.fullmatch(part) for part in text.split(";")[:_MOST_FRAMES]]
    frames = [(part[1], part[2], int(part[3])) for part in parts if part]
    hooks = [
        place
        for place, (_, file, _) in enumerate(frames)
        if file == HOOK_FILE or _OURS.search(file)
    ]
    fetching = any(frames[place][0].rpartition(".")[2] == "fetch" for place in hooks)
    own = frames[hooks[-1] + 1 :] if fetching else []
    return [(redaction.text(name), redaction.text(file), row) for name, file, row in own], int(
        count
    )
