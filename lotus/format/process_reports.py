"""What the processes of a run reported (processes.jsonl), in bounded memory and time."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from lotus.common import files, redaction

NAME = "processes.jsonl"
# Two lines a Python process: a job of 50,000 of them, and more bytes than those would need.
_MOST_LINES = 100_000
_MOST = 32 << 20  # bytes
_LONGEST = 1 << 20  # bytes of a line; the longest tells of a fault, or where Python lies
_NUMBERS, _TEXTS = ("pid", "ppid", "time_ns"), ("event", "executable", "python", "torch")
_KEPT = frozenset((*_NUMBERS, *_TEXTS, "error", "text"))


class Reports(NamedTuple):
    """The lines of processes.jsonl.

    lines       the JSON objects, each with just what lotus writes: numbers, texts, and `argv`;
                without secrets
    torn        how many lines are no such objects, and torn_bytes how long they are
    left_bytes  bytes behind as many lines as are read
    """

    lines: list[dict[str, Any]]
    torn: int
    torn_bytes: int
    left_bytes: int


NONE = Reports([], 0, 0, 0)


def read(directory: Path) -> Reports:
    """Read what is there of a run. Raises OSError where it has none, or no plain file."""
    data, size = files.read_sized(directory / NAME, _MOST)
    lines: list[dict[str, Any]] = []
    at = seen = torn = torn_bytes = 0
    while at < len(data) and seen < _MOST_LINES:
        end = data.find(b"\n", at)
        end = end if end >= 0 else len(data)
        line = _line(data[at:end]) if end - at <= _LONGEST else None
        if line is not None:
            lines.append(line)
        elif end == len(data) < size:
            break  # cut off by ourselves
        elif end > at:
            torn, torn_bytes = torn + 1, torn_bytes + end - at
        at, seen = end + 1, seen + 1
    return Reports(lines, torn, torn_bytes, max(size - at, 0))


def _line(text: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    line = {name: _plain(content[name]) for name in _KEPT & content.keys()}
    for name in ("error", "text"):
        if isinstance(line.get(name), str):
            line[name] = redaction.text(line[name])
    argv = content.get("argv")
    if isinstance(argv, list):
        line["argv"] = redaction.command([_plain(word) for word in argv if isinstance(word, str)])
    return line


def _plain(value: Any) -> Any:
    """A number, or a text without what is no Unicode, which no table holds; else None."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    return value if isinstance(value, (int, float)) else None
