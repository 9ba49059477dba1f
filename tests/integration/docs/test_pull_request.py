"""The workflow for pull requests in docs/: its shell step fails for a slower head alone."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.launching import ROOT, SMALL_TORCH

TRAIN = """
import time
from torch.utils.data import DataLoader

class Numbers:
    def __len__(self):
        return 64
    def __getitem__(self, index):
        time.sleep({pause})
        return index

for batch in DataLoader(Numbers(), batch_size=4):
    pass
"""


def step(name: str) -> str:
    """The shell text of a step."""
    text = (ROOT / "docs" / "pull-request.yml").read_text()
    match = re.search(rf"- name: {name}\n +run: \|\n(?P<text>(?: {{10}}.*\n|\n)+)", text)
    assert match is not None
    return textwrap.dedent(match["text"])


@pytest.mark.parametrize(("base", "head", "code"), [(0.02, 0.001, 0), (0.001, 0.02, 1)])
def test_its_step_fails_for_a_slower_head_alone(
    tmp_path: Path, base: float, head: float, code: int
) -> None:
    for side, slept in (("base", base), ("head", head)):
        (tmp_path / side).mkdir()
        (tmp_path / side / "train.py").write_text(TRAIN.format(pause=slept))
    summary = tmp_path / "summary.md"
    extra = {"TRAIN": f"{sys.executable} train.py", "GITHUB_STEP_SUMMARY": str(summary)}
    path = os.pathsep.join([*SMALL_TORCH.values(), str(ROOT)])
    lotus = tmp_path / "bin" / "lotus"  # the environment's own need not be on the path
    lotus.parent.mkdir()
    lotus.write_text(f'#!/bin/sh\nexec {sys.executable} -m lotus "$@"\n')
    lotus.chmod(0o755)
    extra["PATH"] = os.pathsep.join([str(lotus.parent), os.environ["PATH"]])
    ended = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step("Trace and compare")],
        cwd=tmp_path,
        env={**os.environ, **extra, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (code, "")
    text = summary.read_text()
    assert text.startswith("```text\n")
    assert text.splitlines()[1].startswith("A: base-* (3 runs)")
    assert "First cause:" in text
