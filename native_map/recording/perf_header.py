"""The header of a perf.data file: events, features, layouts of the records.

Source: Linux tools/perf/Documentation/perf.data-file-format.txt, tools/perf/util/header.c and
include/uapi/linux/perf_event.h. Every size and offset is checked before use: a hostile header costs
no more memory than the size of the file, and raises `UnusableError`.
"""

import struct
from dataclasses import dataclass, field
from typing import BinaryIO

from native_map.errors import UnusableError

MAGIC = b"PERFILE2"
SWAPPED = b"2ELIFREP"
FIXED_HEADER = 104
PIPE_HEADER = 16
MOST_EVENTS = 4096
MOST_PIPE_HEADER = 1 << 20
MOST_IDS = 1 << 20
MOST_FEATURE_BYTES = 4 << 20  # a command line of 2 MB is the longest that Linux starts
MOST_BUILD_IDS = 16 << 20
MOST_WORDS = 1 << 17  # of a command line
LONGEST_TEXT = 1 << 16
AUXTRACE, COMPRESSED = 18, 27
COMPRESSED_RECORDS = (81, 83)

# Bits of perf_event_attr.sample_type, in the order of the fields in a sample.
FIXED_FIELDS = (
    ("identifier", 1 << 16),
    ("ip", 1 << 0),
    ("tid", 1 << 1),
    ("time", 1 << 2),
    ("addr", 1 << 3),
    ("id", 1 << 6),
    ("stream_id", 1 << 9),
    ("cpu", 1 << 7),
    ("period", 1 << 8),
)
# The same for the trailer that sample_id_all puts behind every other record of the kernel.
TRAILER_FIELDS = (
    ("tid", 1 << 1),
    ("time", 1 << 2),
    ("id", 1 << 6),
    ("stream_id", 1 << 9),
    ("cpu", 1 << 7),
    ("identifier", 1 << 16),
)
SAMPLE_ID_ALL, USE_CLOCKID, FREQ = 1 << 18, 1 << 25, 1 << 10
CLOCKS = {0: "realtime", 1: "monotonic", 4: "monotonic_raw", 7: "boottime", 11: "tai"}
HARDWARE = (
    "cycles instructions cache-references cache-misses branches branch-misses bus-cycles"
    " stalled-cycles-frontend stalled-cycles-backend ref-cycles"
).split()
SOFTWARE = (
    "cpu-clock task-clock page-faults context-switches cpu-migrations minor-faults major-faults"
    " alignment-faults emulation-faults dummy bpf-output cgroup-switches"
).split()


@dataclass(frozen=True)
class EventAttr:
    """One perf_event_attr. `period` is 0 if the kernel adapts it to a frequency in Hz."""

    name: str
    type: int
    config: int
    sample_type: int
    sample_id_all: bool
    period: int
    frequency: int
    clock: str  # as `PerfRecording.clock`
    ids: tuple[int, ...] = ()

    @property
    def fields(self) -> dict[str, int]:
        """Return the word offset in the record of each field with a fixed place in a sample."""
        present = [name for name, bit in FIXED_FIELDS if self.sample_type & bit]
        return {name: 1 + at for at, name in enumerate(present)}

    @property
    def trailer(self) -> tuple[str, ...]:
        """Return the names of the words at the end of records that are not samples."""
        if not self.sample_id_all:
            return ()
        return tuple(name for name, bit in TRAILER_FIELDS if self.sample_type & bit)


@dataclass
class Header:
    """The contents of the header. `data` is the offset and size in bytes of the records."""

    events: list[EventAttr]
    data: tuple[int, int]
    facts: dict[str, str | int] = field(default_factory=dict)
    features: frozenset[int] = frozenset()
    build_ids: dict[str, str] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)

    @property
    def compressed(self) -> bool:
        """True if records are compressed; perf_unpack.py unpacks them."""
        return COMPRESSED in self.features


class NeedsPerfError(Exception):
    """This reader does not support the file, but `perf script` does. The text says why."""

    def __init__(self, reason: str, header: Header | None = None) -> None:
        super().__init__(reason)
        self.header = header  # as far as it could be read


def read_header(file: BinaryIO, length: int) -> Header:
    """Read the header of an open file of `length` bytes.

    Raises UnusableError if there is nothing to read, NeedsPerfError if only perf can read the file.
    """
    fixed = file.read(FIXED_HEADER)
    if not fixed:
        raise UnusableError("the perf.data file is empty: record again with `perf record`")
    if fixed[:8] == SWAPPED:
        raise NeedsPerfError("it was recorded on a machine with the other byte order")
    if fixed[:8] != MAGIC:
        raise UnusableError("not a perf.data file: it does not begin with PERFILE2")
    if len(fixed) < PIPE_HEADER:
        raise UnusableError("the perf.data file ends within its header: record again")
    size = struct.unpack_from("<Q", fixed, 8)[0]
    if size == PIPE_HEADER:
        raise NeedsPerfError("it was written to a pipe", _pipe_header(file))
    if len(fixed) < FIXED_HEADER or size < FIXED_HEADER:
        raise UnusableError("the perf.data file ends within its header: record again")
    attr_size, attrs_at, attrs_size, data_at, data_size = struct.unpack_from("<5Q", fixed, 16)
    bits = int.from_bytes(fixed[72:104], "little")
    damage: list[str] = []
    events = _events(file, length, attr_size, attrs_at, attrs_size)
    if data_at > length:
        raise UnusableError("the perf.data file ends before its first record: record again")
    complete = data_at + data_size <= length and data_size > 0
    if data_size == 0:
        damage.append("perf record did not end properly: read to the end of the file")
    elif not complete:
        lacks = data_at + data_size - length
        damage.append(f"the file is truncated: {lacks} bytes of records are missing")
    header = Header(events, (data_at, data_size if complete else length - data_at), damage=damage)
    if complete:
        _features(file, length, data_at + data_size, bits, header)
    elif bits:
        damage.append("the facts about the machine, behind the records, are missing")
    header.features = frozenset(n for n in range(256) if bits >> n & 1)
    if AUXTRACE in header.features:
        raise NeedsPerfError("it carries a hardware trace (AUXTRACE)", header)
    return header


def _pipe_header(file: BinaryIO) -> Header | None:
    """Read the header of a file in pipe mode from its first records (types 64 and up)."""
    header = Header([], (PIPE_HEADER, 0))
    file.seek(PIPE_HEADER)
    data = file.read(MOST_PIPE_HEADER)
    at = 0
    features = []
    while at + 8 <= len(data):
        kind, _, size = struct.unpack_from("<IHH", data, at)
        if kind < 64 or size < 16 or at + size > len(data):
            break
        if kind == 64 and len(header.events) < MOST_EVENTS:
            attr_size = struct.unpack_from("<I", data, at + 12)[0]
            if 64 <= attr_size <= size - 8:
                raw = data[at + 8 : at + 8 + attr_size]
                ids = data[at + 8 + attr_size : at + size]
                numbers = struct.unpack_from(f"<{len(ids) // 8}Q", ids)
                header.events.append(parse_attr(raw, numbers))
        elif kind == 80:
            number = struct.unpack_from("<Q", data, at + 8)[0]
            features.append((number, data[at + 16 : at + size]))
        at += size
    for number, raw in features:
        if number in _WANTED:
            try:
                add_feature(header, number, raw)
            except struct.error:
                header.damage.append(f"the header's {_WANTED[number]} cannot be read")
    return header if header.events else None


def parse_attr(raw: bytes, ids: tuple[int, ...] = ()) -> EventAttr:
    """Parse a perf_event_attr. Raises UnusableError below 64 bytes (PERF_ATTR_SIZE_VER0)."""
    if len(raw) < 64:
        raise UnusableError(
            "the perf.data file describes its events in too few bytes: record again"
        )
    kind, _, config, period, sample_type, _, flags = struct.unpack_from("<IIQQQQQ", raw)
    clock = "default"
    if flags & USE_CLOCKID and len(raw) >= 96:
        number = struct.unpack_from("<i", raw, 92)[0]
        clock = "monotonic" if number == 1 else f"other:{CLOCKS.get(number, number)}"
    adapts = bool(flags & FREQ)
    return EventAttr(
        name=_plain_name(kind, config),
        type=kind,
        config=config,
        sample_type=sample_type,
        sample_id_all=bool(flags & SAMPLE_ID_ALL),
        period=0 if adapts else period,
        frequency=period if adapts else 0,
        clock=clock,
        ids=ids,
    )


def _plain_name(kind: int, config: int) -> str:
    """Return perf's name of a generic event, for files without names of events."""
    names = {0: HARDWARE, 1: SOFTWARE}.get(kind, [])
    if config < len(names):
        return names[config]
    return f"event {kind}:{config:#x}"


def _at(file: BinaryIO, length: int, offset: int, size: int, what: str) -> bytes:
    if offset + size > length:
        raise UnusableError(f"the perf.data file is damaged: its {what} would lie beyond its end")
    file.seek(offset)
    return file.read(size)


def _events(file: BinaryIO, length: int, size: int, offset: int, total: int) -> list[EventAttr]:
    """Read the attr section: entries of a perf_event_attr and a section (offset, size) of ids."""
    number = total // size if 80 <= size <= 4096 else 0
    if not 0 < number <= MOST_EVENTS:
        raise UnusableError("the perf.data file describes no event that can be read: record again")
    table = _at(file, length, offset, number * size, "table of events")
    events = []
    ids_left = min(length // 8, MOST_IDS)
    for at in range(0, number * size, size):
        ids_at, ids_size = struct.unpack_from("<QQ", table, at + size - 16)
        ids_left -= ids_size // 8
        if ids_left < 0:
            raise UnusableError(
                "the perf.data file is damaged: it has more ids than events can have"
            )
        ids = struct.unpack(
            f"<{ids_size // 8}Q", _at(file, length, ids_at, ids_size // 8 * 8, "ids of an event")
        )
        events.append(parse_attr(table[at : at + size - 16], ids))
    return events


class _Cursor:
    """Reads a feature's bytes; the caller catches `struct.error` at their end."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def number(self, form: str = "I") -> int:
        value: int = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise struct.error("behind the end")
        self.at += size
        return self.data[self.at - size : self.at]

    def string(self) -> str:
        return text(self.take(self.number()))


def text(raw: bytes) -> str:
    """Return a C string; bytes that are not UTF-8 are escaped."""
    end = raw.find(b"\0", 0, LONGEST_TEXT)
    return raw[: LONGEST_TEXT if end < 0 else end].decode("utf-8", "backslashreplace")


def _features(file: BinaryIO, length: int, table_at: int, bits: int, header: Header) -> None:
    present = [number for number in range(256) if bits >> number & 1]
    table = b""
    if table_at + 16 * len(present) <= length:
        file.seek(table_at)
        table = file.read(16 * len(present))
    if len(table) < 16 * len(present):
        header.damage.append("the facts about the machine, behind the records, are missing")
        return
    for place, number in enumerate(present):
        if number not in _WANTED:
            continue
        offset, size = struct.unpack_from("<QQ", table, 16 * place)
        try:
            most = MOST_BUILD_IDS if number == 2 else MOST_FEATURE_BYTES
            if offset + size > length:
                raise struct.error("behind the end")
            if size > most:
                many = f"{size:,} bytes, more than {most >> 20} MiB"
                header.damage.append(f"the header's {_WANTED[number]} ({many}) was not read")
                continue
            file.seek(offset)
            add_feature(header, number, file.read(size))
        except struct.error:
            header.damage.append(f"the header's {_WANTED[number]} cannot be read")


_STRINGS = {3: "hostname", 4: "osrelease", 5: "version", 6: "arch", 8: "cpudesc", 9: "cpuid"}
_WANTED = {
    **_STRINGS,
    2: "build_ids",
    7: "nr_cpus",
    10: "total_mem_kb",
    11: "cmdline",
    12: "event_desc",
    29: "clock_data",
}


def add_feature(header: Header, number: int, data: bytes) -> None:
    """Read one feature section into the header. Raises struct.error if it is too short."""
    cursor = _Cursor(data)
    if number in _STRINGS:
        header.facts[_STRINGS[number]] = cursor.string()
    elif number == 7:
        cursor.number()  # skip the available CPUs; online CPUs matter
        header.facts["nr_cpus"] = cursor.number()
    elif number == 10:
        header.facts["total_mem_kb"] = cursor.number("Q")
    elif number == 11:
        words = cursor.number()
        if words > MOST_WORDS:
            raise struct.error("too many words")
        header.facts["cmdline"] = " ".join(cursor.string() for _ in range(words))
    elif number == 12:
        _names(header, cursor)
    elif number == 29:
        cursor.number()  # version
        header.facts["clock_data_clockid"] = cursor.number()
        header.facts["clock_data_wall_ns"] = cursor.number("Q")
        header.facts["clock_data_clock_ns"] = cursor.number("Q")
    elif number == 2:
        _build_ids(header, data)


def _names(header: Header, cursor: _Cursor) -> None:
    """EVENT_DESC: the names of the events, which the attr section lacks."""
    number, attr_size = cursor.number(), cursor.number()
    if number != len(header.events):
        raise struct.error("another number of events")
    named = []
    for _ in range(number):
        raw = cursor.take(attr_size)
        ids = cursor.number()
        name = cursor.string()
        cursor.take(8 * ids)
        if len(raw) < 16:
            raise struct.error("too short")
        named.append((struct.unpack_from("<I4xQ", raw), name))
    for at, (key, name) in enumerate(named):
        event = header.events[at]
        if key == (event.type, event.config) and name:
            header.events[at] = EventAttr(**{**event.__dict__, "name": name})


def _build_ids(header: Header, data: bytes) -> None:
    """Records of a perf_event_header, pid, build id (20 bytes, its size in the 21st), path."""
    at = 0
    while at < len(data):
        _, misc, size = struct.unpack_from("<IHH", data, at)
        if size < 36 or at + size > len(data):
            raise struct.error("a size that cannot be")
        long = data[at + 32] if misc & 1 << 15 else 20
        build_id = data[at + 12 : at + 12 + min(long, 20)].hex()
        header.build_ids.setdefault(text(data[at + 36 : at + size]), build_id)
        at += size
