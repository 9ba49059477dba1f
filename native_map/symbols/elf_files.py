"""Finds the file of a mapping and its separate debug files, and checks that they are unchanged.

Names must not come from a file that was replaced since the recording: if the recording has a build
id, the file's must be equal.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from native_map.errors import UnusableError
from native_map.symbols.elf import Elf, same_build
from native_map.symbols.elf_image import Image

DELETED = " (deleted)"
WHEEL_DIRECTORIES = (".libs/", "/torch/lib/", "/nvidia/")


@dataclass
class Found:
    """An opened file, or a `note` why there is none, in which `{n}` is the number of samples.

    `hint` is a command that may give a stripped file more names.
    """

    image: Image | None
    note: str = ""
    hint: str = ""


class Files:
    """Opens each file once. Arguments as for `Symbols`."""

    def __init__(
        self, root: str, debug_dirs: "Sequence[str] | None", recorded_s: "float | None"
    ) -> None:
        self.root = "" if root == "/" else root.rstrip("/")
        home = os.path.expanduser("~")
        cache_home = os.environ.get("XDG_CACHE_HOME") or f"{home}/.cache"
        self.debug_dirs = (
            list(debug_dirs)
            if debug_dirs is not None
            else [
                f"{self.root}/usr/lib/debug",
                os.environ.get("DEBUGINFOD_CACHE_PATH") or f"{cache_home}/debuginfod_client",
                f"{home}/.debug",
            ]
        )
        self.recorded_s = recorded_s
        self._found: dict[tuple[str, str, str], Found] = {}
        self._roots: dict[int, str] = {}
        self._root_of: dict[tuple[int, int], str] = {}

    def by_root(self, pids: NDArray[np.int64]) -> list[tuple[str, NDArray[np.intp]]]:
        """Return rows of `pids` by the root directory of their processes, as a prefix of paths."""
        unique, back = np.unique(pids, return_inverse=True)
        groups: dict[str, list[int]] = {}
        for number, pid in enumerate(unique.tolist()):
            groups.setdefault(self._root(pid), []).append(number)
        return [(root, np.flatnonzero(np.isin(back, mine))) for root, mine in groups.items()]

    def _root(self, pid: int) -> str:
        if self.root or pid <= 0:
            return self.root
        if pid not in self._roots:
            prefix = ""
            try:
                its, ours = os.stat(f"/proc/{pid}/root"), os.stat("/")
                if (its.st_dev, its.st_ino) != (ours.st_dev, ours.st_ino):
                    # One prefix for all processes of a container.
                    prefix = self._root_of.setdefault((its.st_dev, its.st_ino), f"/proc/{pid}/root")
            except OSError:
                pass  # ended, or not accessible: our own root is the best guess
            self._roots[pid] = prefix
        return self._roots[pid]

    def find(self, path: str, build_id: str, prefix: str) -> Found:
        """Return the mapped file and its debug files, searched only once."""
        key = path, build_id, prefix
        if key not in self._found:
            self._found[key] = self._open(path, build_id, prefix)
        return self._found[key]

    def _open(self, path: str, build_id: str, prefix: str) -> Found:
        deleted = path.endswith(DELETED)
        plain = path.removesuffix(DELETED)
        why = ""
        places = [prefix + plain] + ([self.root + plain] if prefix != self.root else [])
        for place in places:
            try:
                elf = Elf.open(place)
            except UnusableError as error:
                why = why or str(error).split(";")[0]
                continue
            refusal = self._refusal(elf, plain, build_id, deleted)
            if not refusal:
                return self._with_debug(elf, prefix or self.root, plain)
            why = refusal
        for place in self._by_build_id(build_id, ("elf", "executable")):
            try:
                elf = Elf.open(place)
            except UnusableError:
                continue
            if same_build(elf.build_id, build_id):
                return self._with_debug(elf, prefix or self.root, plain)
        if build_id:
            help_ = f"; `debuginfod-find executable {build_id}` may fetch the file as it was"
        else:
            help_ = "; read the recording on the machine and with the files it was made with"
        return Found(None, f"{{n}} samples without names: {why}{help_}")

    def _refusal(self, elf: Elf, path: str, build_id: str, deleted: bool) -> str:
        """Return why this file cannot be the mapped one; "" if it can."""
        if build_id:
            if same_build(elf.build_id, build_id):
                return ""
            now = elf.build_id or "none"
            return f"{path} has changed since the recording (build id {build_id}, now {now})"
        if deleted:
            return f"{path} was deleted or replaced before the samples were taken"
        if self.recorded_s is not None and os.stat(elf.path).st_ctime > self.recorded_s:
            return f"{path} is newer than the recording, which holds no build id to compare"
        return ""

    def _with_debug(self, elf: Elf, root: str, path: str) -> Found:
        debug = []
        if not elf.has_symtab:
            debug_file = self._debug_file(elf, root, path) or elf.mini_debug()
            debug = [debug_file] if debug_file is not None else []
        image = Image(elf, debug)
        hint = ""
        if not image.has_symtab and elf.build_id and not any(p in path for p in WHEEL_DIRECTORIES):
            hint = f"; `debuginfod-find debuginfo {elf.build_id}` may fetch its names"
        return Found(image, hint=hint)

    def _by_build_id(self, build_id: str, names: "tuple[str, ...]") -> list[str]:
        """Return paths for a build id in the layouts of gdb, perf and debuginfod."""
        if len(build_id) < 6 or not set(build_id) <= set("0123456789abcdef"):
            return []
        places = []
        for folder in self.debug_dirs:
            tree = os.path.join(folder, ".build-id", build_id[:2], build_id[2:])
            if "debuginfo" in names:
                places.append(f"{tree}.debug")
            places += [os.path.join(tree, name) for name in names]
            places += [os.path.join(folder, build_id, name) for name in names]
        return places

    def _debug_file(self, elf: Elf, root: str, path: str) -> Elf | None:
        """Return the separate debug file by build id, or by debug link if its checksum matches."""
        for place in self._by_build_id(elf.build_id, ("debug", "debuginfo", "elf")):
            try:
                candidate = Elf.open(place)
            except UnusableError:
                continue
            if same_build(candidate.build_id, elf.build_id) and candidate.has_symtab:
                return candidate
        if elf.debug_link is None:
            return None
        name, crc = elf.debug_link
        folder = os.path.dirname(path)
        places = [f"{root}{folder}/{name}", f"{root}{folder}/.debug/{name}"]
        places += [f"{debug_dir}{folder}/{name}" for debug_dir in self.debug_dirs]
        for place in places:
            try:
                candidate = Elf.open(place)
            except UnusableError:
                continue
            if candidate.has_symtab and candidate.crc() == crc:
                return candidate
        return None


@cache
def own_vdso() -> Image | None:
    """Return the vdso of this process, which is that of the running kernel."""
    try:
        with open("/proc/self/maps") as maps:
            line = next((line for line in maps if line.rstrip().endswith("[vdso]")), "")
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        with open("/proc/self/mem", "rb") as memory:
            memory.seek(start)
            return Image(Elf(memory.read(min(end - start, 1 << 20)), "[vdso]"))
    except (OSError, ValueError, IndexError, UnusableError):
        return None
