"""What lives inside the traced program, under every Python that this machine has.

torch is not there for each of them: programs/small_torch stands for it, with its names.
"""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.conftest import LOTUS, Start, Traced, environment

PROGRAM = Path(__file__).resolve().parent / "programs" / "interpreted.py"
METHODS = ["fork", "spawn", "forkserver"]
VERSIONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]


def interpreter(version: str) -> str | None:
    """A Python of this version: on PATH, or among pyenv's."""
    name = f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    candidates = [shutil.which(name, path=folder) for folder in os.get_exec_path()]
    candidates += [str(path) for path in sorted(pyenv.glob(f"versions/{version}.*/bin/{name}"))]
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        candidates.insert(0, sys.executable)
    for python in filter(None, candidates):
        probe = subprocess.run(
            [python, "-c", "import ctypes, multiprocessing, sys; print(sys.version)"],
            env=environment({}),
            capture_output=True,
            text=True,
            check=False,
        )
        if probe.returncode == 0 and probe.stdout.startswith(version):
            return python  # pyenv's shims are there for versions that are not chosen
    return None


@pytest.mark.parametrize("hooks", ["", "python"], ids=["as built", "python"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_program_is_recorded_and_does_the_same(tmp_path: Path, version: str, hooks: str) -> None:
    # GIVEN a Python of this version
    python = interpreter(version)
    if python is None:
        pytest.skip(f"this machine has no Python {version}")
    # WHEN a program runs with and without lotus
    words = [python, str(PROGRAM), *METHODS]
    plain = Start(words, tmp_path, "plain", {}).end()
    path = tmp_path / "R"
    trace = [*LOTUS, "trace", "-q", "-o", str(path), "--", *words]
    ended = Start(trace, tmp_path, "traced", {"LOTUS_HOOKS": hooks})
    traced = Traced(*vars(ended.end()).values(), path)
    # THEN it prints, warns and fails the same
    assert plain.code == 1
    assert plain.err.splitlines()[-1] == b"ValueError: bad number"
    assert plain.err.count(b"UserWarning: about") == 20
    assert (traced.code, traced.out.splitlines()) == (1, plain.out.splitlines())
    assert traced.err == plain.err
    # AND all of it is recorded, with the times of sending that the queues of this Python give
    run = traced.run
    assert run.notes == []
    # A worker that ends does not wait long for the thread that sends its last batch.
    assert set(run.lost["what"]) <= {"send times of a batch"}
    assert len(run.loaders) == 2 * 2 * len(METHODS) + 2
    assert set(run.loaders["start_method"].dropna()) == set(METHODS)
    assert set(run.processes["python"].dropna()) == {version_of(python)}
    batches = run.batches[run.batches["fetch_ns"].notna()]
    assert (batches["fetch_ns"] > 0).all()
    made = batches[batches["worker"] >= 0]
    assert Counter(made["worker"]) == {0: 6 * len(METHODS), 1: 4 * len(METHODS)}
    sent = made[made["send_ns"].notna()]
    assert len(sent) > 0
    assert (sent["put_ns"] <= sent["send_start_ns"]).all()
    assert (sent["ready_ns"] <= sent["arrival_ns"]).all()
    whole = run.loaders["loader"][0]
    ops = run.ops[run.ops["loader"] == whole]
    assert Counter(ops["operation"]) == dict.fromkeys(["Scale", "Shift", "halve", "pow"], 20)
    assert (run.ops["duration_ns"] > 0).all()
    failed = run.waits[run.waits["failed"]]
    assert len(failed) == 2 * len(METHODS) + 1


def version_of(python: str) -> str:
    words = [python, "-c", "import sys; print(sys.version.split()[0])"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
