"""The reports of a run's processes (processes.jsonl), read in bounded memory and time."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from lotus.common.storage import files
from lotus.common.text import redaction

NAME = "processes.jsonl"
FAULT = "tracer fault: "  # what precedes the error that ended the recording of a process
# Two lines per Python process: enough for a job of 50,000 processes.
_MOST_LINES = 100_000
_MOST = 32 << 20  # bytes
_LONGEST = 1 << 20  # bytes of a line; the longest contain a traceback or the path of Python
_NUMBERS, _TEXTS = ("pid", "ppid", "time_ns"), ("event", "executable", "python", "torch")
_KEPT = frozenset((*_NUMBERS, *_TEXTS, "error", "text"))


class ProcessReports(NamedTuple):
    """The lines of processes.jsonl.

    lines       the JSON objects, reduced to what lotus writes (numbers, strings and `argv`) and
                without secrets
    torn        the number of lines that are not such objects, and torn_bytes their length
    left_bytes  bytes after the last line that is read
    """

    lines: list[dict[str, Any]]
    torn: int
    torn_bytes: int
    left_bytes: int


NONE = ProcessReports([], 0, 0, 0)


def read(directory: Path) -> ProcessReports:
    """Read the file of a run. Raises OSError if it does not exist or is not a regular file."""
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
            break  # truncated by this reader
        elif end > at:
            torn, torn_bytes = torn + 1, torn_bytes + end - at
        at, seen = end + 1, seen + 1
    return ProcessReports(lines, torn, torn_bytes, max(size - at, 0))


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
    """Return a number, or a string without lone surrogates, which tables cannot hold; else None."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    return value if isinstance(value, (int, float)) else None
