"""Memory of the program's processes during a run, as read by the launcher (blocking.json)."""

from pathlib import Path

import pandas as pd

from lotus.common import files
from lotus.format.run_directory import BLOCKING as NAME

COLUMNS = ("time_ns", "pid", "worker", "rss", "pss", "private", "shared")
_MOST_BYTES = 4 << 20


def read(directory: Path) -> pd.DataFrame:
    """Return the table `Run.memory`, empty if it was not recorded."""
    try:
        record = files.read_json(directory / NAME, _MOST_BYTES)
    except (OSError, ValueError):
        record = None
    rows = record.get("memory") if isinstance(record, dict) else None
    sound = [row for row in rows if _is_sound(row)] if isinstance(rows, list) else []
    table = pd.DataFrame(sound, columns=list(COLUMNS)).astype("int64")
    return table.sort_values("time_ns", kind="stable").reset_index(drop=True)


def _is_sound(row: object) -> bool:
    return (
        isinstance(row, list)
        and len(row) == len(COLUMNS)
        and all(type(value) is int and -1 <= value < 1 << 62 for value in row)
    )
