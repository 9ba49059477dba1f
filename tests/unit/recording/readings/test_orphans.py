"""Processes whose parent has ended are known by the environment that they inherited."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lotus.recording.readings.kept_children import KeptChildren, _children
from lotus.recording.readings.orphans import Orphans
from tests.waiting import has_content, wait_until

# A shell that leaves a job in the background and ends; the job starts another process.
_JOB = "import os, subprocess, sys; print(os.getpid(), file=open(sys.argv[1], 'w'), flush=True); "
_JOB += "subprocess.run([sys.executable, '-c', 'while True: pass'])"


@pytest.fixture
def job(tmp_path: Path) -> Iterator[int]:
    """The pid of such a job, in a process group of its own."""
    written = tmp_path / "pid"
    command = ["sh", "-c", '"$@" &', "sh", sys.executable, "-c", _JOB, str(written)]
    environ = {**os.environ, "LOTUS_RUN": str(tmp_path)}
    shell = subprocess.Popen(command, env=environ, process_group=0)
    assert shell.wait() == 0
    wait_until(lambda: has_content(written), pause_s=0.01)
    try:
        yield int(written.read_text())
    finally:
        os.killpg(shell.pid, signal.SIGKILL)


def test_a_job_that_a_shell_left_behind_is_found(job: int, tmp_path: Path) -> None:
    assert job in Orphans(f"LOTUS_RUN={tmp_path}").find()
    assert Orphans(f"LOTUS_RUN={tmp_path}/other").find() == []


def test_what_it_and_its_children_compute_counts_once(job: int, tmp_path: Path) -> None:
    kept = KeptChildren(Orphans(f"LOTUS_RUN={tmp_path}"))
    mains = [(os.getpid(), -1), (1 << 22, -1), (os.getpid(), 0)]  # of the second, no such process

    def used() -> list[int]:
        for main in mains:
            kept.read(main, {os.getpid()})
        return [kept.cpu_ns(main, ()) for main in mains]

    wait_until(lambda: used()[0] > 50_000_000, pause_s=0.05)
    assert job in kept._used[mains[0]]
    assert not any(job in kept._used[main] for main in mains[1:])


def test_the_program_itself_is_none_of_those_that_compute_beside_it(tmp_path: Path) -> None:
    environ = {**os.environ, "LOTUS_RUN": str(tmp_path)}
    inner = [sys.executable, "-c", "import time; time.sleep(1000)"]
    with subprocess.Popen(inner, env=environ) as process:
        try:
            kept = KeptChildren(Orphans(f"LOTUS_RUN={tmp_path}"))
            kept.read((os.getpid(), -1), {process.pid})
            assert process.pid not in kept._used[os.getpid(), -1]
        finally:
            process.kill()


def test_a_child_of_the_program_is_none_whatever_its_parent_calls_itself(tmp_path: Path) -> None:
    """GIVEN a parent that has not the variable, as where a title overwrites its environment."""
    child = (
        "import subprocess, sys; subprocess.run(['sleep', '1000'], env={'LOTUS_RUN': sys.argv[1]})"
    )
    environ = {name: text for name, text in os.environ.items() if name != "LOTUS_RUN"}
    command = [sys.executable, "-c", child, str(tmp_path)]
    with subprocess.Popen(command, env=environ, process_group=0) as process:
        try:
            wait_until(lambda: _children(process.pid), process, pause_s=0.01)
            assert Orphans(f"LOTUS_RUN={tmp_path}").find() == []
        finally:
            os.killpg(process.pid, signal.SIGKILL)
