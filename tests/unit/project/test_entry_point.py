"""What starts `lotus`, also where Python finds another package of that name first."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_START = "import sys, lotus_profiler; sys.exit(lotus_profiler.main())"


def started(*path: Path) -> "subprocess.CompletedProcess[str]":
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    words = [sys.executable, "-c", _START, "--version"]
    return subprocess.run(words, env=environ, cwd="/", capture_output=True, text=True)


@pytest.mark.parametrize("name", ["lotus/__init__.py", "lotus.py"])
def test_another_package_of_that_name_is_named_in_one_line(tmp_path: Path, name: str) -> None:
    other = tmp_path / name
    other.parent.mkdir(exist_ok=True)
    other.write_text("raise RuntimeError('it is not imported')")
    done = started(tmp_path, ROOT)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert f"another package called lotus first, {other};" in line
    assert "PYTHONPATH" in line


def test_without_one_the_command_line_runs(tmp_path: Path) -> None:
    done = started(ROOT, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("lotus")


def test_it_is_what_is_installed() -> None:
    assert '\nlotus = "lotus_profiler:main"\n' in (ROOT / "pyproject.toml").read_text()
