"""The states of threads that made or awaited batches, observed by the launcher (blocking.json)."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from lotus.reading.launcher_record import LauncherRecord
from lotus.reading.process_tree import Process

# Numbers in the file for what is not an operation.
_OWN, _COLLATE, _NEXT, _STEP = -1, -2, -3, -4
OWN_CODE, COLLATE, NEXT, STEP = "", "collate", "(next)", "(step)"
REASONS = (
    *("computing", "lock", "shared-lock", "sleep", "file", "socket", "local-socket", "pipe"),
    *("events", "storage", "page-fault", "child", "other"),
)
_COLUMNS = {
    "pid": "int64", "worker": "int64", "operation": "object", "reason": "object", "looks": "int64",
}  # fmt: skip


def table(record: LauncherRecord, processes: Iterable[Process]) -> pd.DataFrame:
    """Return the table `Run.blocking`, empty if it was not recorded."""
    names = {process.pid: _names(process) for process in processes}
    rows = [
        (pid, worker, operation, reason, looks)
        for pid, worker, number, reason, looks in map(_row, _items(record.values.get("rows")))
        if reason in REASONS
        and looks > 0
        and (operation := names.get(pid, {}).get(number)) is not None
    ]
    return pd.DataFrame(rows, columns=list(_COLUMNS)).astype(_COLUMNS)


def _names(process: Process) -> dict[int, str]:
    defined = {int(each["id"]): str(each["name"]) for each in process.operations()}
    return {**defined, _OWN: OWN_CODE, _COLLATE: COLLATE, _NEXT: NEXT, _STEP: STEP}


def _items(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _row(item: dict[str, Any]) -> tuple[int, int, int, str, int]:
    pid, worker, operation, looks = (
        _whole(item.get(name)) for name in ("pid", "worker", "operation", "looks")
    )
    reason = item.get("reason")
    return pid, worker, operation, reason if isinstance(reason, str) else "", looks


def _whole(value: Any) -> int:
    fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53
    return value if fits else -3
