"""The hooks in C are built where that is possible, and no installation fails where it is not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
TOOL = ROOT / "tools" / "build_hooks.py"
FOLDER = ROOT / "lotus" / "inside" / "trace" / "native"
SOURCES = ("_batch.c", "_buffer.c", "_hooks.c", "_hooks.h", "_samples.c")


def build(folder: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, str(TOOL), str(folder)]
    return subprocess.run(
        words, env={**os.environ, **environ}, capture_output=True, text=True, check=False
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for source in SOURCES:
        shutil.copy(FOLDER / source, tmp_path)
    return tmp_path


@pytest.mark.parametrize("flags", ["", "-UNDEBUG"])
def test_what_is_built_records_as_it_should(folder: Path, flags: str) -> None:
    ended = build(folder, CFLAGS=flags)
    if not ended.stdout:
        pytest.skip(f"nothing can be built here: {ended.stderr}")
    code = (
        "import importlib.util as u, sys\n"
        "from lotus.inside.trace.native import native_hooks\n"
        f"spec = u.spec_from_file_location('_hooks', {ended.stdout.strip()!r})\n"
        "module = u.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "print(native_hooks._works(module), module.BUILD)\n"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    tried = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True
    )
    kind = "with assertions or without optimisation" if flags else "release"
    assert (tried.stdout, tried.stderr) == (f"True {kind}\n", "")


@pytest.mark.parametrize("compiler", ["/nonexistent/cc", "false"])
def test_without_a_compiler_that_works_there_is_one_line(folder: Path, compiler: str) -> None:
    ended = build(folder, CC=compiler, PATH=str(folder) if "/" in compiler else os.environ["PATH"])
    assert (ended.returncode, ended.stdout) == (0, "")
    assert ended.stderr.startswith("lotus: the hooks in C are not built (")
    assert ended.stderr.count("\n") == 1
    assert sorted(path.name for path in folder.iterdir()) == sorted(SOURCES)


@pytest.mark.parametrize("environ", [{"CFLAGS": '-DNAME="'}, {"CC": " "}])
def test_variables_that_cannot_be_read_fail_no_installation(
    folder: Path, environ: dict[str, str]
) -> None:
    ended = build(folder, **environ)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (0, "", 1)


def test_what_does_not_compile_is_told_by_its_first_error(folder: Path) -> None:
    (folder / "_batch.c").write_text("#error nothing for this Python\n")
    ended = build(folder)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "nothing for this Python" in ended.stderr
    assert build(folder, LOTUS_BUILD_HOOKS="1").returncode == 1


def test_it_can_be_left_out(folder: Path) -> None:
    ended = build(folder, LOTUS_BUILD_HOOKS="0")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
