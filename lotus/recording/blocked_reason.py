"""The reason for which a thread is blocked, by the system call that the kernel reports."""

import os
from collections.abc import Callable

_PRIVATE = 128  # FUTEX_PRIVATE_FLAG: a lock of one process
_FUTEX, _BY_DESCRIPTOR, _SELECT = "futex", "descriptor", "select"
# System calls by number; all others are "other".
_CALLS = {
    "x86_64": {
        _FUTEX: (202, 449),
        _BY_DESCRIPTOR: (0, 1, 17, 18, 19, 20, 40, 295, 327),  # read, write and their kin
        "sleep": (35, 230),
        "socket": (42, 43, 44, 45, 46, 47, 288, 299, 307),
        _SELECT: (23, 270),
        "events": (7, 232, 271, 281),  # poll, epoll_wait
        "file": (2, 4, 5, 6, 74, 75, 217, 257, 262, 332),  # open, stat, fsync, getdents
        "child": (61, 247),
        "shared-lock": (65, 72, 73, 220),  # semop, fcntl, flock
    },
    "aarch64": {
        _FUTEX: (98, 449),
        _BY_DESCRIPTOR: (63, 64, 65, 66, 67, 68, 69, 71),
        "sleep": (101, 115),
        "socket": (202, 203, 206, 207, 211, 212, 242, 243, 269),
        _SELECT: (72,),
        "events": (22, 73),
        "file": (56, 61, 79, 80, 82, 83, 291),
        "child": (95, 260),
        "shared-lock": (25, 32, 192, 193),
    },
}
COMPUTING = "computing"
STOPPED = "stopped"  # by a signal or a debugger, not by the program; it is not written to any file
REASONS = (
    COMPUTING, "storage", "page-fault", "lock", "shared-lock", "sleep", "socket", "local-socket",
    "pipe", "events", "file", "child", "other",
)  # fmt: skip
_MOST_FIELDS = 16  # of /proc/PID/stat after the name: more than callers use
_MOST_LOCAL = 4096  # sockets whose kind is kept
_MOST_BYTES = 1 << 20  # of the list of local sockets


class BlockedReasons:
    """Names what threads are blocked in; `problem` says why it cannot, "" where it can."""

    def __init__(self, read_file: Callable[[str], bytes] | None = None) -> None:
        """`read_file`: returns the first kilobyte of a file of /proc."""
        self._read = read_file or read
        machine = os.uname().machine
        calls = _CALLS.get(machine, {})
        self._kinds = {str(number): kind for kind, numbers in calls.items() for number in numbers}
        self._local: dict[bytes, bool] = {}  # by a socket's inode
        self.problem = "" if calls else f"system calls of {machine} are not known"
        if not self.problem and not os.path.exists("/proc/self/syscall"):
            self.problem = "this kernel does not tell in which system call a thread is"

    def look(self, pid: int) -> tuple[str, list[bytes]]:
        """Return the reason of a process's main thread, and its fields of /proc/PID/stat.

        The fields are read, and not empty, where it is blocked. Raises OSError, PermissionError
        among them.
        """
        text = self._read(f"/proc/{pid}/syscall").split()
        if not text or text[0] == b"running":
            return COMPUTING, []
        text_of_stat = self._read(f"/proc/{pid}/stat")
        state, *fields = text_of_stat.rpartition(b") ")[2].split(None, _MOST_FIELDS)
        return self._reason(pid, text, state), fields

    def _reason(self, pid: int, text: list[bytes], state: bytes) -> str:
        if state in (b"T", b"t"):
            return STOPPED
        if state == b"D":
            return "storage"
        if text[0] == b"-1":  # blocked, but in no system call
            return "page-fault"
        kind = self._kinds.get(text[0].decode(), "other")
        if kind == _FUTEX:
            private = len(text) > 2 and int(text[2], 16) & _PRIVATE
            return "lock" if private else "shared-lock"
        if kind == _SELECT:  # of no descriptor: so Python 3.10 sleeps
            return "events" if len(text) < 2 or int(text[1], 16) else "sleep"
        if kind == _BY_DESCRIPTOR:
            return self._kind_of_file(pid, int(text[1], 16))
        if kind == "socket" and len(text) > 1:
            return self._kind_of_file(pid, int(text[1], 16))
        return kind

    def _kind_of_file(self, pid: int, number: int) -> str:
        target = os.readlink(f"/proc/{pid}/fd/{number}")
        if target.startswith("socket:["):
            inode = target[len("socket:[") : -1].encode()
            return "local-socket" if self._is_local(pid, inode) else "socket"
        return "pipe" if target.startswith("pipe:") else "file"

    def _is_local(self, pid: int, inode: bytes) -> bool:
        """Return True if a socket is one of AF_UNIX, which ends in a process of this machine."""
        known = self._local.get(inode)
        if known is None:
            if len(self._local) >= _MOST_LOCAL:
                self._local.clear()
            known = self._local[inode] = inode in _local_sockets(pid)
        return known


def read(path: str) -> bytes:
    """Return the first kilobyte of a file of /proc. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 1024)
    finally:
        os.close(descriptor)


def _local_sockets(pid: int) -> set[bytes]:
    """Return inodes of the sockets of AF_UNIX that a process can see; none if unreadable."""
    try:
        with open(f"/proc/{pid}/net/unix", "rb") as file:
            lines = file.read(_MOST_BYTES).splitlines()
    except OSError:
        return set()
    rows = (line.split(None, 7) for line in lines[1:])
    return {fields[6] for fields in rows if len(fields) > 6}
