"""The event log of one process: opening, writing and closing its file, and nothing else."""

import json
import os
import socket
import sys
import threading
import time
from contextlib import suppress

from . import layout

clock = time.monotonic_ns
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW


def identity(fd):
    """(device, inode) of an open file, or None."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return (status.st_dev, status.st_ino)


class Log:
    """The file is made at the first write. Methods raise OSError."""

    def __init__(self, run, level):
        self.run = run
        self.level = level
        self._fd = -1
        self._identity = None
        self._path = None
        self._lock = threading.Lock()

    def file(self, folder, kind):
        """Path of this process's file in a folder of the run, which is made where missing."""
        folder = os.path.join(self.run, folder)
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)  # not its parents: a run that was removed stays removed
        name = f"{socket.gethostname()}-{os.getpid()}-{clock():x}.{kind}"
        return os.path.join(folder, name)

    def _open(self):
        with self._lock:
            if self._fd >= 0:
                return
            if self._path is None:
                self._path = self.file("events", "ltr")
                fd = os.open(self._path, _APPEND | os.O_CREAT | os.O_EXCL, 0o600)
                self._identity = identity(fd)
                self._fd = fd
                self._put(header(self.level))
                return
            fd = os.open(self._path, _APPEND)
            if identity(fd) != self._identity:
                os.close(fd)
                raise OSError("the event log was replaced by another file")
            self._fd = fd

    def write(self, data):
        """Append bytes in one system call."""
        if self._fd < 0:
            self._open()
        # The program may have closed our descriptor and opened a file of its own under the
        # number, or removed the run directory.
        try:
            status = os.fstat(self._fd)
        except OSError:
            status = None
        if status is None or (status.st_dev, status.st_ino) != self._identity:
            self._fd = -1
            self._open()
            status = os.fstat(self._fd)
        if status.st_nlink == 0:
            raise OSError("the run directory was removed")
        self._put(data)

    def _put(self, data):
        if os.write(self._fd, data) != len(data):
            raise OSError("the disk is full (a write was cut short)")

    def close(self):
        """Close the file; a later write opens it again."""
        fd, self._fd = self._fd, -1
        if fd >= 0 and identity(fd) == self._identity:
            os.close(fd)

    def size_of_run(self):
        """Bytes in the event logs of all processes of the run."""
        with os.scandir(os.path.join(self.run, "events")) as entries:
            return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)


def append_line(run, item):
    """Append one JSON line to the run's processes.jsonl."""
    item = {**item, "pid": os.getpid(), "time_ns": clock()}
    fd = os.open(os.path.join(run, "processes.jsonl"), _APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, (json.dumps(item) + "\n").encode())
    finally:
        os.close(fd)


def header(level):
    """Bytes of the file header: what this process is."""
    rank, local_rank, world_size = rank_of_process()
    torch = sys.modules.get("torch")
    text = json.dumps(
        {
            "schema": layout.SCHEMA,
            "frames": layout.description(),
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
            "level": level,
        }
    ).encode()
    return layout.FILE_HEADER.pack(layout.FILE_MAGIC, len(text)) + text


def rank_of_process():
    """(rank, local rank, world size) from the job's environment or torch.distributed, or Nones."""
    found = []
    for names in (
        ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"),
        ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"),
        ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"),
    ):
        values = [os.environ[name] for name in names if os.environ.get(name, "").isdigit()]
        found.append(int(values[0]) if values else None)
    distributed = sys.modules.get("torch.distributed")
    with suppress(Exception):  # the program may be half-way through its own set-up
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            found[0], found[2] = distributed.get_rank(), distributed.get_world_size()
    return tuple(found)


def boot_id():
    """The kernel's id of this boot, by which clocks of two logs can be known to be the same."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return None
