"""The reason for which a thread is blocked, by the system call that the kernel reports, and where.

The place is a file's path or the peer of a connection, where the call takes a descriptor.
"""

import os
from collections.abc import Callable

from lotus.common.machine.kernel_files import beginning
from lotus.inside.common import process_stat
from lotus.inside.common.process_stat import ProcessStat
from lotus.recording.looks.socket_peers import SocketPeers

_PRIVATE = 128  # FUTEX_PRIVATE_FLAG: a lock of one process
_FUTEX, _BY_DESCRIPTOR, _SELECT = "futex", "descriptor", "select"
_OF_FILE, _OF_DIRECTORY = "of-file", "of-directory"  # by a descriptor of one
# System calls by number; all others are "other".
_CALLS = {
    "x86_64": {
        _FUTEX: (202, 449),
        _BY_DESCRIPTOR: (0, 1, 17, 18, 19, 20, 40, 295, 327),  # read, write and their kin
        "sleep": (35, 230),
        "socket": (42, 43, 44, 45, 46, 47, 288, 299, 307),
        _SELECT: (23, 270),
        "events": (7, 232, 271, 281),  # poll, epoll_wait
        _OF_FILE: (5, 74, 75),  # fstat, fsync
        _OF_DIRECTORY: (217,),  # getdents
        "file": (2, 4, 6, 257, 262, 332),  # open, stat: of a path
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
        _OF_FILE: (80, 82, 83),
        _OF_DIRECTORY: (61,),
        "file": (56, 79, 291),
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
_MOST_SOCKETS = 4096  # whose kind and peer are kept
_MOST_BYTES = 1 << 20  # of the list of local sockets
_DELETED = " (deleted)"  # what the kernel adds to the path of a file that has no name any more
_MEMORY = "/memfd:"  # before the name of a file that lies in no directory


class BlockedReasons:
    """Names what threads are blocked in; `problem` says why it cannot, "" where it can."""

    def __init__(
        self,
        read_file: Callable[[str], bytes] | None = None,
        with_places: bool = True,
        proc: str = "/proc",
    ) -> None:
        """`read_file`: returns the first kilobyte of a file of /proc.

        `with_places`: False where no place is needed, which takes less time.
        """
        self._read = read_file or beginning
        self._proc = proc
        machine = os.uname().machine
        calls = _CALLS.get(machine, {})
        self._kinds = {str(number): kind for kind, numbers in calls.items() for number in numbers}
        # By the target of a socket's link: reason and peer; None: not looked up yet.
        self._sockets: dict[str, tuple[str, str | None]] = {}
        self._peers = SocketPeers(proc) if with_places else None
        self.problem = "" if calls else f"system calls of {machine} are not known"
        if not self.problem and not os.path.exists("/proc/self/syscall"):
            self.problem = "this kernel does not tell in which system call a thread is"

    def look(self, pid: int) -> tuple[str, str, ProcessStat | None]:
        """Return the reason and place of a process's main thread, and the process's stat.

        The place is a path, that of a directory with "/" at its end, or a peer as address:port;
        "": none, or not known. The stat is read where the thread is blocked, else it is None.
        Raises OSError, PermissionError among them.
        """
        text = self._read(f"{self._proc}/{pid}/syscall").split()
        if not text or text[0] == b"running":
            return COMPUTING, "", None
        stat = ProcessStat(self._read(f"{self._proc}/{pid}/stat"))
        reason, place = self._reason(pid, text, stat.state)
        return reason, place, stat

    def _reason(self, pid: int, text: list[bytes], state: str) -> tuple[str, str]:
        if state in process_stat.STOPPED:
            return STOPPED, ""
        kind = self._kinds.get(text[0].decode(), "other")
        if state == "D":
            return "storage", self._path(pid, text, kind)
        if text[0] == b"-1":  # blocked, but in no system call
            return "page-fault", ""
        if kind == _FUTEX:
            private = len(text) > 2 and int(text[2], 16) & _PRIVATE
            return "lock" if private else "shared-lock", ""
        if kind == _SELECT:  # of no descriptor: so Python 3.10 sleeps
            return "events" if len(text) < 2 or int(text[1], 16) else "sleep", ""
        if kind == _BY_DESCRIPTOR:
            return self._by_target(pid, self._target(pid, text))
        if kind == "socket" and len(text) > 1:
            return self._by_target(pid, self._target(pid, text))
        if kind in (_OF_FILE, _OF_DIRECTORY):
            return "file", self._path(pid, text, kind)
        return kind, ""

    def _target(self, pid: int, text: list[bytes]) -> str:
        return os.readlink(f"{self._proc}/{pid}/fd/{int(text[1], 16)}")

    def _by_target(self, pid: int, target: str) -> tuple[str, str]:
        """Return the reason and the place of a call that takes a descriptor of this target."""
        if target.startswith("socket:["):
            known = self._sockets.get(target)
            reason, peer = known if known and known[1] is not None else self._socket(pid, target)
            return reason, peer or ""
        return ("pipe", "") if target.startswith("pipe:") else ("file", _path_in(target))

    def _socket(self, pid: int, target: str) -> tuple[str, str | None]:
        """Return a socket's reason and peer; None: its lists may not be read so soon again."""
        inode = target[len("socket:[") : -1].encode()
        if target not in self._sockets:
            if len(self._sockets) >= _MOST_SOCKETS:
                self._sockets.clear()
            # One of AF_UNIX ends in a process of this machine.
            is_local = inode in self._local_sockets(pid)
            self._sockets[target] = ("local-socket", "") if is_local else ("socket", None)
        reason, peer = self._sockets[target]
        if peer is None:
            peer = self._peers.of(pid, inode) if self._peers else ""
            self._sockets[target] = reason, peer
        return reason, peer

    def _path(self, pid: int, text: list[bytes], kind: str) -> str:
        """Return the path of the file at which a call is, if it takes a descriptor; else ""."""
        if kind not in (_BY_DESCRIPTOR, _OF_FILE, _OF_DIRECTORY) or self._peers is None:
            return ""
        try:
            path = _path_in(self._target(pid, text))
        except (OSError, IndexError, ValueError):  # the reason is known all the same
            return ""
        return f"{path}/" if kind == _OF_DIRECTORY and path else path

    def _local_sockets(self, pid: int) -> set[bytes]:
        """Return inodes of the sockets of AF_UNIX that a process can see; none if unreadable."""
        try:
            with open(f"{self._proc}/{pid}/net/unix", "rb") as file:
                lines = file.read(_MOST_BYTES).splitlines()
        except OSError:
            return set()
        rows = (line.split(None, 7) for line in lines[1:])
        return {fields[6] for fields in rows if len(fields) > 6}


def _path_in(target: str) -> str:
    """Return the path that a descriptor's link tells; "" if it is no file in a directory."""
    if not target.startswith("/") or target.startswith(_MEMORY):
        return ""
    return target.removesuffix(_DELETED)
