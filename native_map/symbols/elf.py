"""Reads an ELF file: segments, sections, build id, debug link, symbol tables, PLT entries.

numpy reads the mapped file directly, because Python is too slow for symbol tables of half a million
entries. Every offset and size is checked against the file: a damaged part is absent, a file with a
damaged header is `UnusableError`. Format: System V ABI, chapters 4 and 5 (`man 5 elf`),
and Linux include/uapi/linux/elf.h. 32 and 64 bits, both byte orders.
"""

import lzma
import mmap
import os
import stat
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from native_map.errors import UnusableError

U64 = NDArray[np.uint64]

SHT_SYMTAB, SHT_RELA, SHT_NOTE, SHT_NOBITS, SHT_DYNSYM = 2, 4, 7, 8, 11
PT_LOAD, PT_NOTE, PT_GNU_EH_FRAME = 1, 4, 0x6474E550
PF_X = 1
STT_NOTYPE, STT_FUNC, STT_GNU_IFUNC = 0, 2, 10
EM_X86_64 = 62
MOST_SECTIONS = 1 << 16
MOST_SYMBOLS = 1 << 25
LONGEST_NAME = 1 << 14
LONGEST_SECTION_NAME = 256
MOST_TABLES = 4  # of symbols in one file: no linker writes more than .symtab and .dynsym
MOST_RELOCATIONS = 8  # sections of them
MOST_NOTES = 64
MINI_DEBUG_BYTES = 64 << 20
MINI_DEBUG_MEMORY = 256 << 20
MOST_SUMMED = 4 << 30  # bytes of a file to compute a checksum of


class SectionHeader(NamedTuple):
    """A section header (System V ABI, chapter 4); offset, size in bytes."""

    name: str
    type: int
    flags: int
    addr: int
    offset: int
    size: int
    link: int
    entsize: int


class Segment(NamedTuple):
    """A program header (System V ABI, chapter 5); offset, filesz, memsz in bytes."""

    type: int
    flags: int
    offset: int
    vaddr: int
    filesz: int
    memsz: int


@dataclass
class SymbolTable:
    """The defined symbols that may be functions: addresses in the file, sizes, offsets of names.

    `kind` is 0 for FUNC and IFUNC, 1 for NOTYPE; `binding` 0 global, 1 weak, 2 local.
    """

    value: U64
    size: U64
    name: NDArray[np.uint32]
    kind: NDArray[np.uint8]
    binding: NDArray[np.uint8]
    strings: "Strings"

    def text(self, row: int) -> str:
        """Return the name of the symbol in a row."""
        return self.strings.at(int(self.name[row]))


class Strings(NamedTuple):
    """A string table: a part of the file's bytes."""

    data: "bytes | mmap.mmap"
    start: int
    end: int

    def at(self, offset: int, longest: int = LONGEST_NAME) -> str:
        """Return the string, without version (`@GLIBC_2.2`), safe to print; "" if outside."""
        first = self.start + offset
        last = min(self.end, first + longest)
        if first >= last:
            return ""
        end = self.data.find(b"\0", first, last)
        text = self.data[first : last if end < 0 else end].decode("utf-8", "backslashreplace")
        text = text.split("@", 1)[0]
        return text if text.isprintable() else text.encode("unicode_escape").decode()


class Elf:
    """An ELF file, from the bytes of `data`. Raises UnusableError if the header is invalid."""

    def __init__(self, data: "bytes | mmap.mmap", path: str = "") -> None:
        self.path = path
        self.refused: list[str] = []  # parts of the file that were not read, with their size
        self.data = data
        self.view = memoryview(data)
        self.size = len(self.view)
        head = bytes(self.view[:64])
        if head[:4] != b"\x7fELF" or len(head) < 52:
            raise UnusableError(f"{path or 'this'} is not an ELF file; its samples have no names")
        if head[4] not in (1, 2) or head[5] not in (1, 2):
            raise UnusableError(
                f"{path or 'this'} has a damaged ELF header; its samples have no names"
            )
        self.wide = head[4] == 2
        self.order: Any = "<" if head[5] == 1 else ">"
        self.kind, self.machine = self._ints(16, "u2", 2)
        word = "u8" if self.wide else "u4"
        step = 8 if self.wide else 4
        offsets = self._ints(24 + step, word, 2)
        tail = self._ints(24 + 3 * step + 4, "u2", 6)
        if len(offsets) < 2 or len(tail) < 6:
            raise UnusableError(
                f"{path or 'this'} has a damaged ELF header; its samples have no names"
            )
        self._phoff, self._shoff = offsets
        _, self._phentsize, self._phnum, self._shentsize, self._shnum, self._shstrndx = tail

    @classmethod
    def open(cls, path: str) -> "Elf":
        """Map a regular file. Raises UnusableError if it cannot be opened or is not an ELF file."""
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                raise UnusableError(f"{path} is not a file; its samples have no names")
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                data = mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
            finally:
                os.close(handle)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise UnusableError(
                f"{path} cannot be read ({why}); its samples have no names"
            ) from error
        return cls(data, path)

    def bytes_at(self, offset: int, size: int) -> memoryview:
        """Return a part of the file; empty if it is not entirely inside."""
        if offset < 0 or size < 0 or offset + size > self.size:
            return self.view[:0]
        return self.view[offset : offset + size]

    def _ints(self, offset: int, kind: str, count: int) -> list[int]:
        return [int(value) for value in self.array(offset, np.dtype(self.order + kind), count)]

    def array(self, offset: int, kind: np.dtype[Any], count: int) -> NDArray[Any]:
        """Return `count` items of the file, or none if one is outside."""
        part = self.bytes_at(offset, kind.itemsize * count)
        return np.frombuffer(part, kind)

    def _table(self, fields: list[tuple[str, str]]) -> np.dtype[Any]:
        return np.dtype([(name, self.order + kind) for name, kind in fields])

    @cached_property
    def segments(self) -> list[Segment]:
        """All program headers; empty if their table is damaged."""
        if self.wide:
            fields = [("type", "u4"), ("flags", "u4"), ("offset", "u8"), ("vaddr", "u8")]
            fields += [("paddr", "u8"), ("filesz", "u8"), ("memsz", "u8"), ("align", "u8")]
        else:
            fields = [("type", "u4"), ("offset", "u4"), ("vaddr", "u4"), ("paddr", "u4")]
            fields += [("filesz", "u4"), ("memsz", "u4"), ("flags", "u4"), ("align", "u4")]
        kind = self._table(fields)
        if self._phentsize != kind.itemsize:
            return []
        rows = self.array(self._phoff, kind, self._phnum)
        return [Segment(*row) for row in rows[list(Segment._fields)].tolist()]

    @cached_property
    def sections(self) -> list[SectionHeader]:
        """All section headers; empty if their table is damaged or missing."""
        word = "u8" if self.wide else "u4"
        fields = [("name", "u4"), ("type", "u4"), ("flags", word), ("addr", word)]
        fields += [("offset", word), ("size", word), ("link", "u4"), ("info", "u4")]
        fields += [("align", word), ("entsize", word)]
        kind = self._table(fields)
        if self._shentsize != kind.itemsize or not self._shoff:
            return []
        first = self.array(self._shoff, kind, 1)
        if not len(first):
            return []
        # Too many sections for 16 bits: the true numbers are in section 0 (System V ABI, 4).
        number = self._shnum or int(first["size"][0])
        names = int(first["link"][0]) if self._shstrndx == 0xFFFF else self._shstrndx
        rows = self.array(self._shoff, kind, min(number, MOST_SECTIONS))
        strings = Strings(self.data, 0, 0)
        if names < len(rows):
            strings = self._strings(int(rows["offset"][names]), int(rows["size"][names]))
        return [
            SectionHeader(strings.at(row[0], LONGEST_SECTION_NAME), *row[1:])
            for row in rows[list(SectionHeader._fields)].tolist()
        ]

    def _strings(self, offset: int, size: int) -> Strings:
        return Strings(self.data, offset, offset + len(self.bytes_at(offset, size)))

    def section(self, name: str) -> SectionHeader | None:
        """Return the section of that name."""
        return next((s for s in self.sections if s.name == name), None)

    def content(self, section: SectionHeader | None) -> memoryview:
        """Return the section's bytes in the file; empty if it has none."""
        if section is None or section.type == SHT_NOBITS:
            return self.view[:0]
        return self.bytes_at(section.offset, section.size)

    @cached_property
    def build_id(self) -> str:
        """The build id in hex, "" if there is none."""
        parts = [(s.offset, s.filesz) for s in self.segments if s.type == PT_NOTE]
        parts += [(s.offset, s.size) for s in self.sections if s.type == SHT_NOTE]
        for offset, size in parts[:MOST_NOTES]:
            build_id = build_id_in(bytes(self.bytes_at(offset, min(size, 1 << 16))), self.order)
            if build_id:
                return build_id
        return ""

    @cached_property
    def debug_link(self) -> tuple[str, int] | None:
        """Name and CRC-32 of the separate debug file that `objcopy --add-gnu-debuglink` noted."""
        raw = bytes(self.content(self.section(".gnu_debuglink"))[:4096])
        name, end, _ = raw.partition(b"\0")
        at = (len(name) + 4) & ~3
        if not end or not name or b"/" in name or len(raw) < at + 4:
            return None
        order = "little" if self.order == "<" else "big"
        return os.fsdecode(name), int.from_bytes(raw[at : at + 4], order)  # type: ignore[arg-type]

    def crc(self) -> int:
        """Return the CRC-32 of the file, as in a debug link; -1 if the file is too large."""
        value = 0
        if self.size > MOST_SUMMED:
            return -1
        for at in range(0, self.size, 1 << 22):
            value = zlib.crc32(self.view[at : at + (1 << 22)], value)
        return value

    def addresses(self, offsets: U64) -> tuple[U64, NDArray[np.bool_]]:
        """Convert file offsets to the file's addresses; also return which are in a loaded segment.

        If segments overlap in the file, an executable one takes precedence.
        """
        return self._translate(offsets, ("offset", "vaddr"))

    def offsets(self, addresses: U64) -> tuple[U64, NDArray[np.bool_]]:
        """Convert the file's addresses to file offsets; also return which are in the file."""
        return self._translate(addresses, ("vaddr", "offset"))

    def _translate(self, positions: U64, fields: tuple[str, str]) -> tuple[U64, NDArray[np.bool_]]:
        result = np.zeros(len(positions), np.uint64)
        translated = np.zeros(len(positions), bool)
        loads = [s for s in self.segments if s.type == PT_LOAD and s.filesz]
        for segment in sorted(loads, key=lambda s: not s.flags & PF_X)[:256]:
            source, target = (getattr(segment, name) for name in fields)
            inside = (positions >= np.uint64(source)) & (
                positions - np.uint64(source) < segment.filesz
            )
            inside &= ~translated
            result[inside] = positions[inside] - np.uint64(source) + np.uint64(target)
            translated |= inside
        return result, translated

    def executable(self, addresses: U64) -> NDArray[np.bool_]:
        """Return which addresses lie in an executable segment."""
        inside = np.zeros(len(addresses), bool)
        for s in [s for s in self.segments if s.type == PT_LOAD and s.flags & PF_X][:256]:
            inside |= (addresses >= np.uint64(s.vaddr)) & (
                addresses - np.uint64(s.vaddr) < np.uint64(s.memsz)
            )
        return inside

    @property
    def base(self) -> int:
        """The lowest loaded address, which prelink changes."""
        return min((s.vaddr for s in self.segments if s.type == PT_LOAD), default=0)

    @cached_property
    def has_symtab(self) -> bool:
        """True if all functions have names, not only exported ones."""
        return any(s.type == SHT_SYMTAB and s.size for s in self.sections)

    def symbol_tables(self) -> list[SymbolTable]:
        """Return the symbols of .symtab and .dynsym that may be functions."""
        kinds = (SHT_SYMTAB, SHT_DYNSYM)
        tables = [s for s in self.sections if s.type in kinds and s.link < len(self.sections)]
        chosen = self._apart(tables, MOST_TABLES, "tables of symbols")
        return [self._symbols(section) for section in chosen]

    def _apart(self, sections: list[SectionHeader], most: int, what: str) -> list[SectionHeader]:
        """Return a limited number of the sections, none of which overlaps another.

        The memory for their contents is then limited to a multiple of the file's size.
        """
        chosen: list[SectionHeader] = []
        refused = size = 0
        for section in sections:
            if not len(self.content(section)):
                continue
            begin, end = section.offset, section.offset + section.size
            overlaps = any(begin < s.offset + s.size and s.offset < end for s in chosen)
            if len(chosen) < most and not overlaps:
                chosen.append(section)
            else:
                refused += 1
                size += section.size
        if refused:
            text = f"{refused:,} {what} ({size:,} bytes) overlap others or are too many: not read"
            self.refused = [*dict.fromkeys([*self.refused, text])]
        return chosen

    @cached_property
    def _symbol_kind(self) -> np.dtype[Any]:
        if self.wide:
            fields = [("name", "u4"), ("info", "u1"), ("other", "u1"), ("shndx", "u2")]
            fields += [("value", "u8"), ("size", "u8")]
        else:
            fields = [("name", "u4"), ("value", "u4"), ("size", "u4")]
            fields += [("info", "u1"), ("other", "u1"), ("shndx", "u2")]
        return self._table(fields)

    def _rows(self, section: SectionHeader, kind: np.dtype[Any]) -> NDArray[Any]:
        if section.entsize not in (0, kind.itemsize):
            return np.zeros(0, kind)
        count = min(len(self.content(section)) // kind.itemsize, MOST_SYMBOLS)
        return self.array(section.offset, kind, count)

    def _symbols(self, section: SectionHeader) -> SymbolTable:
        rows = self._rows(section, self._symbol_kind)
        info = rows["info"]
        kind = info & 0xF
        is_code = (kind == STT_FUNC) | (kind == STT_GNU_IFUNC) | (kind == STT_NOTYPE)
        is_code &= (rows["shndx"] != 0) & (rows["value"] != 0) & (rows["name"] != 0)
        rows = rows[is_code]
        kind, binding = rows["info"] & 0xF, rows["info"] >> 4
        return SymbolTable(
            value=rows["value"].astype(np.uint64),
            size=rows["size"].astype(np.uint64),
            name=rows["name"].astype(np.uint32),
            kind=(kind == STT_NOTYPE).astype(np.uint8),
            binding=np.select([binding == 0, binding == 2], [2, 1], 0).astype(np.uint8),
            strings=self._strings(*self.sections[section.link][4:6]),
        )

    def mini_debug(self) -> "Elf | None":
        """Return the compressed symbols in .gnu_debugdata, as on Fedora."""
        packed = self.content(self.section(".gnu_debugdata"))
        if not len(packed):
            return None
        try:
            reader = lzma.LZMADecompressor(memlimit=MINI_DEBUG_MEMORY)
            unpacked = reader.decompress(bytes(packed), MINI_DEBUG_BYTES)
            if not reader.eof and len(unpacked) == MINI_DEBUG_BYTES:
                many = f"{len(packed):,} bytes of .gnu_debugdata"
                most = f"{MINI_DEBUG_BYTES >> 20} MiB"
                self.refused.append(f"{many} unpack to more than {most} and were not read")
                return None
            return Elf(unpacked, self.path)
        except (lzma.LZMAError, MemoryError, UnusableError):
            return None

    @cached_property
    def _slots(self) -> tuple[U64, NDArray[np.uint32], NDArray[np.uint32]]:
        """The GOT addresses that the loader fills, sorted, with symbol and symbol table of each."""
        kind = self._table([("offset", "u8"), ("info", "u8"), ("addend", "u8")])
        sections = [s for s in self.sections if s.type == SHT_RELA and s.addr]
        sections = self._apart(sections, MOST_RELOCATIONS, "tables of relocations")
        rows = [self._rows(section, kind) for section in sections]
        if not self.wide or not rows:
            return np.zeros(0, np.uint64), np.zeros(0, np.uint32), np.zeros(0, np.uint32)
        offset = np.concatenate([row["offset"].astype(np.uint64) for row in rows])
        symbol = np.concatenate([(row["info"] >> 32).astype(np.uint32) for row in rows])
        table = np.repeat(
            np.array([s.link for s in sections], np.uint32), [len(row) for row in rows]
        )
        order = np.argsort(offset, kind="stable")
        return offset[order], symbol[order], table[order]

    def plt_name(self, address: int) -> str | None:
        """Return `memcpy@plt` for an address in a PLT, "[plt]" if unknown; None outside a PLT.

        The entry's `jmp *slot(%rip)` gives its GOT slot, the slot's relocation gives the symbol
        (x86-64 psABI 1.0, section 5.2).
        """
        for section in self.plts:
            if section.addr <= address < section.addr + section.size:
                break
        else:
            return None
        if self.machine != EM_X86_64:
            return "[plt]"
        width = 8 if section.name == ".plt.got" and section.entsize in (0, 8) else 16
        at = (address - section.addr) // width * width
        code = bytes(self.content(section)[at : at + width])
        jump = code.find(b"\xff\x25")
        if jump < 0 or jump + 6 > len(code):
            return "[plt]"
        reach = int.from_bytes(code[jump + 2 : jump + 6], "little", signed=True)
        slot = section.addr + at + jump + 6 + reach
        offsets, symbols, tables = self._slots
        index = int(np.searchsorted(offsets, np.uint64(slot & (2**64 - 1))))
        if index >= len(offsets) or int(offsets[index]) != slot or not symbols[index]:
            return "[plt]"
        name = self._symbol_name(int(tables[index]), int(symbols[index]))
        return f"{name}@plt" if name else "[plt]"

    @cached_property
    def plts(self) -> list[SectionHeader]:
        """The sections of stubs that call functions of other libraries."""
        return [s for s in self.sections if s.name in (".plt", ".plt.sec", ".plt.got")][:8]

    def _symbol_name(self, table: int, row: int) -> str:
        if table >= len(self.sections) or self.sections[table].link >= len(self.sections):
            return ""
        rows = self._rows(self.sections[table], self._symbol_kind)
        if row >= len(rows):
            return ""
        strings = self._strings(*self.sections[self.sections[table].link][4:6])
        return strings.at(int(rows["name"][row]))


def build_id_in(notes: bytes, order: str) -> str:
    """Return the build id (note type 3, owner GNU) in a note section's bytes, in hex, or ""."""
    ends = "little" if order == "<" else "big"
    at = 0
    while at + 12 <= len(notes):
        owner, size, kind = (
            int.from_bytes(notes[at + i : at + i + 4], ends)  # type: ignore[arg-type]
            for i in (0, 4, 8)
        )
        at += 12
        name, at = notes[at : at + owner], at + ((owner + 3) & ~3)
        if kind == 3 and name == b"GNU\0" and 0 < size <= 64 and at + size <= len(notes):
            return notes[at : at + size].hex()
        at += (size + 3) & ~3
    return ""


def same_build(first: str, second: str) -> bool:
    """Return whether two build ids in hex are equal; perf pads short ones with zeros (20 bytes)."""
    first, second = sorted((first.lower(), second.lower()), key=len)
    return bool(first) and second[: len(first)] == first and not second[len(first) :].strip("0")
