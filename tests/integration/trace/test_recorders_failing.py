"""What may happen to perf beside a program: the program runs as without, and a line says so."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.integration.launched import manifest, messages_of, python
from tests.integration.trace.beside import BUSY, executable, needs_perf, note, samples, trace, words
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("own_directory", "lotus_on_path")


def processes_named(text: str) -> list[int]:
    """Return the processes whose command line holds a text."""
    pids = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and text in (entry / "cmdline").read_text():
                pids.append(int(entry.name))
        except OSError:
            continue
    return pids


@pytest.mark.parametrize("method", ["start", "watch", "stop", "note"])
def test_a_recorder_with_a_mistake_in_it_costs_no_run(method: str) -> None:
    # A program that goes on until it is watched; after another mistake it may never be.
    waits = "until [ -e watched ]; do sleep 0.01; done; " if method == "watch" else ""
    run = trace("sh", "-c", f"echo ran; {waits}exit 3", perf=f"broken={method}")
    assert (run.returncode, run.stdout, run.stderr) == (3, b"ran\n", b"")
    assert manifest()["exit_code"] == 3
    assert note("broken")["problem"] == "ZeroDivisionError: division by zero"


def test_a_missing_perf_is_a_line() -> None:
    run = trace("sh", "-c", "echo ran; exit 3", perf="no-such-perf")
    assert (run.returncode, run.stdout) == (3, b"ran\n")
    (line,) = messages_of(run)
    assert "no perf.data" in line
    assert "install" in line
    assert "install" in note()["problem"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 'Error: Access to performance monitoring is limited' >&2; exit 255", "sysctl"),
        ("exit 1", "without a message"),
        ("kill -9 $$", "without a message"),
        ("exec >/dev/null 2>&1; exit 129", "without a message"),
    ],
)
def test_a_perf_that_fails_is_a_line(script: str, expected: str, tmp_path: Path) -> None:
    perf = executable(tmp_path / "perf", f"#!/bin/sh\n{script}\n")
    run = trace("sh", "-c", "echo ran; exit 3", perf=perf)
    assert (run.returncode, run.stdout) == (3, b"ran\n")
    (line,) = messages_of(run)
    assert expected in line


def test_a_perf_that_hangs_holds_the_program_no_longer_than_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By its words it can be found, also where it was ended before it did anything.
    mark = tmp_path / "perf"
    perf = executable(mark, f"#!/bin/sh\nexec tail -f /dev/null {mark} >/dev/null\n")
    monkeypatch.setenv("ATTACH_S", "2")
    run = trace("sh", "-c", "echo ran; exit 3", perf=perf)
    assert (run.returncode, run.stdout) == (3, b"ran\n")
    (line,) = messages_of(run)
    assert "did not attach within 2 s" in line
    assert processes_named(str(mark)) == []


@needs_perf
def test_a_perf_without_control_is_used_all_the_same(tmp_path: Path) -> None:
    real = shutil.which("perf")
    script = (
        'case "$*" in *--control*) '
        'echo "  Error: unknown option \\`control=fd:3,4\'" >&2; exit 129;; esac\n'
        f'exec {real} "$@"\n'
    )
    perf = executable(tmp_path / "perf", f"#!/bin/sh\n{script}")
    run = trace(*python(tmp_path, BUSY.format(seconds=0.5)), perf=perf)
    assert (run.returncode, messages_of(run)) == (0, [])
    assert samples().total() > 0
    assert not any("--control" in word for word in note()["command"])


@needs_perf
def test_a_perf_killed_midway_leaves_the_program_alone(tmp_path: Path) -> None:
    process = subprocess.Popen(
        words("sh", "-c", "touch ready; read line; exit 3"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_until(Path("ready").exists, process)
    for pid in processes_named(f"--output={tmp_path / 'run' / 'perf.data'}"):
        os.kill(pid, signal.SIGKILL)
    assert process.stderr is not None
    line = process.stderr.readline().decode()  # said at once, not hours later
    assert "SIGKILL" in line
    assert process.communicate(b"\n") == (None, b"")
    assert process.returncode == 3
    assert note()["signal"] == signal.SIGKILL
    assert "SIGKILL" in note()["problem"]


@needs_perf
def test_killing_lotus_leaves_the_program_and_a_whole_file(tmp_path: Path) -> None:
    code = "open('ready', 'w').close(); input()" + BUSY.format(seconds=0.5) + "print('done')\n"
    process = subprocess.Popen(
        words(*python(tmp_path, code)), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    wait_until(Path("ready").exists, process)
    process.kill()
    process.wait()
    assert process.communicate(b"\n")[0] == b"done\n"
    wait_until(lambda: not processes_named(f"--output={tmp_path / 'run' / 'perf.data'}"))
    assert samples().total() > 0  # of what the program did after lotus
    assert manifest()["state"] == "running"
    assert note()["ready_ns"]


def test_killing_lotus_while_it_holds_the_program_lets_it_go(tmp_path: Path) -> None:
    perf = executable(tmp_path / "perf", "#!/bin/sh\ntouch held\nexec sleep 3\n")
    process = subprocess.Popen(
        words("sh", "-c", "echo ran", perf=perf), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    wait_until(Path("held").exists, process)
    process.kill()
    assert process.communicate()[0] == b"ran\n"


@needs_perf
def test_a_full_disk_costs_the_samples_only(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    size = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "none", str(run)]
    if os.getuid() or subprocess.run(size, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here")
    try:
        fill = "try:\n    open('run/rest', 'wb', 0).write(bytes(1 << 20))\nexcept OSError: pass\n"
        end = "print('done')\nraise SystemExit(3)\n"
        command = python(tmp_path, fill + BUSY.format(seconds=3) + end)
        done = trace(*command)
        assert (done.returncode, done.stdout) == (3, b"done\n")
        (line,) = messages_of(done)
        assert "perf.data ends early: the disk is full" in line
    finally:
        subprocess.run(["umount", "-l", str(run)], check=True)
