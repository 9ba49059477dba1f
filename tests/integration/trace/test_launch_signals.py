"""`lotus trace` and signals: sent by a process, by a terminal, and lotus killed."""

import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from tests.integration.conftest import SIGNALS
from tests.integration.launched import LOTUS, manifest, python
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("own_directory", "no_signal_is_ignored")

# Notes each signal it gets and whether lotus, its parent, sent it; ends a while after the first.
COUNTER = """
import os, signal, sys
taken = {getattr(signal, name) for name in sys.argv[2:]}
signal.pthread_sigmask(signal.SIG_BLOCK, taken)
lotus = os.getppid()
open("ready", "w").close()
lines, seconds = [], 1000.0
while (info := signal.sigtimedwait(taken, seconds)) is not None:
    sender = "lotus" if info.si_code <= 0 and info.si_pid == lotus else "others"
    lines.append(f"{signal.Signals(info.si_signo).name} from {sender}")
    seconds = 0.5
with open(sys.argv[1], "w") as file:
    file.write(", ".join(lines))
os._exit(7)
"""


def counter(tmp_path: Path) -> list[str]:
    """Return a command that notes its signals in `tmp_path / "got"`."""
    return [*python(tmp_path, COUNTER), str(tmp_path / "got"), *SIGNALS]


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_sent_to_lotus_alone_reaches_the_program_once(name: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*LOTUS, "trace", "-q", "-o", "run", "--", *counter(tmp_path)], start_new_session=True
    )
    wait_until(Path("ready").exists, process)
    process.send_signal(getattr(signal, name))
    assert process.wait() == 7
    assert (tmp_path / "got").read_text() == f"{name} from lotus"


class Terminal:
    """A command on a terminal of its own, which is its controlling terminal."""

    def __init__(self, command: list[str]) -> None:
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.execv(command[0], command)

    def wait_for(self, text: bytes) -> bytes:
        seen = b""
        while text not in seen:
            seen += os.read(self.master, 1000)
        return seen

    def end(self) -> int:
        """Return the exit code, or the negative number of a signal."""
        seen = True
        while seen:
            try:
                seen = bool(os.read(self.master, 1000))
            except OSError:
                break
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_a_ctrl_c_of_the_terminal_is_not_doubled(tmp_path: Path) -> None:
    terminal = Terminal([*LOTUS, "trace", "-o", "run", "--", *counter(tmp_path)])
    wait_until(Path("ready").exists, terminal.pid)
    os.write(terminal.master, b"\x03")
    assert terminal.end() == 7
    assert (tmp_path / "got").read_text() == "SIGINT from others"
    assert manifest()["exit_code"] == 7


def test_a_program_that_dies_of_ctrl_c_lets_lotus_die_of_it(tmp_path: Path) -> None:
    command = python(
        tmp_path,
        "import sys, time\n"
        "assert sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()\n"
        "print('ready', flush=True)\n"
        "time.sleep(1000)\n",
    )
    terminal = Terminal([*LOTUS, "trace", "-o", "run", "--", *command])
    terminal.wait_for(b"ready")
    os.write(terminal.master, b"\x03")
    seen = terminal.wait_for(b"nothing to report")
    assert b"KeyboardInterrupt" in seen
    assert terminal.end() == -signal.SIGINT
    assert (manifest()["state"], manifest()["signal"]) == ("ended", signal.SIGINT)


def test_a_terminal_made_for_lotus_that_hangs_up_tells_the_program(tmp_path: Path) -> None:
    # The kernel tells the leader of the session only, and that is lotus.
    terminal = Terminal([*LOTUS, "trace", "-o", "run", "--", *counter(tmp_path)])
    wait_until(Path("ready").exists, terminal.pid)
    os.close(terminal.master)
    status = os.waitpid(terminal.pid, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 7
    assert (tmp_path / "got").read_text() == "SIGHUP from lotus"


def test_a_shell_that_passes_a_hangup_on_does_not_double_it(tmp_path: Path) -> None:
    words = [*LOTUS, "trace", "-o", "run", "--", *counter(tmp_path)]
    terminal = Terminal(["/bin/bash", "--norc", "--noediting", "-i"])
    os.write(terminal.master, " ".join(f"'{word}'" for word in words).encode() + b"\n")
    wait_until(Path("ready").exists, terminal.pid)
    os.close(terminal.master)
    os.waitpid(terminal.pid, 0)
    wait_until(lambda: (tmp_path / "got").exists() and manifest()["state"] != "running")
    got = (tmp_path / "got").read_text()
    assert "SIGHUP from others" in got
    assert "from lotus" not in got


def test_the_program_outlives_lotus_killed(tmp_path: Path) -> None:
    held = "while ! test -e killed; do sleep 0.01; done"
    script = f"echo ready; {held}; echo still here > got; echo and writing"
    process = subprocess.Popen(
        [*LOTUS, "trace", "-o", "run", "--", "sh", "-c", script], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.kill()
    assert process.wait() == -signal.SIGKILL
    Path("killed").touch()
    assert process.stdout.read() == b"and writing\n"
    process.stdout.close()
    assert (tmp_path / "got").read_text() == "still here\n"
    assert manifest()["state"] == "running"
