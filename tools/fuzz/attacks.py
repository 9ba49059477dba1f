"""Makes files of some kilobytes or megabytes that cost a reader as much as possible.

Each function takes the approximate size of the file in bytes. The files exploit sizes and counts
that are announced only, holes, repetitions that compress well, overlapping parts, and work that
grows with the square of the file's contents.
"""

import ctypes
import json
import lzma
import struct
from collections.abc import Callable
from pathlib import Path

from tests.unit import perf_files as made

Maker = Callable[[int], bytes]

HOLE = b"LOTUS-FUZZ-HOLE:"
_HOLE = struct.Struct("<QQ")


def with_hole(data: bytes, at: int, size: int) -> bytes:
    """An input that stands for a file with so many bytes of nothing at a place (see `put`)."""
    return HOLE + _HOLE.pack(at, size) + data


def put(path: str | Path, data: bytes) -> None:
    """Write an input as the file that it stands for."""
    with open(path, "wb") as file:
        if not data.startswith(HOLE):
            file.write(data)
            return
        at, size = _HOLE.unpack_from(data, len(HOLE))
        rest = memoryview(data)[len(HOLE) + _HOLE.size :]
        file.write(rest[:at])
        file.seek(size, 1)
        file.write(rest[at:])
        file.truncate(max(file.tell(), at + size))


# perf.data


def perf(records: bytes, features: dict[int, bytes] | None = None) -> bytes:
    """Return a perf.data file of one event, with these feature sections."""
    head = 104 + 16 + 144
    ids = struct.pack("<QQ", 1, 101)
    table = made.attr() + struct.pack("<QQ", 104, 16)
    features = dict(sorted((features or {}).items()))
    bits = sum(1 << number for number in features).to_bytes(32, "little")
    fixed = b"PERFILE2" + struct.pack("<8Q", 104, 144, 120, 144, head, len(records), 0, 0) + bits
    at = head + len(records) + 16 * len(features)
    places = b""
    for section in features.values():
        places += struct.pack("<QQ", at, len(section))
        at += len(section)
    return b"".join([fixed, ids, table, records, places, *features.values()])


def packed(data: bytes) -> bytes:
    """One zstd frame. Raises OSError where there is no libzstd."""
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_compressBound.restype = library.ZSTD_compress.restype = ctypes.c_size_t
    library.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
    library.ZSTD_compress.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    library.ZSTD_compress.argtypes += [ctypes.c_size_t, ctypes.c_int]
    out = ctypes.create_string_buffer(library.ZSTD_compressBound(len(data)))
    size = library.ZSTD_compress(out, len(out), data, len(data), 3)
    return out.raw[:size]


COMPRESSED = {27: struct.pack("<5I", 1, 1, 1, 5, 528384)}


def zstd_that_repeats(size: int, *, announced: bool = True) -> bytes:
    """Return a few bytes of zstd for 384 KiB of samples, again and again."""
    frame = packed(made.sample(10) * (1 << 13))  # as much as perf maps at once
    record = made.record(81, frame, 0)
    return perf(record * max(size // len(record), 1), COMPRESSED if announced else None)


def zstd_of_processes(size: int) -> bytes:
    """Packed records of mappings, each kept as a row."""
    frame = packed(made.mmap(5, 5, 0x1000, "/lib/x.so") * 3000)
    record = made.record(81, frame, 0)
    return perf(record * max(size // len(record), 1), COMPRESSED)


def empty_records(size: int) -> bytes:
    """Records of eight bytes in a file that says it is compressed."""
    return perf(made.record(14, b"") * (size // 8), COMPRESSED)


def pipe_of_events(size: int) -> bytes:
    """Return a file in pipe mode, of the same samples, for perf itself."""
    attr = made.record(64, made.attr() + struct.pack("<Q", 1), 0)
    event = made.sample(10)
    return b"PERFILE2" + struct.pack("<Q", 16) + attr + event * (size // len(event))


def mappings_over_each_other(size: int) -> bytes:
    """Every sample lies in every mapping, all of other files."""
    half = size // 2
    rows = [made.mmap(n, 5, 0x1000 + n % 7, f"/l/{n}", 1 << 30) for n in range(half // 80)]
    samples = [made.sample(n, 0x100000 + n * 64) for n in range(half // 48)]
    return perf(b"".join(rows + samples))


def processes_of_one_sample(size: int) -> bytes:
    """Every sample is of another process, which maps another file."""
    rows = []
    for n in range(size // 130):
        rows += [made.mmap(1, n, 0x1000, f"/l/{n}"), made.sample(2, 0x1010, n, n)]
    return perf(b"".join(rows))


def samples_nowhere(size: int) -> bytes:
    """Every sample is of another process that maps nothing."""
    return perf(b"".join(made.sample(2, 0x1010 + n, n, n) for n in range(size // 48)))


def forks_that_inherit(size: int) -> bytes:
    """Return a process of many mappings with long paths, that forks again and again."""
    path = "/" + "x" * 4000
    rows = [made.mmap(1, 5, n << 13, f"{path}{n}") for n in range(max(size // 8200, 1))]
    rows += [made.fork(2, 10 + n, 5) for n in range(max(size // 160, 1))]
    return perf(b"".join(rows))


def execs(size: int) -> bytes:
    """Processes that only exec."""
    rows = [made.comm(n, n, "x", 1 << 13) for n in range(size // 56)]
    rows.append(made.mmap(1, 1, 0x1000, "/l") + made.sample(2, 0x1010, 1, 1))
    return perf(b"".join(rows))


def facts(size: int) -> bytes:
    """Feature sections of empty strings, of one string, of names and build ids without end."""
    text = struct.pack("<I", size // 6) + b"x" * (size // 6)
    words = struct.pack("<I", size // 24) + struct.pack("<I", 0) * (size // 24)
    names = struct.pack("<II", size // 100, 16) + (bytes(16) + struct.pack("<II", 0, 0)) * (
        size // 100
    )
    ids = b"".join(
        struct.pack("<IHHi", 67, 0, 40, n) + bytes(24) + f"{n:x}"[:3].encode().ljust(4, b"\0")
        for n in range(size // 160)
    )
    return perf(made.sample(10), {2: ids, 3: text, 11: words, 12: names})


def ids(size: int) -> bytes:
    """Events that all have the whole file as their ids."""
    count = 300
    head = 104 + 144 * count
    table = made.attr() + struct.pack("<QQ", 0, size // 2 // 8 * 8)
    fixed = struct.pack("<8Q", 104, 144, 104, 144 * count, head, size, 0, 0)
    return b"PERFILE2" + fixed + bytes(32) + table * count + bytes(size)


# ELF


def elf(
    sections: list[tuple[int, int, bytes, int, int]], *, same: bool = False, count: int = 0
) -> bytes:
    """Return a 64-bit ELF file with one executable segment of 1 GiB.

    sections: type, flags, bytes, link, entsize; the last is the string table of their names, which
    is "" for all but those that `names` finds. `count` repeats the first header so often.
    """
    out = bytearray(64 + 56)
    headers = []
    for kind, flags, data, link, entsize in sections:
        headers.append(
            struct.pack(
                "<IIQQQQIIQQ", 0, kind, flags, 0x1000, len(out), len(data), link, 0, 1, entsize
            )
        )
        out += data
    headers += [headers[0]] * count
    shoff = len(out)
    out += b"".join(headers)
    number = len(headers)
    struct.pack_into(
        "<16sHHIQQQIHHHHHH",
        *(out, 0, b"\x7fELF\2\1\1".ljust(16, b"\0"), 3, 62, 1, 0x1000, 64, shoff, 0, 64, 56, 1, 64),
        *(number if number < 65536 else 0, 0),
    )
    struct.pack_into("<IIQQQQQQ", out, 64, 1, 5, 0, 0, 0, 1 << 30, 1 << 30, 4096)
    return bytes(out)


def symbol(name: int, value: int, size: int) -> bytes:
    return struct.pack("<IBBHQQ", name, 0x12, 0, 1, value, size)


def one_table_many_headers(size: int) -> bytes:
    """Thousands of section headers that all name one symbol table."""
    count = min(size // 180, 60_000)
    symbols = b"".join(symbol(1, 0x1000 + 16 * n, 16) for n in range((size - 64 * count) // 24))
    return elf([(2, 0, symbols, 1, 24), (3, 0, b"\0f\0", 0, 0)], count=count)


def tables_over_each_other(size: int) -> bytes:
    """Symbol tables that begin 24 bytes apart."""
    symbols = b"".join(symbol(1, 0x1000 + 16 * n, 16) for n in range(size // 24))
    data = bytearray(elf([(2, 0, symbols, 1, 24), (3, 0, b"\0f\0", 0, 0)], count=60))
    shoff = struct.unpack_from("<Q", data, 40)[0]
    for n in range(60):
        at = shoff + 64 * (2 + n)
        struct.pack_into("<QQ", data, at + 24, 120 + 24 * n, max(len(symbols) - 24 * n, 0))
    return bytes(data)


def names_without_end(size: int) -> bytes:
    """Symbols and sections whose names are all of one string table without a zero."""
    text = b"\0" + b"x" * (size // 4)
    symbols = b"".join(
        symbol(1 + n % (size // 8 + 1), 0x1000 + 16 * (n // 300), 16) for n in range(size // 40)
    )
    data = bytearray(elf([(2, 0, symbols, 1, 24), (3, 0, text, 0, 0)], count=60_000))
    struct.pack_into("<H", data, 62, 1)
    shoff = struct.unpack_from("<Q", data, 40)[0]
    for n in range(2, 60_000):
        struct.pack_into("<I", data, shoff + 64 * n, 1 + n % (size // 8 + 1))
    return bytes(data)


def notes(size: int) -> bytes:
    """Section headers that all name one section of notes without a build id."""
    return elf(
        [(7, 0, struct.pack("<III", 0, 0, 1) * (65536 // 12), 0, 0)], count=min(size // 64, 60_000)
    )


def frames(size: int) -> bytes:
    """`.eh_frame` of entries that are as small as can be."""
    cie = struct.pack("<II", 12, 0) + b"\1\0\1\1\1\0\0\0"
    body = bytearray(cie)
    for n in range(size // 24):
        body += struct.pack("<IIQQ", 20, len(body) + 4, 16 * n, 16)
    strings = b"\0.eh_frame\0"
    data = bytearray(elf([(1, 0, bytes(body), 0, 0), (3, 0, strings, 0, 0)]))
    struct.pack_into("<H", data, 62, 1)
    struct.pack_into("<I", data, struct.unpack_from("<Q", data, 40)[0], 1)
    return bytes(data)


def nested(size: int) -> bytes:
    """One symbol over thousands of small ones, with gaps."""
    symbols = [symbol(1, 0x1000, 1 << 29)]
    symbols += [symbol(1, 0x1010 + 64 * n, 1) for n in range(size // 24)]
    return elf([(2, 0, b"".join(symbols), 1, 24), (3, 0, b"\0f\0", 0, 0)])


def debug_bomb(size: int) -> bytes:
    """`.gnu_debugdata` that unpacks to a hundred times `size`, or 256 MiB."""
    data = lzma.compress(b"\x7fELF\2\1" + bytes(min(100 * size, 256 << 20)), preset=1)
    out = bytearray(elf([(1, 0, data, 0, 0), (3, 0, b"\0.gnu_debugdata\0", 0, 0)]))
    struct.pack_into("<H", out, 62, 1)
    struct.pack_into("<I", out, struct.unpack_from("<Q", out, 40)[0], 1)
    return bytes(out)


# maps of generated code


def short_lines(size: int) -> bytes:
    return b"".join(b"%x 1 x\n" % n for n in range(size // 9))


def ranges_over_each_other(size: int) -> bytes:
    return b"".join(b"%x ffffffffff f%d\n" % (size - n, n) for n in range(size // 28))


def one_line(size: int) -> bytes:
    return b"1 1 " + b"x" * size


# exports of profilers


def vtune_wide(size: int) -> bytes:
    head = "Function,Module,CPU Time" + ",A" * 497 + "\n"
    return (head + ("f,m" + ",1" * 498 + "\n") * (size // 1000)).encode()


def vtune_columns(size: int) -> bytes:
    return ("Function,Module,CPU Time" + ",A" * (size // 2) + "\nf,m,1\n").encode()


def vtune_functions(size: int) -> bytes:
    rows = "".join(f"f{n},m,1\n" for n in range(size // 11))
    return ("Function,Module,CPU Time\n" + rows).encode()


def vtune_cell(size: int) -> bytes:
    return ('Function,Module,CPU Time\n"' + "\n" * size + '",m,1\n').encode()


def vtune_short(size: int) -> bytes:
    return ("Function,Module,CPU Time\n" + ",\n" * (size // 2)).encode()


def vtune_numbers(size: int) -> bytes:
    return ("Function,Module,CPU Time\n" + ("f,m," + "1" * 60 + "\n") * (size // 65)).encode()


def uprof_rows(size: int) -> bytes:
    head = "AMD uProf\n\nFUNCTION,CPU_TIME (ms),Module\n"
    return (head + "".join(f"f{n},1,m\n" for n in range(size // 11))).encode()


def uprof_tables(size: int) -> bytes:
    return ("AMD uProf\n\n" + "FUNCTION,A,Module\nf,1,m\n\n" * (size // 26)).encode()


def report_rows(size: int) -> bytes:
    head = "# Samples: 9  of event 'cycles'\n# Event count (approx.): 9\n#\n"
    head += "# Overhead,Shared Object,Symbol\n"
    return (head + "".join(f"0.1%,m,[.] f{n}\n" for n in range(size // 16))).encode()


def report_lines(size: int) -> bytes:
    head = "# Samples: 9  of event 'cycles'\n# Event count (approx.): 9\n#\n"
    head += "# Overhead,Shared Object,Symbol\n"
    return (head + "1.0%,m,f\n\n" + "x\n" * (size // 2)).encode()


def report_columns(size: int) -> bytes:
    head = "# Samples: 9  of event 'cycles'\n# Event count (approx.): 9\n#\n"
    head += "# Overhead,Shared Object,Symbol" + ",Samples" * 490 + "\n"
    return (head + ("1.0%,m,f" + "," * 490 + "\n") * (size // 500)).encode()


# py-spy


def _event(phase: str, name: str, at: int) -> str:
    return f'{{"name":"{name}","ph":"{phase}","tid":1,"ts":{at},"args":{{}}}}'


_BELOW = [_event("B", "process 5:", 1), _event("B", "thread (5): M", 1)]


def deep_stacks(size: int) -> bytes:
    """Return a stack that grows by a frame with each sample."""
    events = [_event("B", f"f{n}", 10_000 * n) for n in range(1, size // 64)]
    end = [_event("E", "", 10_000 * (size // 64))] * (len(events) + 2)
    return ("[" + ",".join([*_BELOW, *events, *end]) + "]").encode()


def long_ago(size: int) -> bytes:
    """Return a sample that lasted for a century."""
    whole = [*_BELOW, _event("B", "f", 2), *[_event("E", "", 10**14)] * 3]
    return ("[" + ",".join(whole) + "]").encode()


def one_event(size: int) -> bytes:
    return b'[{"name":"' + b"x" * size + b'"}]'


def json_nested(size: int) -> bytes:
    return b"[" * size


# perf list -j


def listing(size: int) -> bytes:
    rows = [{"EventName": f"e{n}", "Encoding": "cpu/event=1/"} for n in range(size // 60)]
    return json.dumps(rows).encode()


def listing_of_nothing(size: int) -> bytes:
    return b"[" + b"{}," * (size // 3) + b"{}]"


def listing_of_groups(size: int) -> bytes:
    rows = [{"MetricName": "m", "MetricGroup": f"g{n}"} for n in range(size // 45)]
    return json.dumps(rows).encode()


PERF: dict[str, Maker] = {
    "zstd that repeats": zstd_that_repeats,
    "zstd of processes": zstd_of_processes,
    "empty records": empty_records,
    "mappings over each other": mappings_over_each_other,
    "processes of one sample": processes_of_one_sample,
    "samples nowhere": samples_nowhere,
    "forks that inherit": forks_that_inherit,
    "execs": execs,
    "facts": facts,
    "ids": ids,
}
ELF: dict[str, Maker] = {
    "one table, many headers": one_table_many_headers,
    "tables over each other": tables_over_each_other,
    "names without end": names_without_end,
    "notes": notes,
    "frames": frames,
    "nested": nested,
    "debug bomb": debug_bomb,
}
MAPS: dict[str, Maker] = {
    "short lines": short_lines,
    "ranges over each other": ranges_over_each_other,
    "one line": one_line,
}
PROFILES: dict[str, Maker] = {
    "vtune: wide": vtune_wide,
    "vtune: columns": vtune_columns,
    "vtune: functions": vtune_functions,
    "vtune: cell": vtune_cell,
    "vtune: short": vtune_short,
    "vtune: numbers": vtune_numbers,
    "uprof: rows": uprof_rows,
    "uprof: tables": uprof_tables,
    "report: rows": report_rows,
    "report: lines": report_lines,
    "report: columns": report_columns,
}
STACKS: dict[str, Maker] = {
    "deep stacks": deep_stacks,
    "long ago": long_ago,
    "one event": one_event,
    "nested JSON": json_nested,
}
LISTS: dict[str, Maker] = {
    "listing": listing,
    "listing of nothing": listing_of_nothing,
    "listing of groups": listing_of_groups,
    "nested JSON": json_nested,
}
