"""What a thread is blocked in, by the system call that it is in."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lotus.recording.looks.blocked_reason import _CALLS, BlockedReasons
from tests.waiting import wait_until

WAITS = """
import os, select, signal
signal.alarm(300)  # else a wrong answer would be waited for without end
reader, writer = os.pipe()
{call}
"""
CALLS = {
    "sleep": "select.select([], [], [], 1000)",  # as Python 3.10 sleeps
    "events": "select.select([reader], [], [], 1000)",
    "pipe": "os.read(reader, 1)",
}


@pytest.mark.skipif(bool(BlockedReasons().problem), reason="system calls are not told here")
@pytest.mark.parametrize("reason", list(CALLS))
def test_a_call_that_blocks(reason: str) -> None:
    words = [sys.executable, "-S", "-c", WAITS.format(call=CALLS[reason])]
    with subprocess.Popen(words) as program:
        reasons = BlockedReasons()
        try:
            wait_until(lambda: reasons.look(program.pid)[0] == reason, program)
        finally:
            program.kill()


CALLS_HERE = _CALLS.get(os.uname().machine, {})
FILE, PIPE, SOCKET, LOCAL = "/data/a.bin", "pipe:[5]", "socket:[11]", "socket:[12]"
TCP = " 0: 0100007F:B000 {peer}:0050 01 0:0 00:0 0 1000 0 11 1 0\n"


def stand_in(folder: Path, kind: str, target: str, state: str = "S") -> BlockedReasons:
    """/proc with a process 7 that is in a call of this kind, on its descriptor 3."""
    process = folder / "7"
    (process / "fd").mkdir(parents=True)
    (process / "net").mkdir()
    number = CALLS_HERE[kind][0] if kind else -1
    (process / "syscall").write_text(f"{number} 0x3 0x7f00 0x10 0x0 0x0 0x0 0x7ffc 0x7f01\n")
    (process / "stat").write_text(f"7 (python) {state} " + " ".join(map(str, range(50))))
    (process / "fd" / "3").symlink_to(target)
    (process / "net" / "unix").write_text("head\n0: 00000002 00000000 0 0001 03 12\n")
    peer = int.from_bytes(bytes([10, 1, 2, 3]), sys.byteorder)
    (process / "net" / "tcp").write_text("head\n" + TCP.format(peer=f"{peer:08X}"))
    return BlockedReasons(proc=str(folder))


@pytest.mark.skipif(not CALLS_HERE, reason="system calls are not known here")
@pytest.mark.parametrize(
    ("kind", "target", "state", "found"),
    [
        ("descriptor", FILE, "S", ("file", FILE)),
        ("descriptor", FILE, "D", ("storage", FILE)),
        ("descriptor", f"{FILE} (deleted)", "D", ("storage", FILE)),
        ("descriptor", PIPE, "S", ("pipe", "")),
        ("descriptor", PIPE, "D", ("storage", "")),
        ("descriptor", "anon_inode:[eventfd]", "S", ("file", "")),
        ("descriptor", "/memfd:torch (deleted)", "S", ("file", "")),
        ("descriptor", "(unreachable)/a", "S", ("file", "")),
        ("descriptor", SOCKET, "S", ("socket", "10.1.2.3:80")),
        ("socket", SOCKET, "S", ("socket", "10.1.2.3:80")),
        ("socket", "socket:[13]", "S", ("socket", "")),
        ("socket", LOCAL, "S", ("local-socket", "")),
        ("of-file", FILE, "S", ("file", FILE)),
        ("of-file", FILE, "D", ("storage", FILE)),
        ("of-directory", "/data", "D", ("storage", "/data/")),
        ("file", FILE, "S", ("file", "")),  # its path is in the memory of the process
        ("file", FILE, "D", ("storage", "")),
        ("", FILE, "D", ("storage", "")),
        ("", FILE, "S", ("page-fault", "")),
        ("descriptor", FILE, "T", ("stopped", "")),
    ],
)
def test_where_it_is_blocked(
    tmp_path: Path, kind: str, target: str, state: str, found: tuple[str, str]
) -> None:
    assert stand_in(tmp_path, kind, target, state).look(7)[:2] == found


@pytest.mark.skipif(not CALLS_HERE, reason="system calls are not known here")
def test_a_descriptor_that_was_closed_meanwhile_leaves_the_reason(tmp_path: Path) -> None:
    reasons = stand_in(tmp_path, "of-file", FILE, "D")
    (tmp_path / "7" / "fd" / "3").unlink()
    assert reasons.look(7)[:2] == ("storage", "")


@pytest.mark.skipif(not CALLS_HERE, reason="system calls are not known here")
@pytest.mark.parametrize(("state", "reason"), [("D", "storage"), ("S", "socket")])
def test_a_place_is_looked_up_only_if_wanted(tmp_path: Path, state: str, reason: str) -> None:
    stand_in(tmp_path, "descriptor", SOCKET, state)
    reasons = BlockedReasons(with_places=False, proc=str(tmp_path))
    assert reasons.look(7)[:2] == (reason, "")


@pytest.mark.skipif(not CALLS_HERE, reason="system calls are not known here")
@pytest.mark.parametrize("target", [SOCKET, LOCAL, "socket:[13]"])
def test_a_known_socket_is_not_looked_up_again(tmp_path: Path, target: str) -> None:
    reasons = stand_in(tmp_path, "socket", target)
    first = reasons.look(7)[:2]
    for name in ("tcp", "unix"):
        (tmp_path / "7" / "net" / name).write_text("head\n" + TCP.format(peer="0400000A"))
    assert reasons.look(7)[:2] == first


@pytest.mark.skipif(not CALLS_HERE, reason="system calls are not known here")
def test_a_peer_that_could_not_be_looked_up_yet_is_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons = stand_in(tmp_path, "socket", SOCKET)
    answers = iter([None, "10.1.2.3:80"])
    monkeypatch.setattr(reasons._peers, "of", lambda pid, inode: next(answers))
    places = [reasons.look(7)[:2] for _ in range(3)]
    assert places == [("socket", ""), ("socket", "10.1.2.3:80"), ("socket", "10.1.2.3:80")]
