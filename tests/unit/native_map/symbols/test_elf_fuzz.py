import contextlib
import functools
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from native_map.errors import UnusableError
from native_map.symbols import demangle
from native_map.symbols.address_space import AddressSpaces
from native_map.symbols.elf import Elf
from native_map.symbols.elf_files import own_vdso
from native_map.symbols.elf_image import Image
from native_map.symbols.named_ranges import perf_map
from tests.binaries import SOURCE, compile_c

MOST_BYTES = 64 << 20
relaxed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
numbers = st.one_of(
    st.integers(0, 2**64 - 1),
    st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 2**64 - 4096]),
)


@functools.cache
def originals() -> list[bytes]:
    """A program with symbols and one without, or where there is no compiler the vdso."""
    files = []
    with tempfile.TemporaryDirectory() as folder:
        for options in ([], ["-s"], ["-no-pie", "-Wl,-z,now"]):
            with contextlib.suppress(OSError, RuntimeError):
                files.append(compile_c(Path(folder) / "p", SOURCE, *options).read_bytes())
    vdso = own_vdso()
    if vdso is not None:
        files.append(bytes(vdso.elf.view))
    return files


def use(data: bytes) -> None:
    """All that is ever asked of a file."""
    try:
        elf = Elf(data)
    except UnusableError:
        return
    assert isinstance(elf.build_id, str)
    _ = elf.debug_link, elf.base, elf.crc(), elf.mini_debug()
    points = [0, 1, 0x1000, 0x1139, 0x401136, 2**63, 2**64 - 1]
    points += [s.vaddr + s.filesz // 2 & 2**64 - 1 for s in elf.segments[:8]]
    points += [s.addr + s.size // 3 & 2**64 - 1 for s in elf.sections[:64]]
    offsets = np.array(points, np.uint64)
    addresses, _ = elf.addresses(offsets)
    image = Image(elf, [elf])
    for each in (addresses, offsets):
        codes, names = image.resolve(each)
        assert len(codes) == len(each)
        assert all(name.isprintable() and name for name in names)
    image.aliases(points[3])


def bounded(data: bytes) -> None:
    tracemalloc.start()
    try:
        use(data)
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()


@relaxed
@given(st.data())
def test_a_damaged_file_harms_nobody(data: st.DataObject) -> None:
    if not originals():
        pytest.skip("no compiler and no vdso")
    raw = bytearray(data.draw(st.sampled_from(originals())))
    headers = [(0, 64)] if len(raw) < 64 else [(0, 64), (64, 800), (len(raw) - 2200, len(raw))]
    for name in (".symtab", ".dynsym", ".eh_frame", ".eh_frame_hdr", ".rela.plt", ".plt"):
        section = Elf(bytes(raw)).section(name)
        if section is not None:
            headers.append((section.offset, section.offset + section.size))
    for _ in range(data.draw(st.integers(1, 6))):
        low, high = data.draw(st.sampled_from([*headers, (0, len(raw))]))
        at = data.draw(st.integers(max(low, 0), max(min(high, len(raw)) - 1, 0)))
        width = data.draw(st.sampled_from([1, 2, 4, 8]))
        value = data.draw(numbers) & (1 << 8 * width) - 1
        raw[at : at + width] = value.to_bytes(width, "little")
    end = data.draw(st.one_of(st.just(len(raw)), st.integers(0, len(raw))))
    bounded(bytes(raw[:end]))


@relaxed
@given(st.sampled_from([1, 2]), st.sampled_from([1, 2]), st.binary(max_size=600))
def test_any_bytes_behind_the_magic_harm_nobody(wide: int, order: int, rest: bytes) -> None:
    bounded(b"\x7fELF" + bytes([wide, order]) + rest)


@relaxed
@given(st.binary(max_size=400) | st.text("0123456789abcdef \n", max_size=400).map(str.encode))
def test_any_perf_map_is_read(text: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "perf-1.map"
        path.write_bytes(text)
        ranges = perf_map(str(path))
    assert ranges is not None
    points = np.array([0, 1, 10, 0xABCDEF, 2**64 - 1], np.uint64)
    assert all(name is None or name.isprintable() for name in ranges.names(points))


def test_a_name_that_stands_for_gigabytes_stays_as_it_is() -> None:
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"

    def substitution(number: int) -> str:
        if number == 0:
            return "S_"
        number -= 1
        return f"S{digits[number // 36] if number >= 36 else ''}{digits[number % 36]}_"

    bomb = "_Z1f1A" + "".join(f"1BI{substitution(2 * n) * 2}E" for n in range(60))
    harmless = ["_Z1fi", "_ZN3foo3barEv"]  # sorted after the bomb
    assert demangle.demangle(harmless) == {"_Z1fi": "f(int)", "_ZN3foo3barEv": "foo::bar()"}
    names = demangle.demangle([*harmless, bomb])
    assert bomb not in names
    assert names["_Z1fi"] == "f(int)"


@relaxed
@given(st.lists(st.text("ZSTIEN_0123abci.", max_size=40), max_size=20))
def test_short_names_of_anything(names: list[str]) -> None:
    for name in names:
        assert demangle.short(name) or not name


@settings(deadline=None, max_examples=15)
@given(st.lists(st.text("_ZSTIEN0123abci", max_size=30).map("_Z".__add__), max_size=20))
def test_any_mangled_names_are_read(names: list[str]) -> None:
    assert set(demangle.demangle(names)) <= set(names)


small = st.integers(0, 40)
row = st.tuples(st.integers(1, 2), small, small, small, small, st.sampled_from("ab"), small)
place = st.tuples(st.integers(1, 3), small, small)


@relaxed
@given(
    st.lists(row, max_size=12),
    st.lists(place, min_size=1, max_size=30),
    st.lists(st.tuples(st.integers(1, 2), small), max_size=2),
)
def test_the_mapping_is_that_of_a_plain_search(
    rows: list[tuple[int, int, int, int, int, str, int]],
    places: list[tuple[int, int, int]],
    execs: list[tuple[int, int]],
) -> None:
    names = ["pid", "start", "size", "offset", "time_ns", "path", "until"]
    # perf's own order: by time. Equal times: the later row hides the earlier.
    table = pd.DataFrame(sorted(rows, key=lambda r: r[4]), columns=names)
    table["end"] = table["start"] + table["size"]
    table["until_ns"] = np.where(table["until"] > 20, 2**63 - 1, table["until"]).astype(np.int64)
    for name in ("start", "end", "offset"):
        table[name] = table[name].astype(np.uint64)
    comms = pd.DataFrame(execs, columns=["pid", "time_ns"]).assign(exec=True)
    spaces = AddressSpaces(table, None, comms)
    pid, ip, time = (np.array(column) for column in zip(*places, strict=True))
    matches = spaces.match(pid.astype(np.int64), ip.astype(np.uint64), time.astype(np.int64))
    for number, (its, address, when) in enumerate(places):
        wanted = plain_search(table, execs, its, address, when)
        at = matches.pair[number]
        source = int(matches.source[at])
        got = (spaces.paths[source], int(matches.offset[at])) if source >= 0 else None
        assert (matches.pid[at], matches.ip[at]) == (its, address)
        assert got == wanted


def plain_search(
    table: pd.DataFrame, execs: list[tuple[int, int]], pid: int, ip: int, time: int
) -> tuple[str, int] | None:
    mine = table[table["pid"] == pid]
    first = mine[mine["end"] > mine["start"]]["time_ns"].min()
    after = [when for who, when in execs if who == pid and when > first]
    before_it, behind = None, None
    for each in mine.itertuples():
        if not each.start <= ip < each.end:
            continue
        era = [when for when in after if when <= each.time_ns]
        if era != [when for when in after if when <= time]:
            continue
        if time >= each.until_ns:
            continue
        answer = each.path, int(ip - each.start + each.offset)
        if each.time_ns <= time:
            before_it = answer
        elif behind is None:
            behind = answer
    return before_it or behind
