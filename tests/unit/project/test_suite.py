"""What runs the tests: `.ci/run`, which tests belong to what, the files that took longest."""

import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import conftest

ROOT = Path(__file__).parents[3]
BEFORE = {
    *(".venv/docs.stamp", ".venv-compat/compat.stamp", ".venv-extras/extras.stamp"),
    *("lint", "docs"),
}
MAKEFILE = f"""
{" ".join(sorted(BEFORE))} test test-compat test-extras:
\t@echo "$@ in $(CURDIR) beside `cat ../shared/data`"
\t@test $@ != "`cat fails`" || exit 7
"""


@pytest.mark.parametrize(("name", "fails"), [("a clone", ""), ("a clone", "test"), ("lotus", "")])
def test_ci_runs_in_a_folder_named_lotus_and_ends_as_what_it_runs(tmp_path, name, fails):
    # GIVEN a clone in a folder, which runs nothing but what it prints
    clone = tmp_path / "some place" / name
    (clone / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", clone / ".ci" / "run")
    (clone / "Makefile").write_text(MAKEFILE)
    (clone / "fails").write_text(fails)
    (clone / ".venv").mkdir()
    (clone.parent / "shared").mkdir()
    (clone.parent / "shared" / "data").write_text("data")
    tools = tmp_path / "bin"  # so that it installs none
    tools.mkdir()
    for tool in ("perf", "gcc", "readelf", "chromium", "python3"):
        (tools / tool).write_text("#!/bin/sh\n")
        (tools / tool).chmod(0o755)
    env = {"PATH": f"{tools}:{os.environ['PATH']}"}
    ended = subprocess.run(
        ["bash", clone / ".ci" / "run"], env=env, cwd="/", capture_output=True, text=True
    )
    ran = [line for line in ended.stdout.splitlines() if " in " in line]
    names = [line.split()[0] for line in ran]
    assert set(names[: len(BEFORE)]) == BEFORE  # two at a time
    tests = ["test", "test-compat", "test-extras"]
    assert names[len(BEFORE) :] == (tests[:1] if fails else tests)
    assert all(line.endswith("/lotus beside data") for line in ran)
    assert (ended.returncode != 0) == bool(fails)
    # AND the copy is gone
    assert sorted(path.name for path in clone.parent.iterdir()) == sorted([name, "shared"])


def test_the_lists_of_files_name_files_that_are_there():
    lists = [conftest._ON_ANY_TORCH, conftest._FIRST, conftest._SLOW, conftest._TOGETHER]
    for name in itertools.chain(*lists):
        assert (ROOT / name).is_file()


def test_the_parts_of_names_are_those_of_tests():
    for name, parts in conftest._OF_TORCH.items():
        tests = re.findall(r"^def (test_\w+)", (ROOT / name).read_text(), flags=re.MULTILINE)
        for part in parts:
            assert any(part in test for test in tests), (name, part)


def test_what_runs_nightly_is_there_and_runs_then_only():
    files = sorted({name.partition("::")[0] for name in conftest._NIGHTLY})
    words = [sys.executable, "-m", "pytest", "-q", "--collect-only", *files]
    names = {
        options: subprocess.run([*words, *options], cwd=ROOT, capture_output=True, text=True).stdout
        for options in ((), ("--nightly",))
    }
    # A test without its parameters stands for all of them.
    nightly = names["--nightly",].splitlines()
    for name in conftest._NIGHTLY:
        assert name in nightly or any(line.startswith(f"{name}[") for line in nightly)
        assert name not in names[()]


def test_the_slowest_files_are_told():
    words = [sys.executable, "-m", "pytest", "-q", "tests/unit/reading/test_batch_order.py"]
    output = subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stdout
    assert "ten slowest files" in output
    assert "tests/unit/reading/test_batch_order.py" in output
