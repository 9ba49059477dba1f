"""Names the functions at addresses in one ELF file.

The name is the first available of: a symbol with a size that covers the address; an entry of the
PLT; a symbol without a size in the same function; the function's start from `.eh_frame`, as
`0x59f00`; `[unknown]`.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from native_map.symbols.eh_frame import Frames
from native_map.symbols.elf import U64, Elf, SymbolTable

Rows = NDArray[np.intp]

UNKNOWN = "[unknown]"
MOST_NESTED = 1000
MOST_STEPS = 50_000_000  # steps to enclosing symbols, over all addresses of a lookup
MOST_ALIASES = 256
MOST_TEXT = 32 << 20  # bytes of names to read from one file
# Arm and RISC-V assemblers mark code and data with local NOTYPE symbols ($x, $d).
MARKED_MACHINES = (40, 183, 243)


class _Group:
    """Symbols of several tables, sorted by address; those with the same one are alternatives."""

    def __init__(self, tables: list[SymbolTable], masks: list[NDArray[np.bool_]]) -> None:
        self.tables = tables
        self.left = MOST_TEXT
        self.unread = 0  # groups whose names were not read, because of the limit
        self._names: dict[int, str] = {}
        pick = [np.flatnonzero(mask) for mask in masks]
        none = np.zeros(0, np.uint64)
        value = np.concatenate([none, *(t.value[p] for t, p in zip(tables, pick, strict=True))])
        order = np.argsort(value, kind="stable")
        self.value: U64 = value[order]
        size = np.concatenate([none, *(t.size[p] for t, p in zip(tables, pick, strict=True))])
        self.end: U64 = self.value + np.minimum(size[order], np.uint64(2**64 - 1) - self.value)
        self._table = np.repeat(np.arange(len(tables)), [len(p) for p in pick])[order]
        self._row = np.concatenate([np.zeros(0, np.intp), *pick]).astype(np.intp)[order]
        first = np.ones(len(value), bool)
        first[1:] = self.value[1:] != self.value[:-1]
        self.first = np.flatnonzero(first)
        self.starts: U64 = self.value[self.first]
        self.ends: U64 = (
            np.maximum.reduceat(self.end, self.first) if len(self.first) else self.starts
        )

    @cached_property
    def _reach(self) -> U64:
        return np.maximum.accumulate(self.ends)

    def before(self, addresses: U64) -> Rows:
        """Return the last group that starts at or before each address; -1 if none."""
        return np.searchsorted(self.starts, addresses, "right") - 1

    def covering(self, addresses: U64) -> Rows:
        """Return the innermost group that covers each address; -1 if none."""
        if not len(self.starts):
            return np.full(len(addresses), -1)
        group = self.before(addresses)
        open_ = np.flatnonzero((group >= 0) & (addresses >= self.ends[group]))
        steps = 0
        for _ in range(MOST_NESTED):
            steps += len(open_)
            if steps > MOST_STEPS:
                break
            # After the end of the nearest symbol, but an earlier, longer one may cover it.
            far = addresses[open_] < self._reach[group[open_]]
            group[open_[~far]] = -1
            open_ = open_[far]
            if not len(open_):
                break
            group[open_] -= 1
            open_ = open_[addresses[open_] >= self.ends[group[open_]]]
        group[open_] = -1
        return group

    def name(self, group: int) -> str:
        """Return the best name of a group: longest code, global, shortest, first in A to Z."""
        if group not in self._names:
            self._names[group] = self._best(group)
        return self._names[group]

    def _rows(self, group: int) -> range:
        begin = int(self.first[group])
        end = int(self.first[group + 1]) if group + 1 < len(self.first) else len(self.value)
        return range(begin, min(end, begin + MOST_ALIASES))

    def _best(self, group: int) -> str:
        options = []
        if self.left <= 0:
            self.unread += 1
            return ""
        for at in self._rows(group):
            table, row = self.tables[self._table[at]], int(self._row[at])
            name = table.text(row)
            self.left -= len(name)
            if name:
                code = int(table.kind[row]), -int(self.end[at]), int(table.binding[row])
                options.append((code, len(name), name))
        return min(options)[2] if options else ""

    def names(self, group: int) -> set[str]:
        """Return all names of a group."""
        return {self.tables[self._table[at]].text(int(self._row[at])) for at in self._rows(group)}


class Image:
    """The functions of one file. `debug` are separate files with symbols of the same build."""

    def __init__(self, elf: Elf, debug: "list[Elf] | None" = None) -> None:
        self.elf = elf
        self.debug = debug or []
        self.has_symtab = elf.has_symtab or any(each.has_symtab for each in self.debug)

    @cached_property
    def _frames(self) -> Frames:
        return Frames(self.elf)

    @cached_property
    def _symbols(self) -> tuple[_Group, _Group]:
        """Return symbols with a size, and those without."""
        tables = self.elf.symbol_tables()
        for elf in self.debug:
            moved = self.elf.base - elf.base if elf.segments else 0  # prelink moves the file
            for table in elf.symbol_tables():
                table.value = table.value + np.uint64(moved % 2**64)
                tables.append(table)
        inside = [self.elf.executable(table.value) for table in tables]
        sized = [i & (t.size > 0) for i, t in zip(inside, tables, strict=True)]
        # A symbol without a type is ignored if a function has the same address.
        functions = [t.value[s & (t.kind == 0)] for t, s in zip(tables, sized, strict=True)]
        starts = np.sort(np.concatenate([np.zeros(0, np.uint64), *functions]))
        for table, mask in zip(tables, sized, strict=True):
            rows = np.flatnonzero(mask & (table.kind == 1))
            first, past = (np.searchsorted(starts, table.value[rows], x) for x in ("left", "right"))
            mask[rows[first < past]] = False
        bare = [i & (t.size == 0) for i, t in zip(inside, tables, strict=True)]
        if self.elf.machine in MARKED_MACHINES:
            bare = [
                b & ~((t.kind == 1) & (t.binding == 2)) for b, t in zip(bare, tables, strict=True)
            ]
        return _Group(tables, sized), _Group(tables, bare)

    def resolve(self, addresses: U64) -> tuple[Rows, list[str]]:
        """Return the index of the name of each of the file's addresses, and the (raw) names.

        Name 0 is `[unknown]`.
        """
        names: dict[str, int] = {UNKNOWN: 0}
        codes = np.zeros(len(addresses), np.intp)

        def give(rows: Rows, keys: NDArray[Any], text: Callable[[int], str]) -> None:
            """Set each row's name by its key; pandas' hash table is faster here than np.unique."""
            key, unique = pd.factorize(keys)
            texts = [text(int(each)) or UNKNOWN for each in unique]
            numbers = np.array([names.setdefault(each, len(names)) for each in texts], np.intp)
            codes[rows] = numbers[key]

        sized, bare = self._symbols
        group = sized.covering(addresses)
        rows = np.flatnonzero(group >= 0)
        give(rows, group[rows], sized.name)
        rows = np.flatnonzero(codes == 0)
        rows = rows[self._in_plt(addresses[rows])]
        give(rows, addresses[rows], lambda each: self.elf.plt_name(each) or "")
        rows = np.flatnonzero(codes == 0)
        unresolved = addresses[rows]
        if len(unresolved):
            start, _, framed = self._frames.bounds(unresolved)
            group = bare.before(unresolved)
            near = self._near(bare, sized, group, unresolved)
            give(rows[near], group[near], bare.name)
            framed &= ~near
            give(rows[framed], start[framed], hex)
        return codes, list(names)

    @property
    def refused(self) -> list[str]:
        """Return texts on the parts of the file and its debug files that were not read."""
        texts = [text for elf in (self.elf, *self.debug) for text in elf.refused]
        unread = sum(group.unread for group in self._symbols)
        if unread:
            texts.append(f"{unread:,} names beyond {MOST_TEXT >> 20} MiB were not read")
        return texts

    def aliases(self, address: int) -> set[str]:
        """Return all (raw) names of the sized symbol that covers an address."""
        sized = self._symbols[0]
        group = int(sized.covering(np.array([address], np.uint64))[0])
        return sized.names(group) if group >= 0 else set()

    def _in_plt(self, addresses: U64) -> NDArray[np.bool_]:
        inside = np.zeros(len(addresses), bool)
        for section in self.elf.plts:
            past = addresses - np.uint64(section.addr)
            inside |= (addresses >= np.uint64(section.addr)) & (past < np.uint64(section.size))
        return inside

    def _near(
        self,
        bare: _Group,
        sized: _Group,
        group: Rows,
        addresses: U64,
    ) -> NDArray[np.bool_]:
        """Return whether the unsized symbol before each address can be of the same function."""
        near = group >= 0
        if not near.any():
            return near
        value = bare.starts[group]
        for starts in (self._frames.starts, sized.starts):
            # No other function must begin in between.
            last = np.searchsorted(starts, addresses, "right") - 1
            between = last >= 0
            between[between] = starts[last[between]] > value[between]
            near &= ~between
        sections = [s for s in self.elf.sections if s.flags & 4 and s.size]
        if sections:
            starts = np.array(sorted(s.addr for s in sections), np.uint64)
            near &= np.searchsorted(starts, addresses, "right") == np.searchsorted(
                starts, value, "right"
            )
        return near
