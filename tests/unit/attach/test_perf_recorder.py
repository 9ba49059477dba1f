"""perf beside programs that may have ended before it is started."""

import subprocess
import sys
from pathlib import Path

import pytest

from lotus.attach import perf_recorder
from lotus.attach.perf_recorder import PerfRecorder


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
