"""Files of perf: those in traces/perf, and such as are made by hand."""

import shutil
import struct
from pathlib import Path

import pytest

from native_map.recording.perf_unpack import library

TRACES = Path(__file__).parents[2] / "traces" / "perf"
BOTH_WAYS = (
    *("two_events", "fixed_period", "mixed", "default_clock", "raw_clock", "paired_default"),
    "arm64_cycles",
    *(["compressed"] if library() else []),
)
DIRECT = (*BOTH_WAYS, "arm64_newer")  # which perf 6.1 refuses
THROUGH_PERF = ("pipe", *([] if library() else ["compressed"]))
needs_perf = pytest.mark.skipif(not shutil.which("perf"), reason="perf is not installed")
# For files made by hand.
IP_TID_TIME_CPU_PERIOD = 1 | 2 | 4 | 1 << 7 | 1 << 8
IDENTIFIER = 1 << 16
SAMPLE_ID_ALL, USE_CLOCKID = 1 << 18, 1 << 25


def attr(config: int = 0, sample_type: int = IP_TID_TIME_CPU_PERIOD, period: int = 7) -> bytes:
    flags = SAMPLE_ID_ALL | USE_CLOCKID
    head = struct.pack("<IIQQQQQ", 1, 128, config, period, sample_type, 0, flags)
    return (head + bytes(92 - len(head)) + struct.pack("<i", 1)).ljust(128, b"\0")


def record(kind: int, body: bytes, misc: int = 2) -> bytes:
    return struct.pack("<IHH", kind, misc, 8 + len(body)) + body


def sample(time: int, ip: int = 0x1000, pid: int = 5, tid: int = 5, period: int = 1) -> bytes:
    return record(9, struct.pack("<QiiQIIQ", ip, pid, tid, time, 0, 0, period))


def trailer(time: int, pid: int = 5, cpu: int = 0) -> bytes:
    return struct.pack("<iiQII", pid, pid, time, cpu, 0)


def mmap(time: int, pid: int, start: int, path: str, size: int = 0x1000) -> bytes:
    name = path.encode() + b"\0"
    name += bytes(-len(name) % 8)
    return record(1, struct.pack("<iiQQQ", pid, pid, start, size, 0) + name + trailer(time, pid))


def fork(time: int, pid: int, ppid: int, misc: int = 0) -> bytes:
    return record(7, struct.pack("<iiiiQ", pid, ppid, pid, ppid, time) + trailer(time), misc)


def comm(time: int, pid: int, name: str, misc: int = 0) -> bytes:
    text = name.encode().ljust(16, b"\0")
    return record(3, struct.pack("<ii", pid, pid) + text + trailer(time, pid), misc)


def write(
    path: Path, records: bytes, *, attrs: list[bytes] | None = None, size: int | None = None
) -> Path:
    """A perf.data file; event number n has the ids n + 1 and n + 101."""
    attrs = attrs or [attr()]
    ids_at = 104
    table_at = ids_at + 16 * len(attrs)
    data_at = table_at + 144 * len(attrs)
    ids = b"".join(struct.pack("<QQ", n + 1, n + 101) for n in range(len(attrs)))
    table = b"".join(attr + struct.pack("<QQ", ids_at + 16 * n, 16) for n, attr in enumerate(attrs))
    size = len(records) if size is None else size
    head = (
        b"PERFILE2"
        + struct.pack("<8Q", 104, 144, table_at, len(table), data_at, size, 0, 0)
        + bytes(32)
    )
    path.write_bytes(head + ids + table + records)
    return path
