"""The folder of a cache of samples: what it is about, its budget, and the free space around it."""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import stat
import struct
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

FORMAT = "lotus samples 1"  # of about.json, by which a folder is known as a cache
_NUMBERS = struct.Struct("<QQ")  # bytes used, and the same inverted: zeros are no number
_BLOCK = 4096
_TRIES, _PAUSE_S = 20, 0.0005
_FREE_SHARE, _FREE_BYTES = 20, 10 << 30
_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def users_root() -> str:
    """Return the folder of the user's caches on disk."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "lotus", "samples")


def cache_name(key: str) -> str:
    """Return the name of the folder that samples with a key have below a root."""
    return key[:32]


def memory_root() -> str:
    """Return the folder of the user's caches in memory, which all processes share."""
    return f"/dev/shm/lotus-samples-{os.getuid()}"


class BudgetUsed(enum.Enum):
    """The result of a reservation: taken, does not fit, another process holds the lock."""

    TAKEN = "taken"
    FULL = "full"
    LOCKED = "locked"


class Budget:
    """The file `used` of a folder: how many bytes all processes together have reserved.

    A folder that was there before and whose number was lost is counted. Raises OSError.
    """

    def __init__(self, folder: str, budget_bytes: int) -> None:
        self.bytes = budget_bytes
        self.used = 0  # when it was last looked at
        self._folder = folder
        self._path = os.path.join(folder, "used")
        self._is_memory = is_memory(folder)
        try:
            os.close(os.open(self._path, _OPEN | os.O_CREAT, 0o600))
            os.utime(self._path)  # when the cache was used last
        except OSError as error:
            read_only = error.errno in (errno.EROFS, errno.EACCES)
            if not read_only or not os.path.exists(self._path):
                raise

    def take(self, size: int) -> BudgetUsed:
        """Reserve bytes for this process. Raises OSError, also where files cannot be locked."""
        import fcntl

        # Opened each time: a descriptor that is kept would share its lock with forked processes.
        descriptor = os.open(self._path, _OPEN)
        try:
            for _ in range(_TRIES):
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:  # waiting for it could mean to wait for a stopped process
                    time.sleep(_PAUSE_S)
            else:
                return BudgetUsed.LOCKED
            self.used = self._read(descriptor)
            if self.used + size > self.bytes:
                return BudgetUsed.FULL
            self.used += size
            data = _NUMBERS.pack(self.used, self.used ^ 0xFFFF_FFFF_FFFF_FFFF)
            if os.pwrite(descriptor, data, 0) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return BudgetUsed.TAKEN
        finally:
            os.close(descriptor)

    def space_problem(self, more: int) -> str | None:
        """Return why `more` bytes should not be written; None if they may be. Raises OSError.

        A twentieth of the file system stays free, but not more than 10 GiB: what the program itself
        writes, such as a checkpoint, has to fit. Where less is free already, the cache gets a
        twentieth of what was free without it. On tmpfs a cache is memory, which batches and
        workers need as well: it gets at most half of what was available without it.
        """
        space = os.statvfs(self._folder)
        kept_free = min(space.f_blocks * space.f_frsize // _FREE_SHARE, _FREE_BYTES)
        free = space.f_bavail * space.f_frsize
        is_small = self.used <= (free - more + self.used) // _FREE_SHARE  # `more` is in `used`
        if free - more < kept_free and not is_small:
            return "its file system is nearly full"
        available = _available_bytes() if self._is_memory else None
        if available is not None and self.used > available:
            return "it has half of the memory that was available"
        return None

    def _read(self, descriptor: int) -> int:
        data = os.pread(descriptor, _NUMBERS.size, 0)
        if len(data) == _NUMBERS.size:
            used, inverted = _NUMBERS.unpack(data)
            if used == inverted ^ 0xFFFF_FFFF_FFFF_FFFF:
                return int(used)
        return _counted(self._folder)


def _counted(folder: str) -> int:
    """Return the bytes of all files in the folders of entries, in whole blocks. Raises OSError."""
    total = 0
    for subfolder in _entry_folders(folder):
        total += _BLOCK
        for file in os.scandir(subfolder.path):
            total += -(-file.stat(follow_symlinks=False).st_size // _BLOCK) * _BLOCK
    return total


def open_folder(folder: str, about: Mapping[str, Any]) -> None:
    """Make a folder and its about.json where they are not there.

    Raises OSError; PermissionError if others than the user could have put something into it.
    """
    import json

    root = os.path.dirname(os.path.abspath(folder))
    os.makedirs(root, 0o700, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "it is not the user's alone", folder)
    path = os.path.join(folder, "about.json")
    if not os.path.lexists(path):
        document = {"format": FORMAT, "made_at": time.time(), **about}
        write_whole(path, json.dumps(document).encode() + b"\n")


def _entry_folders(folder: str) -> list[os.DirEntry[str]]:
    return [
        subfolder
        for subfolder in os.scandir(folder)
        if len(subfolder.name) == 2 and subfolder.is_dir(follow_symlinks=False)
    ]


def write_whole(path: str, data: bytes) -> None:
    """Write a small file under another name, then rename it. Raises OSError."""
    beside = f"{path}.{os.getpid()}.{time.monotonic_ns()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(beside, flags, 0o600)
    try:
        try:
            if os.write(descriptor, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(descriptor)
        os.rename(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def is_memory(folder: str) -> bool:
    """Return True if a folder is on tmpfs. Raises OSError."""
    device = os.stat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                words = line.split()
                if len(words) > 2 and words[2] == number:
                    return "- tmpfs " in line
    except OSError:
        pass
    return False


def _available_bytes() -> int | None:
    """Return the memory that is available to this process, bytes; None: not known."""
    amounts = []
    try:
        with open("/proc/meminfo", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    amounts.append(int(line.split()[1]) * 1024)
        limit, now = (_number(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
        if limit is not None and now is not None:
            amounts.append(limit - now)
    except (OSError, ValueError, IndexError):
        pass
    return min(amounts, default=None)


def _number(path: str) -> int | None:
    """Return the number in a file of the control group; None without one, or for "max"."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            text = file.read(40).strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
