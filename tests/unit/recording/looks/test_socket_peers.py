"""Peers of connections, by the lists of the kernel."""

import socket
from pathlib import Path

from lotus.recording.looks.socket_peers import SocketPeers

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  inode"
REST = "00000000:00000000 00:00000000 00000000  1000        0"


def line(local: str, peer: str, inode: int, state: str = "01") -> str:
    return f"   0: {local} {peer} {state} {REST} {inode} 1 0000000000000000 20 4 30 10 -1"


def word(address: str) -> str:
    """An address as the kernel of this machine writes it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    packed = memoryview(socket.inet_pton(family, address)).cast("I")
    return "".join(f"{part:08X}" for part in packed)


def stand_in(folder: Path, tcp: list[str], tcp6: list[str] | None = None) -> None:
    (folder / "7" / "net").mkdir(parents=True, exist_ok=True)
    (folder / "7" / "net" / "tcp").write_text("\n".join([HEAD, *tcp]) + "\n")
    if tcp6 is not None:
        (folder / "7" / "net" / "tcp6").write_text("\n".join([HEAD, *tcp6]) + "\n")


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def of(peers: SocketPeers, clock: Clock, inode: int) -> str | None:
    clock.seconds += 1000
    return peers.of(7, str(inode).encode())


def test_peers_by_inode(tmp_path: Path) -> None:
    mine = f"{word('127.0.0.1')}:B000"
    listening = line(f"{word('0.0.0.0')}:0050", f"{word('0.0.0.0')}:0000", 10, "0A")
    four = line(mine, f"{word('10.1.2.3')}:1F90", 11)
    # 12 stands in another column, too.
    other = line(mine, f"{word('10.1.2.4')}:01BB", 13).replace("1000 ", "12 ", 1)
    six = line(f"{word('::1')}:B000", f"{word('2001:db8::1')}:01BB", 12)
    mapped = line(f"{word('::1')}:B000", f"{word('::ffff:10.0.0.9')}:0016", 14)
    stand_in(tmp_path, [listening, four, other], [six, mapped])
    clock = Clock()
    peers = SocketPeers(str(tmp_path), clock)
    assert [of(peers, clock, inode) for inode in range(10, 16)] == [
        *("", "10.1.2.3:8080", "[2001:db8::1]:443", "10.1.2.4:443", "10.0.0.9:22", ""),
    ]


def test_lines_that_are_damaged_have_no_peer(tmp_path: Path) -> None:
    lines = [
        line("x", peer, number) for number, peer in enumerate(["zz:1", ":", "0A:0050", "1"], 20)
    ]
    stand_in(tmp_path, lines)
    clock = Clock()
    peers = SocketPeers(str(tmp_path), clock)
    assert [of(peers, clock, inode) for inode in range(20, 24)] == [""] * 4


def test_lists_are_read_for_a_small_share_of_the_time(tmp_path: Path) -> None:
    """A program that connects anew for each sample has new sockets at each look."""
    mine, clock = f"{word('127.0.0.1')}:B000", Clock()
    stand_in(tmp_path, [line(mine, f"{word('10.1.2.3')}:0050", inode) for inode in (11, 12)])
    peers = SocketPeers(str(tmp_path), clock)
    assert peers.of(7, b"11") == "10.1.2.3:80"
    assert peers.of(7, b"12") is None
    assert of(peers, clock, 12) == "10.1.2.3:80"


def test_without_lists_there_is_no_peer(tmp_path: Path) -> None:
    assert SocketPeers(str(tmp_path)).of(7, b"11") == ""
