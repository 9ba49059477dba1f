"""A folder of cached samples with a budget, shared by any number of processes and jobs.

An entry is a file `FOLDER/ab/REST-OF-NAME`: a header, then its bytes. It is written under another
name and renamed, without fsync: what a power loss leaves of it, its checksum finds out. Files are
read, not mapped: with the checksum a mapping is no faster (0.5 MB), and one that cannot be read, or
is cut off meanwhile, would end the program with SIGBUS.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import struct
import sys
import threading
import time
import zlib

from ..common.guard import of_the_program
from .cache_folder import Budget, BudgetUsed, open_folder, write_whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

_MAGIC = b"lotus s1"
_HEADER = struct.Struct("<8sIIQQQ")  # magic, checksum's kind, of the header, length, sum, xor
_CRC, _WORDS = 0, 1  # kinds of checksums: without and with numpy
BLOCK = 4096  # bytes, of which files and folders take whole ones
FOLDERS = 256  # at most, each of a block
HEADER_BYTES = _HEADER.size
_LARGEST_CHUNK = 16 << 20  # bytes that a process takes of the budget at a time
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Errors of one entry, after which others can be written; after all others nothing is.
_OF_AN_ENTRY = (errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.EEXIST, errno.ELOOP)


class SampleStore:
    """Entries by name, of at most `budget_bytes` (in whole blocks) over all processes.

    Makes the folder and its `about.json`, into which `about` goes; raises OSError where it cannot,
    or where the folder belongs to somebody else. `note` gets a line for the user when this process
    stops writing. No other method raises OSError. Safe in threads and after a fork.
    """

    def __init__(
        self,
        folder: str,
        budget_bytes: int,
        note: Callable[[str], object],
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        open_folder(folder, about or {})
        self._budget = Budget(folder, budget_bytes)
        self._note = note
        self._dropped_file = os.path.join(folder, "dropped")
        self._dropped = False
        self._turn = itertools.count()
        self._start()

    def _start(self) -> None:
        """Reset what each process has of its own: a parent's reservation is not inherited."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._reserved = self._written = 0
        self._too_large: int | None = None  # the least size that found no room
        self._paused_until = 0.0
        self._stopped = False

    @property
    def dropped(self) -> bool:
        """True if some process has dropped the folder; costs some 2 microseconds."""
        if not self._dropped:
            self._dropped = os.path.lexists(self._dropped_file)
        return self._dropped

    def drop(self, why: str) -> None:
        """Mark the folder: nobody reads or writes it any more."""
        self._dropped = True
        try:
            write_whole(self._dropped_file, why.encode("utf-8", "backslashreplace") + b"\n")
        except OSError as error:  # then others find out for themselves
            _raise_of_the_program(error)

    def get(self, name: str) -> memoryview | None:
        """Return the bytes of an entry; None without one. A damaged one is removed."""
        if self.dropped:
            return None
        path = self._path(name)
        try:
            descriptor = os.open(path, _READ)
            try:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    return None
                data = _read(descriptor, status.st_size)
            finally:
                os.close(descriptor)
            header = _header(name, data)
            if header is not None and header[0] == _WORDS and _numpy() is None:
                return None  # another process had imported numpy; this one cannot check it
            content = memoryview(data)[_HEADER.size :]
            if header is None or _checksum(header[0], content) != header[1:]:
                self._give_back(self._remove(path))
                return None
            return content
        except OSError as error:
            _raise_of_the_program(error)
            return None

    def has_room(self, name: str, size: float) -> bool:
        """Return True if an entry of about `size` bytes may find room, or exists already."""
        if self._process != os.getpid():
            self._start()
        if self._stopped:
            return False
        taken = _blocks(HEADER_BYTES + int(size))
        may = self._too_large is None or taken < self._too_large or taken <= self._reserved
        return may or os.path.lexists(self._path(name))

    def put(self, name: str, parts: Sequence[bytes | memoryview]) -> bool:
        """Write an entry whole or not at all; replaces one of this name. Whether it was written."""
        if self._process != os.getpid():
            self._start()
        if self._stopped or self.dropped:
            return False
        try:
            data, path = entry(name, parts), self._path(name)
            size = _blocks(len(data))
            if not self._reserve(size):
                self._give_back(self._remove(path))  # what this one would have replaced
                if not self._reserve(size):
                    return False
            written = False
            try:
                self._write(path, data)
                written = True
            finally:
                if not written:
                    self._give_back(size)
            return True
        except OSError as error:
            _raise_of_the_program(error)
            if error.errno not in _OF_AN_ENTRY:
                self._stop(error.strerror or str(error))
            return False

    def close(self) -> None:
        """Give back what this process has reserved of the budget and not used."""
        if self._process != os.getpid():
            return
        with self._lock:
            size, self._reserved = self._reserved, 0
        try:
            if size > 0:
                self._budget.take(-size)
        except OSError as error:  # then it is lost
            _raise_of_the_program(error)

    def _path(self, name: str) -> str:
        return f"{self.folder}/{name[:2]}/{name[2:]}"

    def _stop(self, why: str) -> None:
        if not self._stopped:
            self._stopped = True
            self._note(f"no more samples are cached in {self.folder}: {why}")

    def _write(self, path: str, data: bytes) -> None:
        """Raises OSError, and leaves nothing then."""
        subfolder = path.rpartition("/")[0]
        beside = f"{subfolder}/.{os.getpid()}.{time.monotonic_ns()}.{next(self._turn)}"
        try:
            descriptor = os.open(beside, _WRITE, 0o600)
        except FileNotFoundError:
            self._make(subfolder)
            descriptor = os.open(beside, _WRITE, 0o600)
        try:
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
            finally:
                os.close(descriptor)
            if os.path.lexists(path):
                self._give_back(self._remove(path))
            os.rename(beside, path)
        except BaseException:
            try:
                os.unlink(beside)
            except OSError as error:
                _raise_of_the_program(error)
            raise

    def _make(self, subfolder: str) -> None:
        if not self._reserve(BLOCK):
            raise OSError(errno.EEXIST, "there is no room for a folder")  # of this entry only
        try:
            os.mkdir(subfolder, 0o700)
        except FileExistsError:
            self._give_back(BLOCK)

    def _remove(self, path: str) -> int:
        """Remove an entry; return the bytes that this process, and no other, has freed by it."""
        subfolder = path.rpartition("/")[0]
        aside = f"{subfolder}/.{os.getpid()}.{time.monotonic_ns()}.{next(self._turn)}"
        try:
            if not stat.S_ISREG(os.lstat(path).st_mode):
                return 0
            os.rename(path, aside)  # of several processes, one succeeds
            size = os.lstat(aside).st_size
            os.unlink(aside)
        except OSError as error:
            _raise_of_the_program(error)
            return 0
        return _blocks(size)

    def _give_back(self, size: int) -> None:
        if self._process != os.getpid():
            self._start()
        with self._lock:
            self._reserved += size

    def _reserve(self, size: int) -> bool:
        """Return True if this process may write so many bytes. Raises OSError."""
        with self._lock:
            if self._reserved >= size:
                self._reserved -= size
                self._written += size
                return True
            if self._too_large is not None and size >= self._too_large:
                return False
            if time.monotonic() < self._paused_until:
                return False
            problem = None
            # What a killed process had reserved is lost: a small part of what it has written.
            chunk = min(_LARGEST_CHUNK, self._budget.bytes // 64, self._written // 8)
            for wanted in (max(size, chunk), size):
                state = self._budget.take(wanted)
                if state is not BudgetUsed.FULL:
                    break
            if state is BudgetUsed.FULL:
                self._too_large = size
            elif state is BudgetUsed.LOCKED:
                self._paused_until = time.monotonic() + 1
            else:
                self._reserved += wanted
                problem = self._budget.space_problem(self._reserved)
                if problem is None:
                    self._reserved -= size
                    self._written += size
                    return True
        if problem is not None:
            self._stop(problem)
        return False


def entry(name: str, parts: Sequence[bytes | memoryview]) -> bytes:
    """Return the bytes of the file of an entry."""
    content = b"".join(parts)
    kind = _CRC if _numpy() is None else _WORDS
    total, mixed = _checksum(kind, content)
    seal = _seal(name, kind, len(content), total, mixed)
    return _HEADER.pack(_MAGIC, kind, seal, len(content), total, mixed) + content


def _header(name: str, data: bytes) -> tuple[int, int, int] | None:
    """Return the checksum's kind and numbers; None if the header is not that of this entry."""
    if len(data) < _HEADER.size:
        return None
    magic, kind, seal, length, total, mixed = _HEADER.unpack_from(data)
    if magic != _MAGIC or length != len(data) - _HEADER.size or kind not in (_CRC, _WORDS):
        return None
    return (kind, total, mixed) if seal == _seal(name, kind, length, total, mixed) else None


def _seal(name: str, kind: int, *numbers: int) -> int:
    return zlib.crc32(f"{name} {kind} {numbers}".encode())


def _checksum(kind: int, content: bytes | memoryview) -> tuple[int, int]:
    """Return two numbers of 64 bits. With numpy some 10 times as fast as a CRC."""
    if kind == _CRC:
        return zlib.crc32(content), 0
    numpy = sys.modules["numpy"]
    whole = len(content) & ~7
    words = numpy.frombuffer(content, numpy.uint64, whole // 8) if whole else numpy.zeros(1, "u8")
    rest = int.from_bytes(content[whole:], "little")
    total = int(numpy.add.reduce(words)) + rest & 0xFFFF_FFFF_FFFF_FFFF
    return total, int(numpy.bitwise_xor.reduce(words)) ^ rest


def _numpy() -> Any:
    numpy = sys.modules.get("numpy")
    return numpy if hasattr(numpy, "bitwise_xor") and hasattr(numpy, "frombuffer") else None


def _read(descriptor: int, size: int) -> bytes:
    data = os.read(descriptor, size)
    while len(data) < size:
        more = os.read(descriptor, size - len(data))
        if not more:
            break
        data += more
    return data


def _blocks(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _raise_of_the_program(error: OSError) -> None:
    """Raise what a signal handler of the program raised into our code."""
    if of_the_program(error):
        raise error
