import re
import shutil
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from native_map.errors import UnusableError
from native_map.symbols.eh_frame import Frames
from native_map.symbols.elf import Elf, same_build
from native_map.symbols.elf_image import UNKNOWN, Image
from tests.binaries import SOURCE, compile_c, needs_gcc, nm, run

SYMBOL = re.compile(
    r"^\s*\d+: (?P<value>[0-9a-f]+)\s+(?P<size>\d+|0x\w+) (?P<type>FUNC|IFUNC)\s+\w+\s+\w+\s+"
    r"(?:\[.*?\]\s+)?(?P<section>\d+) (?P<name>\S+)"
)
FRAME = re.compile(r"^\w+ \w+ \w+ FDE .*pc=([0-9a-f]+)\.\.([0-9a-f]+)$", re.MULTILINE)
needs_readelf = pytest.mark.skipif(not shutil.which("readelf"), reason="readelf is missing")


def real_libraries() -> list[str]:
    """ELF files of this very process, and the stripped libraries inside Pillow's wheel."""
    text = Path("/proc/self/maps").read_text()
    paths = {line.split(None, 5)[-1] for line in text.splitlines() if " r-xp " in line}
    wanted = re.compile(
        r"/(libpython3[^/]*|libc|libm|ld-linux[^/]*|libstdc\+\+|python3[^/]*)\.?so?"
    )
    libraries = {path for path in paths if path.startswith("/") and wanted.search(path)}
    libraries.add(str(Path(sys.executable).resolve()))
    for folder in map(Path, sys.path):
        libraries.update(str(path) for path in folder.glob("pillow.libs/libjpeg*"))
        libraries.update(str(path) for path in folder.glob("PIL/_imaging.*.so"))
    return sorted(libraries)


def symbols_by_readelf(path: str) -> list[tuple[int, int, str]]:
    rows = []
    for line in run("readelf", "-sW", path).splitlines():
        symbol = SYMBOL.match(line)
        if symbol and int(symbol["value"], 16):
            name = symbol["name"].split("@")[0]
            rows.append((int(symbol["value"], 16), int(symbol["size"], 0), name))
    return rows


@needs_readelf
@pytest.mark.parametrize("path", real_libraries(), ids=lambda path: Path(path).name)
def test_function_bounds_are_those_that_readelf_prints(path: str) -> None:
    pairs = FRAME.findall(run("readelf", "-wfN", path))
    wanted = sorted((int(a, 16), int(b, 16)) for a, b in pairs)
    wanted = [(a, b) for a, b in wanted if b > a]
    assert len(wanted) > 2
    starts = np.array([a for a, _ in wanted], np.uint64)
    ends = np.array([b for _, b in wanted], np.uint64)
    frames = Frames(Elf.open(path))
    for addresses in (starts, ends - np.uint64(1), (starts + ends) // np.uint64(2)):
        begin, end, known = frames.bounds(addresses)
        assert known.all()
        assert (begin == starts).all()
        assert (end == ends).all()
    outside = np.setdiff1d(ends, starts)
    assert not frames.bounds(outside)[2].any()


@needs_readelf
@pytest.mark.parametrize("path", real_libraries(), ids=lambda path: Path(path).name)
def test_every_function_symbol_is_found(path: str) -> None:
    rows = [row for row in symbols_by_readelf(path) if row[1]]
    by_start: dict[int, set[str]] = {}
    for value, _, name in rows:
        by_start.setdefault(value, set()).add(name)
    elf = Elf.open(path)
    image = Image(elf)
    starts = np.array(sorted(by_start), np.uint64)
    codes, names = image.resolve(starts)
    for start, code in zip(starts.tolist(), codes.tolist(), strict=True):
        assert names[code] in by_start[start], hex(start)
        assert names[code] in image.aliases(start)
    # The last byte of a function is its own, or of a symbol that begins within it.
    ends = np.array([value + size - 1 for value, size, _ in rows], np.uint64)
    codes, names = image.resolve(ends)
    spans: dict[str, list[tuple[int, int]]] = {}
    for value, size, name in rows:
        spans.setdefault(name, []).append((value, value + size))
    for end, code in zip(ends.tolist(), codes.tolist(), strict=True):
        assert any(a <= end < b for a, b in spans[names[code]]), hex(end)


@needs_readelf
@pytest.mark.parametrize("path", real_libraries(), ids=lambda path: Path(path).name)
def test_build_ids_are_those_that_readelf_prints(path: str) -> None:
    build_id = re.search(r"Build ID: (\w+)", run("readelf", "-nW", path))
    assert Elf.open(path).build_id == (build_id[1] if build_id else "")


@needs_readelf
def test_a_wheels_stripped_libjpeg_groups_by_function() -> None:
    libraries = [path for path in real_libraries() if "libjpeg" in path]
    if not libraries:
        pytest.skip("Pillow's wheel is not installed")
    elf = Elf.open(libraries[0])
    assert not elf.has_symtab
    text = elf.section(".text")
    assert text is not None
    addresses = np.arange(text.addr, text.addr + text.size, 16, dtype=np.uint64)
    codes, names = Image(elf).resolve(addresses)
    by_start = [name for name in names if name.startswith("0x")]
    assert len(by_start) > 100
    starts, _, known = Frames(elf).bounds(addresses)
    for code, start, framed in zip(codes.tolist(), starts.tolist(), known.tolist(), strict=True):
        assert not names[code].startswith("0x") or (framed and names[code] == hex(start))
        assert not (framed and names[code] == UNKNOWN)


@needs_gcc
def test_addr2line_names_the_same_functions(tmp_path: Path) -> None:
    if not shutil.which("addr2line"):
        pytest.skip("addr2line is missing")
    program = compile_c(tmp_path / "program", SOURCE)
    rows = [row for row in symbols_by_readelf(str(program)) if row[1]]
    addresses = sorted({value + at for value, size, _ in rows for at in range(size)})
    lines = run("addr2line", "-f", "-e", program, *map(hex, addresses)).splitlines()[::2]
    image = Image(Elf.open(str(program)))
    codes, names = image.resolve(np.array(addresses, np.uint64))
    same = {"alias_of_visible": "visible"}
    for address, code, line in zip(addresses, codes.tolist(), lines, strict=True):
        assert names[code] == same.get(line, line) or line in image.aliases(address)
    assert {"visible", "hidden", "main"} <= set(names)


@needs_gcc
def test_an_address_beyond_a_symbol_is_not_that_symbol(tmp_path: Path) -> None:
    source = """
    __asm__(".text\\n.globl sized\\n.type sized,@function\\nsized: nop\\nnop\\n.size sized, 2\\n"
            "nop\\nnop\\nnop\\nnop\\nnop\\nnop\\nnop\\n"
            ".globl bare\\n.type bare,@function\\nbare: nop\\nnop\\nnop\\nnop\\n"
            ".globl outer\\n.type outer,@function\\nouter: nop\\n.type inner,@function\\n"
            "inner: nop\\nnop\\n.size inner, 2\\nnop\\nnop\\n.size outer, 5\\n"
            ".globl a_longer_name\\n.set a_longer_name, sized\\n"
            ".type a_longer_name, @function\\n.size a_longer_name, 2\\n"
            ".globl part\\n.type part,@function\\npart: nop\\nnop\\nnop\\nnop\\n.size part, 2\\n"
            ".globl the_whole\\n.set the_whole, part\\n.type the_whole, @function\\n"
            ".size the_whole, 4\\n"
            ".globl typed\\n.type typed,@function\\ntyped: nop\\nnop\\nnop\\n.size typed, 2\\n"
            ".globl mark\\n.set mark, typed\\n.type mark, @notype\\n.size mark, 3\\n");
    int main(void) { return 0; }
    """
    program = compile_c(tmp_path / "program", source)
    at = nm(program)
    wanted = {
        at["sized"]: "sized",
        at["sized"] + 1: "sized",
        at["sized"] + 2: UNKNOWN,
        at["bare"]: "bare",
        at["bare"] + 3: "bare",
        at["outer"]: "outer",
        at["inner"]: "inner",
        at["inner"] + 1: "inner",
        at["inner"] + 2: "outer",
        at["outer"] + 4: "outer",
        at["part"] + 1: "the_whole",
        at["part"] + 3: "the_whole",
        at["typed"] + 1: "typed",
        at["typed"] + 2: UNKNOWN,
    }
    codes, names = Image(Elf.open(str(program))).resolve(np.array(list(wanted), np.uint64))
    assert [names[code] for code in codes] == list(wanted.values())


@needs_gcc
def test_symbols_of_a_debug_file_move_with_a_prelinked_file(tmp_path: Path) -> None:
    here, there = (
        compile_c(tmp_path / name, SOURCE, "-no-pie", f"-Wl,-Ttext-segment={base}")
        for name, base in (("here", "0x400000"), ("there", "0x500000"))
    )
    at = nm(here)
    assert nm(there)["main"] == at["main"] + 0x100000
    run("strip", here)
    image = Image(Elf.open(str(here)), [Elf.open(str(there))])
    codes, names = image.resolve(np.array([at["main"] + 1, at["hidden"] + 1], np.uint64))
    assert [names[code] for code in codes] == ["main", "hidden"]


@needs_gcc
def test_unwind_tables_without_their_index(tmp_path: Path) -> None:
    program = compile_c(tmp_path / "program", SOURCE)
    whole = Frames(Elf.open(str(program)))
    data = bytearray(program.read_bytes())
    header = Elf.open(str(program)).section(".eh_frame_hdr")
    assert header is not None
    data[header.offset + 3] = 0xFF  # "no table"
    walked = Frames(Elf(bytes(data)))
    assert len(whole.starts) == len(walked.starts) > 3
    for first, second in zip(whole.bounds(whole.starts), walked.bounds(whole.starts), strict=True):
        assert (first == second).all()


@needs_gcc
@pytest.mark.parametrize("options", [["-m32", "-nostdlib", "-static", "-ffreestanding"]])
def test_32_bits(tmp_path: Path, options: list[str]) -> None:
    source = "int twice(int x) { return 2 * x; } void _start(void) { twice(1); for (;;); }"
    try:
        program = compile_c(tmp_path / "program", source, *options, "-fasynchronous-unwind-tables")
    except RuntimeError as error:
        pytest.skip(f"gcc cannot build for 32 bits: {error}")
    at = nm(program)
    elf = Elf.open(str(program))
    assert not elf.wide
    address = np.array([at["twice"] + 1], np.uint64)
    assert Image(elf).resolve(address)[1][1] == "twice"
    run("strip", program)
    assert Image(Elf.open(str(program))).resolve(address)[1][1] == hex(at["twice"])


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("wide", [True, False])
def test_both_byte_orders_and_widths(order: str, wide: bool) -> None:
    word = "Q" if wide else "I"
    strings = b"\0.symtab\0.strtab\0one\0two\0"
    first, two = strings.index(b"one"), strings.index(b"two")
    if wide:
        symbol = f"{order}IBBHQQ"
        rows = [(0, 0, 0, 0, 0, 0), (first, 0x12, 0, 1, 0x1010, 8), (two, 2, 0, 1, 0x1020, 8)]
        data, load = (
            struct.pack(f"{order}IIQQQQQQ", 1, flags, 0, base, base, 4096, 4096, 4096)
            for flags, base in ((4, 0x9000), (5, 0x1000))
        )
    else:
        symbol = f"{order}IIIBBH"
        rows = [(0, 0, 0, 0, 0, 0), (first, 0x1010, 8, 0x12, 0, 1), (two, 0x1020, 8, 2, 0, 1)]
        data, load = (
            struct.pack(f"{order}IIIIIIII", 1, 0, base, base, 4096, 4096, flags, 4096)
            for flags, base in ((4, 0x9000), (5, 0x1000))
        )
    symbols = b"".join(struct.pack(symbol, *row) for row in rows)
    ehsize, phsize, shsize = (64, 56, 64) if wide else (52, 32, 40)
    at_symbols = ehsize + 2 * phsize
    at_strings = at_symbols + len(symbols)
    at_sections = at_strings + len(strings)
    section = f"{order}II{word * 4}II{word * 2}"
    width = struct.calcsize(symbol)
    sections = struct.pack(section, *[0] * 10)
    sections += struct.pack(section, 1, 2, 0, 0, at_symbols, len(symbols), 2, 1, 8, width)
    sections += struct.pack(section, 9, 3, 0, 0, at_strings, len(strings), 0, 0, 1, 0)
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1 if order == "<" else 2, 1]) + bytes(9)
    header = ident + struct.pack(
        f"{order}HHI{word * 3}IHHHHHH",
        *(2, 8, 1, 0x1000, ehsize, at_sections, 0, ehsize, phsize, 2, shsize, 3, 2),
    )
    elf = Elf(header + data + load + symbols + strings + sections)
    assert [s.name for s in elf.sections] == ["", ".symtab", ".strtab"]
    addresses, known = elf.addresses(np.array([0x13, 0x20, 0x28, 0x1000], np.uint64))
    assert known.tolist() == [True, True, True, False]
    codes, names = Image(elf).resolve(addresses[:3])
    assert [names[code] for code in codes] == ["one", "two", UNKNOWN]


def test_what_is_no_elf_file_is_told(tmp_path: Path) -> None:
    for data in (b"", b"\x7fELF", b"#!/bin/sh\n" * 20, b"\x7fELF" + b"\xff" * 60):
        (tmp_path / "file").write_bytes(data)
        with pytest.raises(UnusableError) as caught:
            Elf.open(str(tmp_path / "file"))
        assert "\n" not in str(caught.value)
    for path in (tmp_path, tmp_path / "none", "/dev/zero"):
        with pytest.raises(UnusableError):
            Elf.open(str(path))


def test_build_ids_are_compared_as_perf_pads_them() -> None:
    assert same_build("0123abcd", "0123ABCD")
    assert same_build("0123abcd", "0123abcd" + "0" * 24)
    assert not same_build("0123abcd", "0123abcd" + "0" * 23 + "1")
    assert not same_build("", "0123")
    assert not same_build("0123", "")
