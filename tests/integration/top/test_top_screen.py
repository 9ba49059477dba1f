"""`lotus top` on a terminal, and `lotus trace --live` on that of the program."""

import os
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.integration.conftest import LOTUS, PYTHON, ROOT, environment
from tests.integration.top.watched import PROGRAM, Start, Terminal, taken, training, until
from tests.launching import SMALL_TORCH

pytestmark = pytest.mark.usefixtures("torch")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "R"


@pytest.mark.parametrize("how", ["q", "\x03", "SIGTERM"])
def test_the_screen_is_left_as_it_was(start: Start, run: Path, how: str) -> None:
    process = start(2)
    until(run, lambda view: taken(view, 5), process)
    terminal = Terminal([*LOTUS, "top", "--interval", "0.2", str(run)])
    terminal.until("samples/s")
    terminal.until("worker 1")
    if how == "SIGTERM":
        terminal.process.terminate()
    else:
        os.write(terminal.master, how.encode())
    assert terminal.end() == 0
    assert "\x1b[?1049h" in terminal.seen
    assert terminal.seen.rindex("\x1b[?1049l") > terminal.seen.rindex("\x1b[?1049h")
    assert terminal.seen.rindex("\x1b[?25h") > terminal.seen.rindex("\x1b[?25l")
    assert process.poll() is None


def test_the_screen_waits_for_a_run_and_tells_its_end(start: Start, run: Path) -> None:
    terminal = Terminal([*LOTUS, "top", "--interval", "0.2", str(run)], columns=60)
    terminal.until("no run here yet")
    process = start(0, most=4)
    terminal.until("lotus report")
    process.wait()
    os.write(terminal.master, b"q")
    assert terminal.end() == 0
    assert "lotus report" in terminal.seen[terminal.seen.rindex("\x1b[?1049l") :]


def test_the_screen_comes_back_after_a_suspension(start: Start, run: Path) -> None:
    process = start(2)
    until(run, lambda view: taken(view, 5), process)
    terminal = Terminal([*LOTUS, "top", "--interval", "0.2", str(run)])
    terminal.until("samples/s")
    os.write(terminal.master, b"\x1a")
    status = Path(f"/proc/{terminal.process.pid}/status")
    terminal.read_until(lambda: re.search(r"State:\s+T", status.read_text()))
    assert termios.tcgetattr(terminal.slave) == terminal.modes
    terminal.seen = ""
    os.kill(terminal.process.pid, signal.SIGCONT)
    # What it had written before may still be on its way.
    terminal.until("\x1b[?1049h")
    terminal.until("samples/s")
    os.write(terminal.master, b"q")
    assert terminal.end() == 0


def test_live_lines_stand_among_those_of_the_program(run: Path, tmp_path: Path) -> None:
    program = tmp_path / "training.py"
    # It trains until the line was seen, however late that comes on a busy machine.
    printed = '        print("batch", number, flush=True)\n'
    assert printed in PROGRAM
    seen = f"        if __import__('os').path.exists({str(tmp_path / 'seen')!r}): break\n"
    code = PROGRAM.replace(printed, printed + seen)
    code += "    print('all', number + 1); print('unfinished', end='', flush=True)\n"
    code += (
        f"    while not __import__('os').path.exists({str(tmp_path / 'go')!r}): time.sleep(0.1)\n"
    )
    code += "    sys.exit(7)\n"
    program.write_text(code)
    command = [*LOTUS, "trace", "--live", "-o", str(run), "--", PYTHON, str(program)]
    terminal = Terminal([*command, "2", "-1", "", "0.05", "1000000"])
    terminal.until(f"lotus top {run}")
    terminal.until("samples/s, waits")
    (tmp_path / "seen").touch()
    terminal.until("unfinished")
    (tmp_path / "go").touch()
    assert terminal.end() == 7
    shown = terminal.seen.replace("\r\n", "\n")
    lines = [line.split("\r")[-1] for line in shown.split("\n")]
    count = next(int(line.removeprefix("all ")) for line in lines if line.startswith("all "))
    assert [line for line in lines if line.startswith("batch ")] == [
        f"batch {number}" for number in range(count)
    ]
    status = next(line for line in lines if "samples/s, waits" in line)
    assert re.fullmatch(r"lotus: \d[\d.,]* samples/s, waits .*", status)
    assert shown.rindex("next: lotus report") > shown.rindex("unfinished")


def test_live_says_a_stop_once_and_passes_signals_on(run: Path, tmp_path: Path) -> None:
    command = [*LOTUS, "trace", "--live", "-q", "-o", str(run), "--", PYTHON]
    command += [str(training(tmp_path))]
    terminal = Terminal([*command, "2", "17", "sleep", "0.001", "1000"])
    terminal.until("HUNG: nothing has moved")
    terminal.until("next: py-spy dump --pid")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.end() == -signal.SIGTERM
    assert terminal.seen.count("HUNG") == 1


def test_live_into_a_file_says_where_to_look(run: Path, tmp_path: Path) -> None:
    command = [*LOTUS, "trace", "--live", "-q", "-o", str(run), "--", PYTHON]
    command += [str(training(tmp_path)), "0", "-1", "", "0", "5"]
    own = environment(SMALL_TORCH)
    done = subprocess.run(command, capture_output=True, text=True, env=own, check=True)
    assert done.stdout.split("\n")[:5] == [f"batch {number}" for number in range(5)]
    assert done.stderr in ("", f"lotus: recording into {run}; lotus top {run} shows more\n")


def rendered(text: str, columns: int) -> list[str]:
    """The lines that a terminal shows: it wraps when a character comes after the last column."""
    rows, at = [[" "] * columns], 0
    for character in text:
        if character == "\r":
            at = 0
        elif character == "\n":
            rows.append([" "] * columns)
        else:
            if at == columns:
                rows.append([" "] * columns)
                at = 0
            rows[-1][at] = character
            at += 1
    return ["".join(row).rstrip() for row in rows]


@pytest.mark.parametrize(
    ("begun", "expected"),
    [
        ("", ["lotus: a line", "after"]),
        ("a full line\\n", ["a full line", "lotus: a line", "after"]),
        ("half a bar", ["half a bar", "lotus: a line", "after"]),
        ("x" * 30, ["x" * 30, "lotus: a line", "after"]),
    ],
)
def test_a_line_covers_nothing_and_leaves_no_gap(begun: str, expected: list[str]) -> None:
    code = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from lotus.reporters.live.ticker import Ticker
sys.stderr.write("{begun}"); sys.stderr.flush()
assert Ticker(Path("R"))._say("lotus: a line")
print("after", end="", flush=True)
"""
    terminal = Terminal([sys.executable, "-c", code], columns=30)
    assert terminal.end() == 0, terminal.seen
    assert rendered(terminal.seen, 30) == expected


def test_no_line_where_the_program_draws_its_screen() -> None:
    code = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
import termios, tty
from pathlib import Path
from lotus.reporters.live.ticker import Ticker
modes = termios.tcgetattr(2)
tty.setcbreak(2)
assert not Ticker(Path("R"))._say("lotus: a line")
termios.tcsetattr(2, termios.TCSANOW, modes)
"""
    terminal = Terminal([sys.executable, "-c", code])
    assert terminal.end() == 0, terminal.seen
    assert terminal.seen == ""
