"""`lotus attach` on programs that hang, that end meanwhile, and on what they leave behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lotus.attach.stacks import stack_recorder
from lotus.recording.looks.blocked_reason import BlockedReasons
from tests.integration.attach.attaching import (
    PROGRAMS,
    attach,
    children,
    is_py_spy,
    running,
    sleeping,
)
from tests.integration.launched import LOTUS
from tests.waiting import wait_until

HANGING = [sys.executable, PROGRAMS / "waits/hanging.py"]
LOCK = "Locked.__getitem__ (hanging.py:"
pytestmark = pytest.mark.skipif(bool(stack_recorder.find()[1]), reason="py-spy is needed")


def hang_words(said: str) -> list[str]:
    """What is said of where threads stand, without columns."""
    assert "NOTHING MOVES (sampled)" in said
    assert "INPUT-BOUND" not in said
    lines = said.partition("Where the threads stand")[2].partition("\n\n")[0].splitlines()
    return [" ".join(line.split()) for line in lines[2:]]


def test_a_program_in_which_all_workers_wait_for_a_lock(tmp_path: Path) -> None:
    with running(*HANGING, "0") as program:
        wait_until(lambda: len(children(program.pid)) == 2, program)
        done = attach(str(program.pid), "--seconds", "5", "-o", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    main, *workers = hang_words(done.stdout)
    assert re.search(r"main waits for the next batch \(hanging.py:\d+\)", main)
    assert len(workers) == 2
    assert all(LOCK in line and "shared-lock" in line for line in workers)
    assert f"py-spy dump --native --pid {program.pid}" in " ".join(done.stdout.split())


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[str], str]]:
    """(workers that still hang, what was said) of a program that moved, hung and was killed."""
    with running(*HANGING, "1200") as program:
        wait_until(lambda: len(children(program.pid)) == 2, program)
        workers = children(program.pid)
        run = tmp_path_factory.mktemp("killed") / "run"
        words = [*LOTUS, "attach", str(program.pid), "--seconds", "600", "-o", str(run)]
        watcher = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        wait_until(lambda: any(map(is_py_spy, children(watcher.pid))), watcher)
        _wait_for_hang(workers)
        os.kill(program.pid, signal.SIGKILL)
        program.wait()
        said = watcher.communicate()[0]
        assert watcher.returncode == 0
        yield workers, said


def _wait_for_hang(workers: list[str]) -> None:
    """Wait until all workers have stood at a lock for twelve seconds."""
    reasons, since = BlockedReasons(), time.monotonic()
    while time.monotonic() - since < 12:
        if {reasons.look(int(pid))[0] for pid in workers} != {"shared-lock"}:
            since = time.monotonic()
        time.sleep(0.1)


def test_a_program_that_hangs_and_is_killed(killed: tuple[list[str], str]) -> None:
    workers, said = killed
    assert re.search(r"Nothing moved in the (last )?\d", " ".join(said.split()))
    assert sum(LOCK in line for line in hang_words(said)) == 2
    assert f"end what is left with: kill {' '.join(workers)}" in " ".join(said.split())
    assert "The program ended after " in said


def test_workers_without_a_program_are_none(killed: tuple[list[str], str], tmp_path: Path) -> None:
    workers, _ = killed
    done = attach(workers[0])
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"process {workers[0]} trains nothing. " in done.stderr
    assert set(workers) <= set(done.stderr.partition("kill ")[2].split())
    with running(*sleeping(1_000_000)) as program:
        wait_until(lambda: len(children(program.pid)) == 2, program)
        words = ["--seconds", "2", "--json", "-o", str(tmp_path / "run")]
        done = attach(str(program.pid), *words)
    (left,) = (text for text in json.loads(done.stdout)["missing"] if "left over" in text)
    assert set(workers) <= set(left.partition("kill ")[2].split())


def test_a_program_that_ends_at_once_gets_one_line(tmp_path: Path) -> None:
    with running(*sleeping(1_000_000)) as program:
        wait_until(lambda: len(children(program.pid)) == 2, program)
        words = [*LOTUS, "attach", str(program.pid), "--seconds", "600"]
        watcher = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
        )
        wait_until(lambda: any(map(is_py_spy, children(watcher.pid))), watcher)
        beside = [pid for pid in children(watcher.pid) if is_py_spy(pid)]
        os.killpg(program.pid, signal.SIGKILL)
        program.wait()
        said, problem = watcher.communicate()
    assert not any(map(is_py_spy, beside))
    if watcher.returncode == 0:  # a machine that stands still: it was killed seconds later
        assert "The program ended after " in said
        return
    assert (watcher.returncode, problem.count("\n")) == (2, 1), problem
    assert f"process {program.pid} ended " in problem
    assert "lotus trace -- " in problem
