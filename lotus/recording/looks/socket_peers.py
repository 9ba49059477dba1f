"""The peers of a process's connections, from the lists of connections of its network."""

import re
import sys
import time
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address

_MOST_BYTES = 1 << 20  # of a list
_SHARE = 0.001  # of a core, for reading lists
_LISTS = ("tcp", "tcp6")
_INODE, _PEER = 9, 2  # columns


class SocketPeers:
    """Peers by inode. A program may connect anew for each sample, so reading lists has a limit."""

    def __init__(self, proc: str = "/proc", clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._clock = clock
        self._next = -1.0

    def of(self, pid: int, inode: bytes) -> str | None:
        """Return the peer of a process's socket as address:port, "" if there is none.

        None: not known, as lists were just read. A later look at the same socket may tell.
        """
        now = self._clock()
        if now < self._next:
            return None
        begun = time.thread_time_ns()
        found = self._found(pid, inode)
        # The kernel walks all of its table of connections, which takes milliseconds if large.
        self._next = now + (time.thread_time_ns() - begun) / 1e9 / _SHARE
        return found

    def _found(self, pid: int, inode: bytes) -> str:
        for name in _LISTS:
            try:
                with open(f"{self._proc}/{pid}/net/{name}", "rb") as file:
                    text = file.read(_MOST_BYTES)
            except OSError:
                continue
            # Not all lines are split: there may be thousands.
            for found in re.finditer(rb"[^\n]* " + re.escape(inode) + rb" [^\n]*", text):
                fields = found[0].split()
                if len(fields) > _INODE and fields[_INODE] == inode:
                    return _peer(fields[_PEER])
        return ""


def _peer(text: bytes) -> str:
    """Return an address and a port as they are usually written; "" for a socket that listens."""
    try:
        address, port = (bytes.fromhex(part.decode()) for part in text.split(b":"))
    except ValueError:
        return ""
    number = int.from_bytes(port, "big")
    # Of words of four bytes, each in the order of the machine.
    words = [address[at : at + 4] for at in range(0, len(address), 4)]
    packed = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    if not number or len(packed) not in (4, 16):
        return ""
    if len(packed) == 4:
        return f"{IPv4Address(packed)}:{number}"
    whole = IPv6Address(packed)
    return f"{whole.ipv4_mapped}:{number}" if whole.ipv4_mapped else f"[{whole}]:{number}"
