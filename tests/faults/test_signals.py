"""Signals: those that lotus passes on, and exceptions that a handler raises in the midst of us."""

import contextlib
import os
import pty
import random
import re
import select
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.faults.conftest import WARM, without_places

PASSED_ON = ("INT", "HUP", "USR1", "USR2")


@pytest.fixture
def start(torch, lotus_command, tmp_path, programs):
    """start(*options, **kwargs): endless.py under lotus, as a process."""
    started = []

    def run(*arguments, **kwargs):
        words = [*lotus_command, "trace", "-q", "-o", str(tmp_path / "R"), "--", sys.executable]
        words += [str(programs / "endless.py"), *arguments]
        started.append(subprocess.Popen(words, start_new_session=True, **kwargs))
        return started[-1]

    yield run
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_signals_to_lotus_alone_arrive_once_at_any_moment(start, tmp_path):
    rng = random.Random(7)
    process = start("--handle", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    for _ in range(40):
        name = rng.choice(PASSED_ON)
        time.sleep(rng.random() / 50)
        process.send_signal(getattr(signal, f"SIG{name}"))
        assert process.stdout.readline() == f"got SIG{name}\n"
    process.terminate()
    out, err = process.communicate()
    assert (process.returncode, out, err) == (3, "got SIGTERM\n", "")
    import lotus

    run = lotus.load(tmp_path / "R")
    assert run.manifest["exit_code"] == 3
    assert not run.lost["what"].str.contains("fault").any()


def read(terminal):
    """All that comes from a terminal until it is closed."""
    text = b""
    with contextlib.suppress(OSError):
        while piece := os.read(terminal, 1 << 16):
            text += piece
    return text.decode(errors="backslashreplace")


@pytest.mark.parametrize("seed", range(3))
def test_ctrl_c_in_a_terminal_ends_the_program_as_without_lotus(start, tmp_path, seed):
    rng = random.Random(seed)
    terminal, theirs = pty.openpty()

    def lead():
        import fcntl
        import termios

        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    process = start(stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=lead)
    os.close(theirs)
    text = b""
    while b"ready" not in text:
        text += os.read(terminal, 1 << 10)
    time.sleep(rng.random())
    with ThreadPoolExecutor(1) as pool:
        rest = pool.submit(read, terminal)
        while process.poll() is None:
            os.write(terminal, b"\x03")  # again: Python may lose one in a callback of its own
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(20)
    assert process.returncode == -signal.SIGINT
    text = rest.result()
    os.close(terminal)
    assert re.search(r"^KeyboardInterrupt\r?$", text, re.MULTILINE)
    # Of our frames none is seen, unless it was the one in hand.
    inner = re.sub(r'  File "<lotus hook[^\n]*\n(?=KeyboardInterrupt)', "", text)
    assert "lotus" not in without_places(inner)
    import lotus

    run = lotus.load(tmp_path / "R")
    assert run.manifest["signal"] == signal.SIGINT
    assert not run.lost["what"].str.contains("fault").any()
    assert len(run.waits)


def test_a_signal_before_the_program_has_started_leaves_nobody_behind(lotus_command, tmp_path):
    def attempt(seed):
        delay = random.Random(seed).random() / 2
        read_end, write_end = os.pipe()
        words = [*lotus_command, "trace", "-o", str(tmp_path / str(seed)), "--", "sleep", "1000"]
        process = subprocess.Popen(words, pass_fds=[write_end], stderr=subprocess.DEVNULL)
        os.close(write_end)
        time.sleep(delay)
        process.terminate()
        code = process.wait()
        ended = select.select([read_end], [], [], 60)[0]  # nobody holds the other end
        os.close(read_end)
        return code, bool(ended)

    with ThreadPoolExecutor(3) as pool:
        assert set(pool.map(attempt, range(12))) == {(-signal.SIGTERM, True)}


@pytest.mark.parametrize("seed", range(2))
def test_an_exception_of_a_handler_reaches_the_program_from_the_midst_of_a_hook(pair, seed):
    plain, traced = pair("alarms.py", seed)
    assert plain.out == traced.out
    assert (traced.code, traced.err) == (0, "")
    run = traced.run
    assert any("signal handlers" in note for note in run.notes)
    # Whatever was broken off before: the last epoch is whole.
    last = run.loaders["loader"].max()
    assert len(run.samples[run.samples["loader"] == last]) == 8
    ops = run.ops[run.ops["loader"] == last]
    assert ops["operation"].value_counts().to_dict() == {"Add[0]": 8, "Add[1]": 8}


def test_an_exception_of_a_handler_is_not_taken_for_one_of_an_index(traced):
    ended = traced("index_alarm.py", python=WARM)
    assert (ended.code, ended.out, ended.err) == (0, "mine\n", "")
