"""What threads that made batches were blocked in, as observed by the launcher (blocking.json)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from lotus.common import files
from lotus.format.run_directory import BLOCKING as NAME
from lotus.reading.process_tree import Process

# Numbers in the file that do not stand for operations.
_OWN, _COLLATE, _NEXT = -1, -2, -3
OWN_CODE, COLLATE, NEXT = "", "collate", "(next)"
REASONS = (
    *("computing", "lock", "shared-lock", "sleep", "file", "socket", "pipe", "events"),
    *("storage", "page-fault", "child", "other"),
)
_MOST_BYTES = 4 << 20
_COLUMNS = {
    "pid": "int64", "worker": "int64", "operation": "object", "reason": "object", "looks": "int64",
}  # fmt: skip


def read(directory: Path, processes: Iterable[Process]) -> tuple[pd.DataFrame, str]:
    """Return (the table `Run.blocking`, the reason why it could not be recorded or "")."""
    try:
        record = files.read_json(directory / NAME, _MOST_BYTES)
    except OSError:
        return _table([]), ""  # not every run has it
    except ValueError:
        return _table([]), f"{NAME} is damaged: what threads were blocked in is not known"
    record = record if isinstance(record, dict) else {}
    names = {process.pid: _names(process) for process in processes}
    rows = [
        (pid, worker, operation, reason, looks)
        for pid, worker, number, reason, looks in map(_row, _items(record.get("rows")))
        if reason in REASONS
        and looks > 0
        and (operation := names.get(pid, {}).get(number)) is not None
    ]
    problem = record.get("problem")
    return _table(rows), problem[:300] if isinstance(problem, str) else ""


def _names(process: Process) -> dict[int, str]:
    defined = {int(each["id"]): str(each["name"]) for each in process.operations()}
    return {**defined, _OWN: OWN_CODE, _COLLATE: COLLATE, _NEXT: NEXT}


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


def _table(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(_COLUMNS)).astype(_COLUMNS)
