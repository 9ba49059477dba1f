"""perf beside programs that may have ended before it is started."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lotus.attach.threads import perf_recorder
from lotus.attach.threads.perf_recorder import PerfRecorder
from tests.waiting import wait_until

# A stand-in for perf, for which one process has just ended.
PERF = """#!/bin/sh
for word in "$@"; do case $word in --pid=*) pids=${word#--pid=};; esac; done
echo "$pids" >> "$0.started"
case ",$pids," in *,LOST,*) echo "Error: No such process"; exit 255;; esac
exec sleep 600
"""


def test_where_all_have_ended_perf_is_not_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    started: list[list[str]] = []
    monkeypatch.setattr(perf_recorder.shutil, "which", lambda name: "/usr/bin/perf")
    monkeypatch.setattr(perf_recorder, "sampling_event", lambda: ("cpu-clock:u", 99, ""))
    monkeypatch.setattr(perf_recorder, "TiedProcess", started.append)
    recorder = PerfRecorder([ended.pid], 1.0, tmp_path / "perf.data")
    assert recorder.problem == "all processes had ended before perf was started"
    assert not started


@pytest.mark.parametrize("seen", [True, False])
def test_where_a_process_ends_while_perf_starts_it_is_started_on_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seen: bool
) -> None:
    """`seen`: lotus knows by then that it has ended; else, at last only the main one is left."""
    with subprocess.Popen(["sleep", "600"]) as worker:
        try:
            path = tmp_path / "perf"
            path.write_text(PERF.replace("LOST", str(worker.pid)))
            path.chmod(0o755)
            monkeypatch.setattr(perf_recorder.shutil, "which", lambda name: str(path))
            monkeypatch.setattr(perf_recorder, "sampling_event", lambda: ("cpu-clock:u", 99, ""))
            main, started = os.getpid(), tmp_path / "perf.started"
            recorder = PerfRecorder([main, worker.pid], 1.0, tmp_path / "perf.data")
            alive = [main] if seen else [main, worker.pid]
            expected = [f"{main},{worker.pid}"] * (1 if seen else 3) + [str(main)]

            def starts() -> list[str]:
                recorder.watch(alive, [main])
                return started.read_text().splitlines() if started.exists() else []

            wait_until(lambda: starts() == expected)
            assert not recorder.problem
            (note,) = recorder.notes
            assert f"it was started {len(expected)} times" in note
            assert ("main processes" in note) == (not seen)
            recorder.kill()
        finally:
            worker.kill()


def test_perf_that_fails_otherwise_is_not_started_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "perf"
    path.write_text('#!/bin/sh\necho "Permission denied"\necho "$@" >> "$0.started"\nexit 1\n')
    path.chmod(0o755)
    monkeypatch.setattr(perf_recorder.shutil, "which", lambda name: str(path))
    monkeypatch.setattr(perf_recorder, "sampling_event", lambda: ("cpu-clock:u", 99, ""))
    started = tmp_path / "perf.started"
    recorder = PerfRecorder([os.getpid()], 1.0, tmp_path / "perf.data")
    wait_until(started.exists)
    for _ in range(3):
        recorder.watch([os.getpid()], [os.getpid()])
    recorder.stop()
    recorder.watch([os.getpid()], [os.getpid()])
    assert len(started.read_text().splitlines()) == 1
    assert "perf has no permission" in recorder.problem
