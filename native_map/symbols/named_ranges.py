"""Reads names of address ranges from /proc/kallsyms and perf maps of just-in-time compilers."""

import errno
import os
import re
import stat
from array import array
from typing import BinaryIO

import numpy as np

from native_map.errors import UnusableError
from native_map.symbols.elf import U64

LARGEST_KALLSYMS = 64 << 20
MAP_BYTES = 64 << 20  # of all maps of a recording; 20,000 functions of Python take 2 MB
MAP_LINES = 1_000_000
MAP_LINE = re.compile(rb"([0-9a-fA-F]{1,16}) ([0-9a-fA-F]{1,16}) (.+)")
LONGEST_LINE = 1 << 16
KERNEL_LINE = re.compile(r"^([0-9a-f]{1,16}) ([tTwW]) (\S+)", re.MULTILINE)
LONGEST_NAME = 1 << 12


class Ranges:
    """Names of ranges that do not overlap; `marks` has the addresses of requested names."""

    def __init__(
        self, starts: U64, ends: U64, names: list[str], marks: "dict[str, int] | None" = None
    ) -> None:
        self._starts, self._ends, self._names = starts, ends, names
        self.marks = marks or {}

    def names(self, addresses: U64) -> list[str | None]:
        """Return the name of the range that holds each address; None if there is none."""
        at = np.searchsorted(self._starts, addresses, "right") - 1
        inside = at >= 0
        inside[inside] = addresses[inside] < self._ends[at[inside]]
        return [
            self._names[row] if ok else None
            for row, ok in zip(at.tolist(), inside.tolist(), strict=True)
        ]


class MapBudget:
    """The limits for all perf maps of a recording together; `refused` lists what exceeded them."""

    def __init__(self) -> None:
        self.bytes, self.lines = MAP_BYTES, MAP_LINES
        self.refused: list[str] = []


def perf_map(path: str, budget: MapBudget | None = None) -> "PerfMap | None":
    """Read the map of a compiler (Linux tools/perf/Documentation/jit-interface.txt), or None.

    Lines are `START SIZE name` in hex. Addresses are reused: a later line hides an earlier one.
    As in perf, only files of this user or root are read, because everybody can write to the
    directory of these files.
    """
    budget = budget or MapBudget()
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP:
            budget.refused.append(f"{path} is a link and was not read")
        return None
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_uid not in (0, os.geteuid()):
            size = f"{status.st_size:,} bytes"
            budget.refused.append(f"{path} belongs to another user ({size}) and was not read")
            return None
        return PerfMap(file, path, budget)


class PerfMap:
    """Names of ranges of generated code, stored as the bytes of the file."""

    def __init__(self, file: BinaryIO, path: str, budget: MapBudget) -> None:
        starts, sizes, places = array("Q"), array("Q"), array("I")
        self._texts = bytearray()
        self._known: dict[int, str] = {}
        bytes_read = 0
        while line := file.readline(min(LONGEST_LINE, budget.bytes)):
            bytes_read += len(line)
            budget.bytes -= len(line)
            if not (match := MAP_LINE.match(line)):
                continue
            if not budget.lines:
                break
            budget.lines -= 1
            starts.append(int(match[1], 16))
            sizes.append(int(match[2], 16))
            places.append(len(self._texts))
            self._texts += match[3][:LONGEST_NAME].rstrip() + b"\n"
        bytes_left = os.fstat(file.fileno()).st_size - bytes_read
        if bytes_left > 0:
            budget.refused.append(f"{bytes_left:,} bytes of {path} were not read: too many names")
        self._order(np.array(starts, np.uint64), np.array(sizes, np.uint64))
        self._places = np.array(places, np.uint32)

    def _order(self, starts: U64, sizes: U64) -> None:
        """Sort the lines; of those with the same start the last counts."""
        order = np.lexsort((np.arange(len(starts)), starts))
        last = np.ones(len(order), bool)
        last[:-1] = starts[order[1:]] != starts[order[:-1]]
        rows = order[last]
        first = starts[rows]
        end = first + np.minimum(sizes[rows], np.uint64(2**64 - 1) - first)
        # If two overlap, the older has been overwritten: it ends at the start of the newer, or is
        # gone if the newer starts first.
        keep: list[int] = []
        ends = end.tolist()
        begins, age = first.tolist(), rows.tolist()
        for at, start in enumerate(begins):
            while keep and ends[keep[-1]] > start:
                if age[keep[-1]] > age[at]:
                    break
                ends[keep[-1]] = start
            else:
                keep.append(at)
        chosen = np.array(keep, np.intp)
        self._rows = rows[chosen]
        self._starts, self._ends = first[chosen], np.array(ends, np.uint64)[chosen]

    def names(self, addresses: U64) -> list[str | None]:
        """Return the name of the range that holds each address; None if there is none."""
        at = np.searchsorted(self._starts, addresses, "right") - 1
        inside = at >= 0
        inside[inside] = addresses[inside] < self._ends[at[inside]]
        return [
            self._name(row) if ok else None
            for row, ok in zip(at.tolist(), inside.tolist(), strict=True)
        ]

    def _name(self, row: int) -> str:
        if row not in self._known:
            begin = int(self._places[self._rows[row]])
            raw = bytes(self._texts[begin : self._texts.index(b"\n", begin)])
            self._known[row] = _text(raw)
        return self._known[row]


def kernel_ranges() -> Ranges:
    """Return the running kernel's functions. Raises UnusableError if they are hidden or missing."""
    try:
        with open("/proc/kallsyms", encoding="utf-8", errors="replace") as file:
            text = file.read(LARGEST_KALLSYMS)
    except OSError as error:
        raise UnusableError(
            "{n} samples without names, in the kernel: /proc/kallsyms cannot be read"
        ) from error
    rows = [(int(a, 16), kind, name) for a, kind, name in KERNEL_LINE.findall(text)]
    if not any(address for address, _, _ in rows):
        raise UnusableError(
            "{n} samples without names, in the kernel, which hides them from this user; show them"
            " with: sudo sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1"
        )
    # Of several names for an address: global before weak before local, then the shortest.
    rows.sort(key=lambda r: (r[0], "TWwt".index(r[1]), len(r[2]), r[2]))
    starts_all = np.array([row[0] for row in rows], np.uint64)
    first = np.ones(len(rows), bool)
    first[1:] = starts_all[1:] != starts_all[:-1]
    starts = starts_all[first]
    ends = np.append(starts[1:], starts[-1:])
    marks = {name: address for address, _, name in rows if name in ("_text", "_stext")}
    return Ranges(starts, ends, [rows[row][2] for row in np.flatnonzero(first)], marks)


def _text(raw: bytes) -> str:
    text = raw[:LONGEST_NAME].decode("utf-8", "backslashreplace").strip()
    return text if text.isprintable() else text.encode("unicode_escape").decode()
