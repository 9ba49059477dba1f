"""Processes whose parent has ended are known by the environment that they inherited."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lotus.recording.readings.kept_children import KeptChildren
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
    assert Orphans(f"LOTUS_RUN={tmp_path}").find() == [job]
    assert Orphans(f"LOTUS_RUN={tmp_path}/other").find() == []


def test_what_it_and_its_children_compute_counts_once(job: int, tmp_path: Path) -> None:
    kept = KeptChildren(Orphans(f"LOTUS_RUN={tmp_path}"))
    mains = [(os.getpid(), -1), (os.getppid(), -1), (os.getpid(), 0)]

    def used() -> list[int]:
        for main in mains:
            kept.read(main, {os.getpid()})
        return [kept.cpu_ns(main, ()) for main in mains]

    wait_until(lambda: used()[0] > 50_000_000, pause_s=0.05)
    assert job in kept._used[mains[0]]
    assert not any(job in kept._used[main] for main in mains[1:])


def test_a_child_of_a_process_that_runs_is_none(tmp_path: Path) -> None:
    environ = {**os.environ, "LOTUS_RUN": str(tmp_path)}
    with subprocess.Popen(["sleep", "100"], env=environ) as process:
        try:
            assert Orphans(f"LOTUS_RUN={tmp_path}").find() == []
        finally:
            process.kill()
