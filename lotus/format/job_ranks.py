"""The rank of each process of a job, and the ranks that recorded; standard library only.

The rank is in a log's header, or in a `loader` event if the job set its ranks later.
"""

import json
import os
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lotus.common.storage import files
from lotus.inside.trace.log import log_format

_NUMBER, _COUNT = range(1 << 31), range(1, 1 << 31)
SAMPLES = "perf's samples"  # a field of the manifest that `lotus merge` writes
_HEAD = 1 << 16  # bytes of a log that contain its header and the events of its first loader


class Place(NamedTuple):
    """The place of a process in its job, as far as it knows it; None: unknown."""

    rank: int | None
    local_rank: int | None
    world_size: int | None


def place_of(header: Mapping[str, Any], loaders: Iterable[Mapping[str, Any]]) -> Place:
    """Return the ranks in the header of a log or in the first `loader` event that has them."""
    sources = (header, *loaders)

    def first(name: str, sound: range) -> int | None:
        values = (source.get(name) for source in sources)
        return next((value for value in values if type(value) is int and value in sound), None)

    return Place(first("rank", _NUMBER), first("local_rank", _NUMBER), first("world_size", _COUNT))


def settled(places: Sequence[Place]) -> tuple[int, int, int]:
    """Return (rank, local rank, world size) of a process.

    `places` has its ancestors and itself, outermost first. The rank is that of the outermost
    process, or 0 if that has none. The local rank and the world size are the first known ones, or
    -1; without ranks, the world size is 1.
    """
    rank = places[0].rank
    local = next((at.local_rank for at in places if at.local_rank is not None), -1)
    alone = 1 if rank is None else -1
    world = next((at.world_size for at in places if at.world_size is not None), alone)
    return 0 if rank is None else rank, local, world


def host_of(header: Mapping[str, Any]) -> str:
    """Return the host on which a log was written; "" if unknown."""
    host = header.get("host")
    return host if isinstance(host, str) else ""


def clock_of(header: Mapping[str, Any]) -> str:
    """Return the id of the clock of a log's times; "" if unknown."""
    clock = header.get("clock") or header.get("boot_id")
    return clock if isinstance(clock, str) else ""


def names(hosts: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Map clocks to hosts by a manifest's `hosts`, which numbers hosts of the same name."""
    pairs = ((host.get("clock"), host.get("host")) for host in hosts)
    return {str(clock): host for clock, host in pairs if isinstance(host, str)}


def cores_of(header: Mapping[str, Any]) -> int | None:
    """Return the number of cores a log's process could use at its start; None: unknown."""
    cores = header.get("affinity")
    return cores if type(cores) is int and cores in _COUNT else None


def entry(
    place: tuple[int, int, int], host: str, pid: int, cores: int | None = None
) -> dict[str, Any]:
    """Return an entry of the manifest's `ranks`; `cores`: how many the process may use."""
    rank, local_rank, world_size = place
    return {
        "rank": rank,
        "local_rank": local_rank,
        "world_size": world_size,
        "host": host,
        "pid": pid,
        **({} if cores is None else {"cpu": {"affinity": cores}}),
    }


def recorded(directory: Path, hosts: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return the `ranks` of a run that has ended: an entry for each main process with a log.

    `hosts` is a result of `names`. Reads the beginning of each log and skips unreadable logs. Never
    raises OSError.
    """
    entries = []
    try:
        folder = directory / "events"
        logs = [] if folder.is_symlink() else sorted(folder.glob("*.ltr"))
    except OSError:
        logs = []
    for log in logs:
        try:
            header, events = _beginning(log)
        except (OSError, ValueError, struct.error, RecursionError):
            continue
        if any(event.get("event") == "worker" for event in events):
            continue
        pid, start = (header.get(name) for name in ("pid", "start_ns"))
        if isinstance(pid, int) and isinstance(start, int):
            loaders = (event for event in events if event.get("event") == "loader")
            place = settled([place_of(header, loaders)])
            host = (hosts or {}).get(clock_of(header)) or host_of(header)
            own = entry(place, host, pid, cores_of(header))
            entries.append((place[0], start, pid, own))
    return [own for *_, own in sorted(entries, key=lambda item: item[:3])]


def missing(ranks: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line on ranks of the job that are missing in `ranks`, those of the manifest."""
    entries = list(ranks)
    if not entries:
        return []
    world = max((entry["world_size"] for entry in entries), default=1)
    there = {entry["rank"] for entry in entries}
    lacking = world - len(there & set(range(world))) if world < 1 << 20 else 0
    if lacking <= 0:
        return []
    names = [str(rank) for rank in range(world) if rank not in there]
    shown = ", ".join(names[:8]) + (f" and {lacking - 8} more" if lacking > 8 else "")
    return [
        f"{lacking} of the job's {world} ranks are not in this run ({shown}): they left no log, or "
        "another host has them (lotus merge makes one run of several)"
    ]


def not_merged(parts: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Describe what only the original runs of a merged run have (`parts`: its `merged`)."""
    sources: dict[str, list[str]] = {}
    for part in parts:
        left_out = part.get("not_merged")
        for what in left_out if isinstance(left_out, list) else ():
            sources.setdefault(str(what), []).append(str(part.get("path")))
    return sources


def _beginning(log: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return (header, first events) of a log. Raises OSError, ValueError, struct.error."""
    fd = files.open_plain(log)
    try:
        data = os.pread(fd, _HEAD, 0)
    finally:
        os.close(fd)
    magic, length = log_format.FILE_HEADER.unpack_from(data)
    at = log_format.FILE_HEADER.size + length
    header = json.loads(data[log_format.FILE_HEADER.size : at])
    if magic != log_format.FILE_MAGIC or not isinstance(header, dict):
        raise ValueError("not an event log")
    events = []
    while at + log_format.FRAME_HEADER.size <= len(data):
        magic, kind, _, length, crc = log_format.FRAME_HEADER.unpack_from(data, at)
        body = at + log_format.FRAME_HEADER.size
        at = body + length
        payload = data[body:at]
        checked = zlib.crc32(payload, zlib.crc32(data[body - 12 : body - 4]))
        if magic != log_format.FRAME_MAGIC or checked != crc:
            break
        if kind == log_format.EVENT:
            event = json.loads(payload[log_format.FIXED[kind].size :])
            if isinstance(event, dict):
                events.append(event)
    return header, events
