"""Tables of the launcher's readings: the machine, the program's memory and its processes."""

import pandas as pd

from lotus.reading.launcher.launcher_record import LauncherRecord

MACHINE, MEMORY, CHILDREN = "machine", "memory", "children"  # as in the record
COLUMNS = {
    MACHINE: (
        "time_ns",
        "busy_ns",
        "idle_ns",
        "stolen_ns",
        "swapped_bytes",
        "available_bytes",
        "throttled_ns",
        "memory_stall_ns",
        "memory_limit_bytes",
        "cpu_stall_ns",
        "io_stall_ns",
        "disk_read_bytes",
        "disk_written_bytes",
        "frequency_khz",
        "quota_millicores",
    ),
    MEMORY: (
        "time_ns",
        "pid",
        "worker",
        "rss",
        "pss",
        "private",
        "shared",
        "anonymous",
        "descriptor_limit",
    ),
    CHILDREN: (
        "pid",
        "worker",
        "cpu_ns",
        "own_cpu_ns",
        "own_ns",
        "kept_cpu_ns",
        "own_system_ns",
        "own_minor_faults",
        "own_copied_bytes",
        "own_copies",
        "delay_before_ns",
    ),
}
_UNKNOWN = -1
_FORMER = {
    COLUMNS[MACHINE]: (6, 8, 9, 14),
    COLUMNS[CHILDREN]: (3, 5, 6, 10),
}  # columns of runs by an older lotus, which are the first of today's


def table(record: LauncherRecord, name: str) -> pd.DataFrame:
    """Return the table of `Run` that has this name, empty if it was not recorded."""
    rows, columns = record.values.get(name), COLUMNS[name]
    sound = [
        row + [_UNKNOWN] * (len(columns) - len(row))
        for row in (rows if isinstance(rows, list) else [])
        if _is_sound(row, columns)
    ]
    readings = pd.DataFrame(sound, columns=list(columns)).astype("int64")
    return readings.sort_values(columns[0], kind="stable").reset_index(drop=True)


def left_out(record: LauncherRecord) -> int:
    """Return how many readings `table` leaves out: damaged ones, or those of a newer lotus."""
    count = 0
    for name, columns in COLUMNS.items():
        rows = record.values.get(name)
        count += sum(not _is_sound(row, columns) for row in rows) if isinstance(rows, list) else 0
    return count


def _is_sound(row: object, columns: tuple[str, ...]) -> bool:
    return (
        isinstance(row, list)
        and len(row) in (len(columns), *_FORMER.get(columns, ()))
        and all(type(value) is int and -1 <= value < 1 << 62 for value in row)
    )
