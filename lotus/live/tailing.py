"""Reads what the processes of a run have written to their event logs since the last reading.

A look continues where the previous one ended, so its cost depends only on what was written
meanwhile. A frame that is being written is left for the next look.
"""

import contextlib
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lotus.common.errors import LotusError
from lotus.common.storage import files, sparse_files
from lotus.common.text.formatting import plain
from lotus.format.manifest import sound
from lotus.inside.trace.log import log_format
from lotus.reading.logs.event_log import flat, parse_json
from lotus.reading.logs.frame_scanner import (
    EXPECTED,
    HEADER,
    MAGIC,
    Array,
    FrameType,
    frame_types,
    gather,
    join,
    length_of,
    narrow,
    scan,
    take,
)

_AT_ONCE = 64 << 20  # bytes read in one look, over all logs
_LARGEST_HEADER = 4 << 20


@dataclass
class Fresh:
    """The new content of one log.

    key      (host, pid, start_ns) of its process
    header   the log's own
    rows     frame name -> fixed fields of the new frames
    arrays   (frame name, array name) -> their rows, for those in `wanted`
    events   the JSON objects of the event frames
    """

    key: tuple[str, int, int]
    header: Mapping[str, Any]
    rows: dict[str, Array]
    arrays: dict[tuple[str, str], Array] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class _Log:
    key: tuple[str, int, int]
    header: dict[str, Any]
    types: dict[int, FrameType]
    offset: int  # where the next reading begins
    seen: int = 0  # size at the last reading that reached the end


class Tail:
    """Follows the logs of one run directory. `wanted`: (frame, array) to read besides the rows.

    behind  bytes that existed at the last look and have not been read yet
    """

    def __init__(self, directory: Path, wanted: tuple[tuple[str, str], ...] = ()) -> None:
        self._folder = directory / "events"
        self._wanted = wanted
        self._logs: dict[str, _Log | None] = {}  # None: not a log, or a newer version's
        self.behind = 0

    def read(self) -> list[Fresh]:
        """Return the new content, at most 64 MB; logs that cannot be read are skipped."""
        events = []
        room, self.behind = _AT_ONCE, 0
        for name, size in self._sizes():
            log = self._logs.get(name)
            if log is None and name in self._logs:
                continue
            if log is not None and size in (log.offset, log.seen):
                continue
            with contextlib.suppress(OSError):
                fd = files.open_plain(self._folder / name)
                try:
                    if log is None:
                        log = self._begun(fd, name, size)
                    if log is not None:
                        before = log.offset
                        end = sparse_files.reach(fd, before, size, max(room, 0))
                        if end > before:
                            events.append(self._read(fd, log, end, end == size))
                        room -= sparse_files.data_in(fd, before, end)
                        self.behind += sparse_files.data_in(fd, end, size)
                finally:
                    os.close(fd)
        return events

    def _sizes(self) -> list[tuple[str, int]]:
        if self._folder.is_symlink():  # out of the run
            return []
        try:
            with os.scandir(self._folder) as entries:
                return sorted(
                    (entry.name, entry.stat(follow_symlinks=False).st_size)
                    for entry in entries
                    if entry.name.endswith(".ltr")
                )
        except OSError:
            return []

    def _begun(self, fd: int, name: str, size: int) -> _Log | None:
        """Return the log of a file, or None if its header is incomplete or not of lotus."""
        prefix = log_format.FILE_HEADER.size
        head = os.pread(fd, prefix, 0)
        if len(head) < prefix:
            return None
        magic, length = log_format.FILE_HEADER.unpack(head)
        if magic == log_format.FILE_MAGIC and length <= _LARGEST_HEADER and size < prefix + length:
            return None
        self._logs[name] = None
        if magic != log_format.FILE_MAGIC or length > _LARGEST_HEADER:
            return None
        header = parse_json(os.pread(fd, length, prefix))
        if not isinstance(header, dict) or header.get("schema") != log_format.SCHEMA:
            return None
        types = frame_types(header.get("frames"))
        pid, start = header.get("pid"), header.get("start_ns")
        if types is None or type(pid) is not int or type(start) is not int:
            return None
        host = header.get("host")
        key = (host if isinstance(host, str) else "", pid, start)
        self._logs[name] = log = _Log(key, header, types, prefix + length)
        return log

    def _read(self, fd: int, log: _Log, size: int, whole: bool) -> Fresh:
        rows: dict[str, list[Array]] = {name: [] for name in EXPECTED}
        arrays: dict[tuple[str, str], list[Array]] = {wanted: [] for wanted in self._wanted}
        fresh = Fresh(log.key, log.header, {})
        end = log.offset
        for data, base, heads in scan(fd, log.offset, size, log.types, _lose):
            header = gather(data, heads, HEADER)
            end = base + int(heads[-1]) + HEADER.itemsize + int(header["length"][-1])
            for kind, frame in log.types.items():
                if frame.name not in EXPECTED:
                    continue
                chosen = (header["kind"] == kind) & (header["length"] >= frame.fixed.itemsize)
                at = np.flatnonzero(chosen)
                bodies = heads[at] + HEADER.itemsize
                fixed = gather(data, bodies, frame.fixed)
                right = length_of(frame, fixed) == header["length"][at]
                fixed, bodies = fixed[right], bodies[right]
                if not len(fixed):
                    continue
                rows[frame.name].append(narrow(fixed, EXPECTED[frame.name].fixed))
                for wanted in self._wanted:
                    if wanted[0] == frame.name:
                        arrays[wanted].append(take(data, bodies, fixed, frame, wanted[1]))
                if frame.name == "event":
                    starts = (bodies + frame.fixed.itemsize).tolist()
                    for start, count in zip(starts, fixed["n_text"].tolist(), strict=True):
                        short = count <= _LARGEST_HEADER
                        event = parse_json(data[start : start + count]) if short else None
                        if isinstance(event, dict) and isinstance(event.get("event"), str):
                            fresh.events.append(flat(event))
        # After the last good frame: one being written, one cut by this look, or damage up to the
        # next good one.
        log.offset, log.seen = end, size if whole else 0
        if end < size and not whole and sparse_files.data_in(fd, end, size) >= _AT_ONCE // 2:
            log.offset = _last_beginning(fd, end, size)  # nothing but damage
        fresh.rows = {name: join(rows[name], EXPECTED[name].fixed) for name in EXPECTED}
        for name, array in self._wanted:
            dtype = dict(EXPECTED[name].arrays)[array]
            fresh.arrays[name, array] = join(arrays[name, array], dtype)
        return fresh


def _last_beginning(fd: int, start: int, end: int) -> int:
    """Return where a frame that the end of a look cuts may begin within damage; else that end."""
    at = max(start + 1, end - _AT_ONCE // 2)
    place = os.pread(fd, end - at, at).rfind(MAGIC)
    return at + place if place >= 0 else end - len(MAGIC) + 1


def _lose(what: str, count: int, size: int) -> None:
    """Ignore damage: `lotus report` shows it."""


class ReportTail:
    """The lines of processes.jsonl, read again only if there are more."""

    def __init__(self, directory: Path) -> None:
        self._path, self._size = directory / "processes.jsonl", -1
        self._directory = directory
        self.lines: list[dict[str, Any]] = []

    def read(self) -> list[dict[str, Any]]:
        """Return the lines of processes.jsonl, read again if the file has grown."""
        from lotus.reading import missing_data

        with contextlib.suppress(OSError):
            size = self._path.stat().st_size
            if size != self._size:
                self._size, self.lines = size, missing_data.processes(self._directory)
        return self.lines


def manifest_of(directory: Path) -> dict[str, Any] | None:
    """Return run.json, or None if it does not exist yet. Raises LotusError if it is not a run's."""
    try:
        record = files.read_json(directory / "run.json")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        where = plain(shlex.quote(str(directory)))
        raise LotusError(
            f"{where} cannot be read by this user: chmod -R go+rX {where}, or run lotus as its "
            "owner"
        ) from None
    except (OSError, ValueError) as error:
        raise LotusError(
            f"{directory / 'run.json'} cannot be read: {error}; "
            "give the directory that lotus trace made"
        ) from None
    if not isinstance(record, dict) or not {"schema", "command"} <= record.keys():
        raise LotusError(
            f"{directory / 'run.json'} is not a lotus run; give the directory that lotus trace made"
        )
    return sound(record)[0]
