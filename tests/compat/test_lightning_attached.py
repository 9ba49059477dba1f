"""`lotus attach` on a Lightning fit with validation."""

import json
import os
import subprocess
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest

from tests.compat.conftest import ALONE, PROGRAMS
from tests.launching import LOTUS, PYTHON
from tests.waiting import wait_until


def folder_of_py_spy() -> str:
    """Where pip put the program; `make test-extras` has it in another environment."""
    try:
        (program,) = [file for file in files("py-spy") or () if file.stem == "py-spy"]
    except (PackageNotFoundError, ValueError):
        pytest.skip("py-spy is needed")
    return str(Path(program.locate()).resolve().parent)


def test_both_loops_of_a_fit_are_seen(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    words = [PYTHON, str(PROGRAMS / "lightning_attached.py")]
    path = os.pathsep.join([folder_of_py_spy(), os.environ["PATH"]])
    environment = {**os.environ, **ALONE, "HOME": str(tmp_path), "PATH": path}
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as program:
        try:
            wait_until(lambda: (tmp_path / "trained").exists(), program)
            attach = [*LOTUS, "attach", str(program.pid), "--seconds", "15", "--json"]
            attach += ["-o", str(tmp_path / "R")]
            seen = subprocess.run(attach, capture_output=True, text=True, env=environment)
            (tmp_path / "stop").touch()
            out, _ = program.communicate()
        finally:
            program.kill()
    assert (program.returncode, out.splitlines()[-1]) == (0, b"fitted")
    assert seen.returncode == 0, seen.stderr
    loops = {loop["title"].partition(" (")[0]: loop for loop in json.loads(seen.stdout)["loops"]}
    assert set(loops) == {"Lightning's training loop", "Lightning's evaluation loop"}
    training = loops["Lightning's training loop"]
    assert training["workers"] == 2
    assert training["wait_ns"] > loops["Lightning's evaluation loop"]["wait_ns"]
    (first, *_) = training["verdict"]["causes"]
    assert first["kind"] == "dataset"
    assert "Rows.__getitem__" in first["title"]
    assert training["operations"][0]["reason"] == "sleep"
