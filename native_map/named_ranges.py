"""Names of address ranges from text: /proc/kallsyms and the perf maps of just-in-time compilers."""

import os
import re
import stat

import numpy as np

from native_map.elf import U64
from native_map.errors import Unusable

LARGEST_MAP = 256 << 20
MAP_LINE = re.compile(rb"^([0-9a-fA-F]{1,16}) ([0-9a-fA-F]{1,16}) (.+)$", re.MULTILINE)
KERNEL_LINE = re.compile(r"^([0-9a-f]{1,16}) ([tTwW]) (\S+)", re.MULTILINE)
LONGEST_NAME = 1 << 12


class Ranges:
    """Names of ranges that do not overlap; `marks` are addresses of all names asked for."""

    def __init__(
        self, starts: U64, ends: U64, names: list[str], marks: "dict[str, int] | None" = None
    ) -> None:
        self._starts, self._ends, self._names = starts, ends, names
        self.marks = marks or {}

    def names(self, addresses: U64) -> list[str | None]:
        """The name of the range that holds each address; None where none does."""
        at = np.searchsorted(self._starts, addresses, "right") - 1
        inside = at >= 0
        inside[inside] = addresses[inside] < self._ends[at[inside]]
        return [
            self._names[row] if ok else None
            for row, ok in zip(at.tolist(), inside.tolist(), strict=True)
        ]


def perf_map(path: str) -> Ranges | None:
    """The map that a compiler wrote (Linux tools/perf/Documentation/jit-interface.txt), or None.

    Lines `START SIZE name` in hex. Addresses are used again: a later line hides an earlier one.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        text = file.read(LARGEST_MAP)
    rows = [(int(a, 16), int(b, 16), name) for a, b, name in MAP_LINE.findall(text)]
    newest: dict[int, tuple[int, int, bytes]] = {}
    for number, (start, size, name) in enumerate(rows):
        newest[start] = (number, size, name)
    order = sorted(newest)
    starts = np.array(order, np.uint64)
    ends = np.array([min(s + newest[s][1], 2**64 - 1) for s in order], np.uint64)
    # Of two that overlap the older has been overwritten: it ends where the newer begins, or is
    # gone where the newer began first.
    keep: list[int] = []
    for row, start in enumerate(order):
        while keep and int(ends[keep[-1]]) > start:
            if newest[order[keep[-1]]][0] > newest[start][0]:
                break
            ends[keep[-1]] = start
        else:
            keep.append(row)
    names = [_text(newest[order[row]][2]) for row in keep]
    return Ranges(starts[keep], ends[keep], names)


def kernel_ranges(path: str = "/proc/kallsyms") -> Ranges:
    """The running kernel's functions. Raises Unusable where it hides or lacks them."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(LARGEST_MAP)
    except OSError as error:
        raise Unusable(
            "{n} samples without names, in the kernel: /proc/kallsyms cannot be read"
        ) from error
    rows = [(int(a, 16), kind, name) for a, kind, name in KERNEL_LINE.findall(text)]
    if not any(address for address, _, _ in rows):
        raise Unusable(
            "{n} samples without names, in the kernel, which hides them from this user; show them"
            " with: sudo sysctl kernel.kptr_restrict=0 kernel.perf_event_paranoid=1"
        )
    # Of several names for one address: global before weak before local, then the shortest.
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
