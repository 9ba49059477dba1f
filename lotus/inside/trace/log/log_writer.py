"""The event log of one process: opening, writing and closing its file, and nothing else."""

import errno
import fcntl
import json
import os
import socket
import sys
import threading
import time

from ...common.clocks import clock
from ...common.guard import of_the_program, quiet
from ...common.process_identity import boot_id, clock_id, cores, rank_of_process
from . import log_format

TYPE_CHECKING = False
if TYPE_CHECKING:
    import resource
    from collections.abc import Callable
else:
    from .standard_library import resource
# Least descriptor of the log, so that the program gets the same descriptors as without lotus.
_LOWEST = 500
TOO_LARGE = -2
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


def identity(fd: int) -> tuple[int, int] | None:
    """Return (device, inode) of an open file, or None."""
    with quiet(OSError):
        status = os.fstat(fd)
        return (status.st_dev, status.st_ino)
    return None


def append(fd: int, device: int, inode: int, data: bytes) -> int:
    """Append bytes to an open file as `put` does; return its links, as `append` of `_batch.c`.

    0: it was removed, and nothing is written. -1: nothing is written, as the descriptor is closed
    or of another file. That of `_batch.c` returns TOO_LARGE where `put` raises an error.
    """
    try:
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) != (device, inode):
            return -1
        if status.st_nlink:
            put(fd, data)
    except OSError as error:
        if error.errno != errno.EBADF or of_the_program(error):
            raise
        return -1
    return status.st_nlink


def _open(path: str, flags: int) -> int:
    """Open a file with a high descriptor if possible. Raises OSError."""
    fd = os.open(path, flags, 0o600)
    with quiet(OSError):  # the limit may be lower
        aside = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _LOWEST)
        os.close(fd)
        return aside
    return fd


def put(fd: int, data: bytes) -> None:
    """Append bytes to a file, in one system call if there is room for them.

    Raises OSError if there is not (a full disk, a quota). If the file would exceed RLIMIT_FSIZE, it
    is raised before anything is written, because the kernel would send the program a signal.
    """
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if 0 <= limit < os.fstat(fd).st_size + len(data):
        raise OSError(f"files of the program may not grow past {limit:,} bytes (ulimit -f)")
    while data:
        data = data[os.write(fd, data) :]


class Log:
    """The event log; its file is created at the first write. Methods raise OSError."""

    def __init__(self, run: str, level: str, append: "Callable[..., int]") -> None:
        self._append = append  # the function of this file, or as that
        self.run = run
        self.level = level
        self._fd = -1
        self._identity: tuple[int, int] | None = None
        self._path: str | None = None
        # Reentrant: the collector may free an iterator, whose end is an event, at any allocation.
        self._lock = threading.RLock()

    def file(self, folder: str, kind: str) -> str:
        """Return the path of this process's file in a folder of the run, which is created if
        missing.
        """
        folder = os.path.join(self.run, folder)
        with quiet(FileExistsError):
            os.mkdir(folder, 0o700)  # without parents, so that a removed run stays removed
        name = f"{socket.gethostname()}-{os.getpid()}-{clock():x}.{kind}"
        return os.path.join(folder, name)

    def _open(self) -> None:
        fresh = self._path is None
        path = self._path or self.file("events", "ltr")
        fd = _open(path, _APPEND | (os.O_CREAT | os.O_EXCL if fresh else 0))
        try:
            file_id = identity(fd)
            if fresh:
                put(fd, header(self.level))
            elif file_id != self._identity:
                raise OSError("the event log was replaced by another file")
        except BaseException:  # a signal handler of the program, for one
            os.close(fd)
            if fresh:
                os.unlink(path)
            raise
        if self._fd >= 0:  # the collector, as above
            os.close(fd)
            if fresh:
                os.unlink(path)
            return
        self._path, self._identity, self._fd = path, file_id, fd

    def write(self, data: bytes) -> None:
        """Append bytes in one system call."""
        with self._lock:
            links = self._put(data)
            if links == -1:
                self._open()
                links = self._put(data)
            if links == TOO_LARGE:
                put(self._fd, data)
            elif links <= 0:
                raise OSError("the run directory was removed")
            if self._fd < _LOWEST:
                self.leave()  # the program may need the low number

    def _put(self, data: bytes) -> int:
        """Append bytes and return how many links our file has.

        Return -1 if the descriptor is not ours: the program may have closed it and reused the
        number. So may the collector have done, which can free an iterator at any allocation.
        """
        fd = self._fd
        if fd < 0 or self._identity is None:
            return -1
        device, inode = self._identity
        links = self._append(fd, device, inode, data)
        if links == -1 and fd == self._fd:
            self._fd = -1
        return links

    def close(self) -> None:
        """Close the file; a later write opens it again."""
        with self._lock:
            self.leave()

    def leave(self) -> None:
        """Close without taking the lock, which may be held forever in a forked child."""
        fd, self._fd = self._fd, -1
        if fd >= 0 and identity(fd) == self._identity:
            os.close(fd)

    def size_of_run(self) -> int:
        """Return the bytes in the event logs of all processes of the run."""
        with os.scandir(os.path.join(self.run, "events")) as entries:
            return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)


def append_line(run: str, item: dict[str, object]) -> None:
    """Append one JSON line to the run's processes.jsonl."""
    item = {**item, "pid": os.getpid(), "time_ns": clock()}
    fd = os.open(os.path.join(run, "processes.jsonl"), _APPEND | os.O_CREAT, 0o600)
    try:
        put(fd, (json.dumps(item) + "\n").encode())
    finally:
        os.close(fd)


def first_fault(run: str) -> int | None:
    """Return the first process of the run that recorded an error. Raises OSError."""
    with open(os.path.join(run, "processes.jsonl"), "rb") as file:
        for line in file.read(1 << 20).splitlines():
            if b'"event": "fault"' in line:
                return int(json.loads(line)["pid"])
    return None


def header(level: str) -> bytes:
    """Return the file header, which describes this process."""
    rank, local_rank, world_size = rank_of_process()
    torch = sys.modules.get("torch")
    return log_format.file_header(
        {
            "schema": log_format.SCHEMA,
            "frames": log_format.description(),
            "pid": os.getpid(),
            "ppid": os.getppid(),
            "host": socket.gethostname(),
            "rank": rank,
            "local_rank": local_rank,
            "world_size": world_size,
            "executable": sys.executable,
            "argv": [str(arg) for arg in getattr(sys, "argv", [])[:1]],
            "python": sys.version.split()[0],
            "torch": str(getattr(torch, "__version__", "")) or None,
            "start_ns": clock(),
            "start_wall_ns": time.time_ns(),
            "boot_id": boot_id(),
            "clock": clock_id(),
            "restart": os.environ.get("TORCHELASTIC_RESTART_COUNT"),
            "affinity": cores(),
            "level": level,
        }
    )
