"""The states of threads that made or awaited batches, observed by the launcher (blocking.json)."""

from collections.abc import Iterable
from functools import cache
from typing import Any

import pandas as pd

from lotus.common.text import redaction
from lotus.reading.launcher.launcher_record import LauncherRecord
from lotus.reading.logs.process_tree import Process

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
_PLACES = {
    "pid": "int64", "operation": "object", "reason": "object", "place": "object",
    "file_system": "object", "looks": "int64",
}  # fmt: skip
_STANDING = {
    "pid": "int64", "worker": "int64", "operation": "object", "reason": "object", "looks": "int64",
    "alike": "int64", "place": "object", "since_ns": "int64", "seen_ns": "int64",
}  # fmt: skip
_MOST_PLACES = 10_000  # rows that are read; lotus writes a tenth of them
_MOST_STANDING = 1000  # the same; lotus writes at most a quarter of them
_MOST_CHARACTERS, _MOST_OF_TYPE = 4096, 64  # of a path, and of the type of a file system


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


def places(record: LauncherRecord, processes: Iterable[Process]) -> pd.DataFrame:
    """Return the table `Run.places`, empty if it was not recorded."""
    names = {process.pid: _names(process) for process in processes}
    without_secrets = cache(redaction.text)  # most places are those of several processes
    rows = []
    for item in _items(record.values.get("places"))[:_MOST_PLACES]:
        pid, _, number, reason, looks = _row(item)
        place = _text(item.get("place"), _MOST_CHARACTERS)
        operation = names.get(pid, {}).get(number)
        if reason in REASONS and looks > 0 and place and operation is not None:
            kind = _text(item.get("file_system"), _MOST_OF_TYPE)
            rows.append((pid, operation, reason, without_secrets(place), kind, looks))
    return pd.DataFrame(rows, columns=list(_PLACES)).astype(_PLACES)


def standing(record: LauncherRecord, processes: Iterable[Process]) -> pd.DataFrame:
    """Return the table `Run.standing`, empty if it was not recorded, or none stood still."""
    names = {process.pid: _names(process) for process in processes}
    rows = []
    for item in _items(record.values.get("standing"))[:_MOST_STANDING]:
        pid, worker, number, reason, looks = _row(item)
        alike, since, seen = (_whole(item.get(name)) for name in ("alike", "since_ns", "seen_ns"))
        operation = names.get(pid, {}).get(number)
        if reason in REASONS and 0 < alike <= looks and 0 < since < seen and operation is not None:
            place = redaction.text(_text(item.get("place"), _MOST_CHARACTERS))
            rows.append((pid, worker, operation, reason, looks, alike, place, since, seen))
    return pd.DataFrame(rows, columns=list(_STANDING)).astype(_STANDING)


def _text(value: Any, most: int) -> str:
    """Return a text without halves of surrogate pairs; "" for what is none, or too long."""
    if not isinstance(value, str) or len(value) > most:
        return ""
    return value.encode("utf-8", "replace").decode()


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
