"""A program with recorders beside it, started below its command line, and what they left."""

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.launched import manifest

needs_perf = pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not installed")

# Arguments: the perf to run, "py-spy" to have that too, and the command.
DRIVER = """
import os, sys
from lotus.recording import launcher, perf_sidecar, traced_command
from lotus.format.manifest import TraceSettings
from lotus.recording.perf_sidecar import Perf
from lotus.recording.py_spy_sidecar import PySpy
from lotus.common.terminal.stderr import say
from native_map.recording.perf_command import Sampling
from pathlib import Path
perf, spy, *command = sys.argv[1:]
perf_sidecar.ATTACH_S = float(os.environ.get("ATTACH_S", perf_sidecar.ATTACH_S))
recorders = [Perf(Sampling(("cpu-clock",), 499), perf, say)] if perf else []
class Broken:
    name = "broken"
    def __getattr__(self, name):
        return lambda *words: 1 / 0 if name == BREAKS else {}
    def watch(self):
        open("watched", "w").close()
        return 1 / 0 if BREAKS == "watch" else None
BREAKS = perf.partition("=")[2]
recorders = [Broken()] if BREAKS else recorders
recorders += [PySpy(py_spy=spy, say=say, slice_s=2)] if spy else []

try:
    _, outcome = traced_command.trace(command, Path("run"), TraceSettings(), sidecars=recorders)
except launcher.CommandStartError as error:
    say(f"lotus: {error}")
    sys.exit(error.exit_code)
sys.exit(launcher.end_as(outcome))
"""


def words(*command: str | Path, perf: str = "perf", spy: str = "") -> list[str]:
    return [sys.executable, "-c", DRIVER, perf, spy, *map(str, command)]


def trace(
    *command: str | Path, perf: str = "perf", spy: str = "", **kwargs: Any
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(words(*command, perf=perf, spy=spy), **{"capture_output": True, **kwargs})


def note(name: str = "perf") -> dict[str, Any]:
    return manifest()["recorders"][name]  # type: ignore[no-any-return]


def samples() -> "Counter[int]":
    """Return how many samples of each process `perf script` finds in the file."""
    script = ["perf", "script", "-i", "run/perf.data", "-F", "pid,tid"]
    out = subprocess.run(script, check=True, capture_output=True, text=True).stdout
    return Counter(int(line.split("/")[0]) for line in out.splitlines())


def executable(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


BUSY = """
import time
until = time.process_time() + {seconds}
while time.process_time() < until:
    for number in range(20_000):
        pass
"""
