"""Finds the libraries and functions of sampled addresses.

A sample's process, address and time determine its mapping, the mapping a file and an offset, the
program headers the file's address, and `elf_image.py` the function. All steps work on unique
(process, address) pairs and sorted tables; the time matters only if mappings of a process
overlapped at different times.
"""

import os
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from native_map.errors import UnusableError
from native_map.symbols import demangle
from native_map.symbols.address_space import AddressSpaces, Match
from native_map.symbols.elf import U64, same_build
from native_map.symbols.elf_files import DELETED, Files, Found, own_vdso
from native_map.symbols.elf_image import UNKNOWN
from native_map.symbols.named_ranges import MapBudget, PerfMap, Ranges, kernel_ranges, perf_map

KERNEL, VDSO, JIT = "[kernel]", "[vdso]", "[jit]"
MANGLED = "{n} C++ names stay mangled: longer than libstdc++ reads, damaged, or it is not installed"
UNTRUSTED = "{n} samples without names: files are not opened for a recording that is not trusted"
MOST_NOTES = 200
MOST_FILES = 10_000  # per table of samples, those with the most samples
MANY_FILES = "{n} samples without names: they are in too many files to open them all"
MOST_GENERATORS = 4096  # processes whose perf map is searched
CROWDED = "{n} samples in generated code of too many processes, whose names were not looked for"
ANONYMOUS = ("//", "[heap", "[stack", "[anon", "anon_inode:", "/dev/zero", "/SYSV", "/anon_huge")
MEMFD = "/memfd:"


class Symbols:
    """Names for samples. An object keeps the files that it has opened.

    `root` is the directory of the recorded machine's files; `debug_dirs` are those of separate
    debug files (`.build-id/` trees, debuginfod's cache, and `objcopy`'s debug links); `kernel`
    requests kernel names from this machine's /proc/kallsyms; `perf_maps` is the directory of
    `perf-PID.map` files; `recorded_s` is the Unix time of the recording's end: files changed since
    then are not used if there is no build id to compare. For a recording that is not `trusted` no
    file is opened, since the recording chooses the files.
    """

    def __init__(
        self,
        root: str = "/",
        debug_dirs: "Sequence[str] | None" = None,
        kernel: bool = False,
        perf_maps: str = "/tmp",
        recorded_s: "float | None" = None,
        *,
        trusted: bool = True,
    ) -> None:
        self.files = Files(root, debug_dirs, recorded_s)
        self.trusted = trusted
        self.kernel = kernel and trusted
        self.perf_maps = perf_maps
        self._notes: Counter[str] = Counter()
        self._others: dict[str, None] = {}  # notes that count no samples
        self._readable: dict[str, str] = {}
        self._kernel_ranges: Ranges | None = None
        self._perf_maps: dict[int, PerfMap | None] = {}
        self._map_budget = MapBudget()

    @property
    def notes(self) -> list[str]:
        """Notes on samples without names, most samples first; the rarest are merged."""
        texts = [
            text.replace("{n} samples", "1 sample" if n == 1 else f"{n:,} samples").replace(
                "{n}", f"{n:,}"
            )
            for text, n in self._notes.most_common(MOST_NOTES)
        ]
        others = [*self._others, *self._map_budget.refused]
        omitted = len(self._notes) - len(texts) + max(len(others) - MOST_NOTES, 0)
        closing = [f"{omitted:,} more notes of this kind, on less"] if omitted else []
        return [*texts, *others[:MOST_NOTES], *closing]

    def resolve(
        self,
        mappings: pd.DataFrame,
        samples: pd.DataFrame,
        forks: "pd.DataFrame | None" = None,
        comms: "pd.DataFrame | None" = None,
    ) -> pd.DataFrame:
        """Return `library`, `function` and `path` (categories) of each sample, with its index.

        `mappings`, `samples`, `forks` and `comms` are tables of a PerfRecording. Forks supply
        inherited mappings that `mappings` lacks, comms end the mappings before an exec.
        `library` is the file's name or `[kernel]`, `[vdso]`, `[jit]`, `[unknown]`; `function` is
        demangled, or the hex of its start in the file, or `[unknown]`; `path` is "" without a file.
        Never raises for samples that cannot be named; they are in `notes`.
        """
        targets = _Targets()
        ip = samples["ip"].to_numpy(np.uint64)
        pid = samples["pid"].to_numpy(np.int64)
        mode = samples["cpu_mode"].to_numpy() if "cpu_mode" in samples else np.zeros(len(ip), int)
        in_kernel = (mode == 1) | ((mode == 0) & (ip >= np.uint64(1 << 63)))
        in_guest = (mode > 2) & (mode < 6)
        result = np.full(len(ip), targets.add(UNKNOWN, UNKNOWN, ""), np.int64)
        table = AddressSpaces(mappings, forks, comms)
        if in_kernel.any():
            result[in_kernel] = self._in_kernel(ip[in_kernel], table, targets)
        if in_guest.any():
            self._notes[
                "{n} samples are a virtual machine's or hypervisor's and have no names"
            ] += int(in_guest.sum())
        user = np.flatnonzero(~in_kernel & ~in_guest)
        if len(user):
            time = samples["time_ns"].to_numpy(np.int64)
            matches = table.match(pid[user], ip[user], time[user])
            self._notes.update(table.refused)
            named = self._in_user(_Pairs(matches, table, targets))
            result[user] = named[matches.pair]
        return self._frame(result, targets, samples.index)

    def _in_user(self, pairs: "_Pairs") -> NDArray[np.int64]:
        """Name the pairs of `AddressSpaces.match`: return the index of each pair's target."""
        matches, table, weight = pairs.matches, pairs.table, pairs.weight
        used = np.flatnonzero(weight)
        used = used[np.argsort(matches.source[used], kind="stable")]
        sources, first = np.unique(matches.source[used], return_index=True)
        chosen = np.arange(len(sources))
        if len(sources) > MOST_FILES:
            samples = np.add.reduceat(weight[used], first)
            order = np.argsort(-samples, kind="stable")
            chosen = np.sort(order[:MOST_FILES])
            self._notes[MANY_FILES] += int(samples[order[MOST_FILES:]].sum())
        ends = np.append(first[1:], len(used))
        for at in chosen.tolist():
            source, rows = int(sources[at]), used[first[at] : ends[at]]
            path, build_id = ("", "")
            if source >= 0:
                path, build_id = table.paths[source], table.build_ids[source]
            if not path or path.startswith((*ANONYMOUS, MEMFD)):
                self._generated(pairs, rows, path)
            elif path.startswith("["):
                self._bracketed(pairs, rows, path, build_id)
            else:
                self._in_files(pairs, rows, path, build_id)
        return pairs.named

    def _in_files(self, pairs: "_Pairs", rows: NDArray[np.intp], path: str, build_id: str) -> None:
        if not self.trusted:
            printable = _printable(path)
            library = _printable(path.removesuffix(DELETED).rsplit("/", 1)[-1]) or UNKNOWN
            pairs.named[rows] = pairs.targets.add(library, UNKNOWN, printable)
            self._notes[UNTRUSTED] += int(pairs.weight[rows].sum())
            return
        for prefix, mine in self.files.by_root(pairs.matches.pid[rows]):
            file_rows = rows[mine]
            file = self.files.find(path, build_id, prefix)
            self._file(pairs, file_rows, path, file)

    def _file(self, pairs: "_Pairs", rows: NDArray[np.intp], path: str, file: Found) -> None:
        library = _printable(path.removesuffix(DELETED).rsplit("/", 1)[-1]) or UNKNOWN
        printable = _printable(path)
        total = int(pairs.weight[rows].sum())
        if file.image is None:
            pairs.named[rows] = pairs.targets.add(library, UNKNOWN, printable)
            self._notes[file.note] += total
            return
        back, unique = pd.factorize(pairs.matches.offset[rows])
        addresses, known = file.image.elf.addresses(unique)
        codes, names = file.image.resolve(addresses)
        codes[~known] = 0
        numbers = np.array([pairs.targets.add(library, name, printable) for name in names])
        pairs.named[rows] = numbers[codes][back]
        for refused in file.image.refused:
            self._others[f"{printable}: {refused}"] = None
        starts = np.array([name.startswith("0x") for name in names])[codes][back]
        self._note(
            f"{{n}} samples by the start of their function, as {printable} is stripped" + file.hint,
            pairs.weight[rows][starts],
        )
        self._note(
            f"{{n}} samples without a function: {printable} does not tell where one starts there",
            pairs.weight[rows][codes[back] == 0],
        )

    def _note(self, text: str, weight: NDArray[np.intp]) -> None:
        if len(weight):
            self._notes[text] += int(weight.sum())

    def _bracketed(self, pairs: "_Pairs", rows: NDArray[np.intp], path: str, build_id: str) -> None:
        if path != VDSO:
            pairs.named[rows] = pairs.targets.add(_printable(path), UNKNOWN, "")
            return
        image = own_vdso()
        same = image is not None and bool(build_id) and same_build(build_id, image.elf.build_id)
        if image is None or not same:
            pairs.named[rows] = pairs.targets.add(VDSO, UNKNOWN, "")
            return
        addresses, known = image.elf.addresses(pairs.matches.offset[rows])
        codes, names = image.resolve(addresses)
        codes[~known] = 0
        pairs.named[rows] = np.array([pairs.targets.add(VDSO, name, "") for name in names])[codes]

    def _generated(self, pairs: "_Pairs", rows: NDArray[np.intp], path: str) -> None:
        """Name code outside files by the perf map of the process, or of a parent before a fork."""
        library = JIT if path else UNKNOWN
        if path.startswith(MEMFD):
            library = _printable(path.removesuffix(DELETED)[1:])
        pairs.named[rows] = pairs.targets.add(library, UNKNOWN, "")
        order = np.argsort(pairs.matches.pid[rows], kind="stable")
        pids, first = np.unique(pairs.matches.pid[rows][order], return_index=True)
        groups = np.split(rows[order], first[1 : MOST_GENERATORS + 1])
        if len(pids) > MOST_GENERATORS:
            self._notes[CROWDED] += int(pairs.weight[groups.pop()].sum())
        for pid, mine in zip(pids.tolist()[:MOST_GENERATORS], groups, strict=True):
            for ancestor in pairs.table.ancestors(pid):
                ranges = self._perf_map(ancestor)
                if ranges is None or not len(mine):
                    continue
                names = ranges.names(pairs.matches.ip[mine])
                hit = np.array([name is not None for name in names], bool)
                pairs.named[mine[hit]] = [
                    pairs.targets.add(JIT, name, "") for name in names if name is not None
                ]
                mine = mine[~hit]
            if len(mine) and path:
                self._notes[
                    f"{{n}} samples without a name, in generated code of process {pid};"
                    " `python -X perf` (3.12 or later) writes names for Python functions"
                ] += int(pairs.weight[mine].sum())
            elif len(mine):
                self._notes["{n} samples at addresses that no mapping covers"] += int(
                    pairs.weight[mine].sum()
                )

    def _perf_map(self, pid: int) -> "PerfMap | None":
        if pid not in self._perf_maps:
            path = os.path.join(self.perf_maps, f"perf-{pid}.map")
            self._perf_maps[pid] = perf_map(path, self._map_budget) if self.trusted else None
        return self._perf_maps[pid]

    def _in_kernel(self, ip: U64, table: AddressSpaces, targets: "_Targets") -> NDArray[np.int64]:
        unknown = np.full(len(ip), targets.add(KERNEL, UNKNOWN, ""), np.int64)
        if not self.kernel:
            self._notes["{n} samples in the kernel; names of its functions were not requested"] += (
                len(ip)
            )
            return unknown
        try:
            if self._kernel_ranges is None:
                self._kernel_ranges = kernel_ranges()
            for name, address in table.kernel_marks():
                if self._kernel_ranges.marks.get(name, address) != address:
                    raise UnusableError(
                        "{n} samples without names, in the kernel of another boot or machine;"
                        " read the recording where it was made, before the next boot"
                    )
        except UnusableError as error:
            self._notes[str(error)] += len(ip)
            return unknown
        back, unique = pd.factorize(ip)
        names = self._kernel_ranges.names(unique)
        return np.array([targets.add(KERNEL, name or UNKNOWN, "") for name in names])[back]

    def _frame(
        self, result: NDArray[np.int64], targets: "_Targets", index: pd.Index
    ) -> pd.DataFrame:
        libraries, functions, paths = targets.columns()
        plain = [name.removesuffix("@plt") for name in functions]
        new = {name for name in plain if name.startswith("_Z") and name not in self._readable}
        demangled = demangle.demangle(new)
        self._readable.update((name, demangled.get(name, name)) for name in new)
        if len(new) > len(demangled):
            self._notes[MANGLED] += len(new) - len(demangled)
        readable = [
            self._readable.get(name, name) + full[len(name) :]
            for name, full in zip(plain, functions, strict=True)
        ]
        columns = {}
        for title, texts in (("library", libraries), ("function", readable), ("path", paths)):
            codes, categories = pd.factorize(np.array(texts, object), sort=True)
            columns[title] = pd.Categorical.from_codes(
                codes.astype(np.int32)[result], categories=pd.Index(categories)
            )
        return pd.DataFrame(columns, index=index)


class _Pairs:
    """Unique (process, address) pairs of samples, and the index of each one's target."""

    def __init__(self, matches: Match, table: AddressSpaces, targets: "_Targets") -> None:
        self.matches, self.table, self.targets = matches, table, targets
        self.weight = np.bincount(matches.pair, minlength=len(matches.ip))  # samples of each
        self.named = np.zeros(len(matches.ip), np.int64)


class _Targets:
    """Numbers for (library, function, path)."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str, str], int] = {}

    def add(self, library: str, function: str, path: str) -> int:
        return self._numbers.setdefault((library, function, path), len(self._numbers))

    def columns(self) -> tuple[list[str], list[str], list[str]]:
        rows = list(self._numbers)
        return [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows]


def _printable(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode()
