"""Finds the bounds of functions in `.eh_frame`, also in stripped libraries.

`.eh_frame_hdr` has a sorted table of function starts for the unwinder; numpy reads all of it, but
sizes only for the requested functions. Without that table, `.eh_frame` is read entry by entry.
Format: Linux Standard Base Core 5.0, sections 10.5 and 10.6; DWARF 5, section 6.4.1.
"""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from native_map.symbols.elf import PT_GNU_EH_FRAME, SHT_NOBITS, U64, Elf

MOST_WALKED = 1 << 19  # entries to read if there is no table
MOST_CIES = 1 << 16
OMIT, DATAREL_SDATA4 = 0xFF, 0x3B
WIDTHS = {0x0: 0, 0x2: 2, 0x3: 4, 0x4: 8, 0xA: 2, 0xB: 4, 0xC: 8}  # 0: the machine's word
PCREL, ABSOLUTE = 0x10, 0x00


class Frames:
    """Function bounds of one ELF file. Empty if it has no usable `.eh_frame`."""

    def __init__(self, elf: Elf) -> None:
        self.elf = elf
        self._encodings: dict[int, int] = {}
        self._ends: U64 | None = None
        self.starts, self._entries = self._table()
        if not len(self.starts):
            self.starts, self._ends = self._walk()

    @cached_property
    def _bytes(self) -> NDArray[np.uint8]:
        return np.frombuffer(self.elf.view, np.uint8)

    def bounds(self, addresses: U64) -> tuple[U64, U64, NDArray[np.bool_]]:
        """Return start and end of the function at each address, and whether there is one."""
        row = np.searchsorted(self.starts, addresses, "right") - 1
        known = row >= 0
        start, end = np.zeros(len(addresses), np.uint64), np.zeros(len(addresses), np.uint64)
        start[known] = self.starts[row[known]]
        if self._ends is not None:
            end[known] = self._ends[row[known]]
        elif known.any():
            rows, back = np.unique(row[known], return_inverse=True)
            end[known] = self._end_of(rows)[back]
        return start, end, known & (addresses < end)

    def _table(self) -> tuple[U64, U64]:
        """Return starts and the addresses of their entries from the table of `.eh_frame_hdr`."""
        nothing = np.zeros(0, np.uint64), np.zeros(0, np.uint64)
        places = [
            (s.offset, s.vaddr, s.filesz)
            for s in self.elf.segments
            if s.type == PT_GNU_EH_FRAME and s.filesz
        ]
        section = self.elf.section(".eh_frame_hdr")
        if section is not None and section.type != SHT_NOBITS:
            places.append((section.offset, section.addr, section.size))
        for offset, address, size in places:
            head = bytes(self.elf.bytes_at(offset, min(size, 12)))
            if len(head) < 12 or head[0] != 1 or head[3] != DATAREL_SDATA4:
                continue
            if head[1] & 0xF not in (0x3, 0xB) or head[2] != 0x03:
                continue  # all linkers write 4-byte pointers and counts here
            order = "<" if self.elf.order == "<" else ">"
            count = int(np.frombuffer(head, order + "u4", 1, 8)[0])
            if count * 8 + 12 > size:
                continue
            pairs = self.elf.array(offset + 12, np.dtype(order + "i4"), count * 2).reshape(-1, 2)
            rows = pairs.astype(np.int64).astype(np.uint64) + np.uint64(address)
            if len(rows) and not (rows[1:, 0] >= rows[:-1, 0]).all():
                rows = rows[np.argsort(rows[:, 0], kind="stable")]
            return np.ascontiguousarray(rows[:, 0]), np.ascontiguousarray(rows[:, 1])
        return nothing

    def _gather(self, offsets: U64, width: int) -> NDArray[Any]:
        """Return unsigned integers of `width` bytes at the offsets; 0 outside the file."""
        size = np.uint64(self.elf.size)
        inside = (offsets < size) & (size - np.minimum(offsets, size) >= np.uint64(width))
        at = np.where(inside, offsets, 0)
        if self.elf.size < width:
            return np.zeros(len(offsets), np.uint64)
        raw = self._bytes[at[:, None].astype(np.int64) + np.arange(width)]
        value = np.ascontiguousarray(raw).view(f"{self.elf.order}u{width}")[:, 0].astype(np.uint64)
        value[~inside] = 0
        return value

    def _end_of(self, rows: NDArray[np.intp]) -> U64:
        """Return the end of the function in each row of the table; its start if unknown."""
        starts, entries = self.starts[rows], self._entries[rows]
        ends = starts.copy()
        offsets, known = self.elf.offsets(entries)
        known &= ~np.isin(self._gather(offsets, 4), (0, 0xFFFFFFFF))
        cies = offsets + np.uint64(4) - self._gather(offsets + np.uint64(4), 4)
        unique, back = np.unique(cies, return_inverse=True)
        encoding = np.array(
            [self._encoding(int(cie)) for cie in unique[:MOST_CIES]]
            + [OMIT] * max(len(unique) - MOST_CIES, 0)
        )[back]
        for pointer_encoding in np.unique(encoding[known]):
            width = self._width(int(pointer_encoding))
            if not width:
                continue
            mine = known & (encoding == pointer_encoding)
            at = offsets[mine] + np.uint64(8)
            begin = _signed(self._gather(at, width), width)
            if pointer_encoding & 0x70 == PCREL:
                begin = begin + entries[mine] + np.uint64(8)
            length = self._gather(at + np.uint64(width), width)
            # Ignore an entry whose start differs from the table.
            good = begin == starts[mine]
            high = np.uint64(2**64 - 1) - starts[mine]
            ends[mine] = starts[mine] + np.where(good, np.minimum(length, high), 0)
        return ends

    def _width(self, encoding: int) -> int:
        """Return the bytes of a pointer in this encoding; 0 if it is not supported."""
        if encoding == OMIT or encoding & 0xF not in WIDTHS or encoding & 0x80:
            return 0
        if encoding & 0x70 not in (PCREL, ABSOLUTE):
            return 0
        return WIDTHS[encoding & 0xF] or (8 if self.elf.wide else 4)

    def _encoding(self, offset: int) -> int:
        if offset not in self._encodings:
            self._encodings[offset] = self._read_encoding(offset)
        return self._encodings[offset]

    def _read_encoding(self, offset: int) -> int:
        """Return the encoding of addresses in entries of the CIE at this offset; OMIT if broken."""
        if offset >= self.elf.size:
            return OMIT
        raw = bytes(self.elf.view[offset : offset + 256])
        ends = "little" if self.elf.order == "<" else "big"
        if len(raw) < 12 or int.from_bytes(raw[4:8], ends) != 0:  # type: ignore[arg-type]
            return OMIT
        version = raw[8]
        augmentation, end, rest = raw[9:].partition(b"\0")
        if not end or version not in (1, 3):
            return OMIT
        at = _skip_leb(rest, _skip_leb(rest, 0))
        at = at + 1 if version == 1 else _skip_leb(rest, at)
        if not augmentation.startswith(b"z"):
            return ABSOLUTE if not augmentation else OMIT
        at = _skip_leb(rest, at)
        for letter in augmentation[1:].decode("latin-1"):
            if at >= len(rest):
                return OMIT
            if letter == "R":
                return rest[at]
            if letter == "P":
                width = WIDTHS.get(rest[at] & 0xF)
                if width is None or rest[at] & 0x70 == 0x50:
                    return OMIT
                at += 1 + (width or (8 if self.elf.wide else 4))
            elif letter == "L":
                at += 1
            elif letter not in "SBG":
                return OMIT
        return ABSOLUTE

    def _walk(self) -> tuple[U64, U64]:
        """Read starts and ends from all entries of `.eh_frame`, one by one."""
        section = self.elf.section(".eh_frame")
        raw = self.elf.content(section)
        ranges: list[tuple[int, int]] = []
        if section is None:
            return np.zeros(0, np.uint64), np.zeros(0, np.uint64)
        ends: Any = "little" if self.elf.order == "<" else "big"
        mask = 2**64 - 1
        at = 0
        for _ in range(MOST_WALKED):
            size = int.from_bytes(raw[at : at + 4], ends)
            if size < 4 or size == 0xFFFFFFFF or at + 4 + size > len(raw):
                if size == 0 and at + 4 < len(
                    raw
                ):  # the terminator of one object file among others
                    at += 4
                    continue
                break
            back = int.from_bytes(raw[at + 4 : at + 8], ends)
            if back and back <= at + 4:
                encoding = self._encoding(section.offset + at + 4 - back)
                width = self._width(encoding)
                if width and 4 + 2 * width <= size:
                    signed = bool(encoding & 0x8) or bool(encoding & 0x70)
                    field = raw[at + 8 : at + 8 + width]
                    begin = int.from_bytes(field, ends, signed=signed)
                    if encoding & 0x70 == PCREL:
                        begin += section.addr + at + 8
                    field = raw[at + 8 + width : at + 8 + 2 * width]
                    length = int.from_bytes(field, ends)
                    begin &= mask
                    ranges.append((begin, min(begin + length, mask)))
            at += 4 + size
        else:
            self.elf.refused.append(f"{len(raw) - at:,} bytes of .eh_frame were not read")
        table = np.array(sorted(ranges), np.uint64).reshape(-1, 2)
        return np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1])


def _signed(value: U64, width: int) -> U64:
    """Sign-extend integers of `width` bytes, as unsigned 64-bit numbers that wrap."""
    if width == 8:
        return value
    half = np.uint64(1 << (8 * width - 1))
    return np.where(value >= half, value - np.uint64(1 << (8 * width)), value)


def _skip_leb(raw: bytes, at: int) -> int:
    while at < len(raw) and raw[at] & 0x80:
        at += 1
    return at + 1
