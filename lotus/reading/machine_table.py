"""CPU and memory use of the machine during a run, as read by the launcher (blocking.json)."""

import pandas as pd

from lotus.reading.launcher_record import LauncherRecord

COLUMNS = ("time_ns", "busy_ns", "idle_ns", "stolen_ns", "swapped_bytes", "available_bytes")


def table(record: LauncherRecord) -> pd.DataFrame:
    """Return the table `Run.machine`, empty if it was not recorded."""
    rows = record.values.get("machine")
    sound = [row for row in rows if _is_sound(row)] if isinstance(rows, list) else []
    machine = pd.DataFrame(sound, columns=list(COLUMNS)).astype("int64")
    return machine.sort_values("time_ns", kind="stable").reset_index(drop=True)


def _is_sound(row: object) -> bool:
    return (
        isinstance(row, list)
        and len(row) == len(COLUMNS)
        and all(type(value) is int and -1 <= value < 1 << 62 for value in row)
    )
