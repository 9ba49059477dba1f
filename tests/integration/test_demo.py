"""`lotus demo`: the main job on its made data set, and the plain script that it runs."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lotus
from lotus import cli
from lotus.workloads import jpegs

SCRIPT = Path(jpegs.__file__).with_name("image_classification.py")
LOTUS = [sys.executable, "-m", "lotus"]


def test_the_demo_ends_with_the_report_and_the_paths(tmp_path: Path) -> None:
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [*LOTUS, "demo", "--images", "48", "--batch-size", "8", "--workers", "1", "-o", "run"]
    run = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    operations = ("RandomResizedCrop", "RandomHorizontalFlip", "ToTensor", "Normalize", "Loader")
    for word in (*operations, "48 images", "next: lotus report run"):
        assert word in run.stdout
    (data,) = (tmp_path / "cache" / "lotus").iterdir()
    assert run.stdout.endswith(f"data set: {data}\nrun:      {tmp_path / 'run'}\n")

    recorded = lotus.load(tmp_path / "run")
    assert len(recorded.batches) == 6
    assert recorded.samples["sample"].nunique() == 48
    assert set(operations) <= set(recorded.ops["operation"])

    again = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert again.returncode == 2
    assert "-f" in again.stderr


def test_the_training_script_knows_nothing_of_lotus(tmp_path: Path) -> None:
    tree = ast.parse(SCRIPT.read_text())
    imported = {
        name.name if isinstance(node, ast.Import) else str(node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    assert {name.split(".")[0] for name in imported} == {"argparse", "time", "torch", "torchvision"}


def test_without_torch_the_demo_names_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cli.main(["demo"]) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "pip install 'lotus-profiler[demo]'" in said


def test_a_data_set_that_cannot_be_made_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "lotus").write_text("a file where the folder should be")
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    run = subprocess.run(
        [*LOTUS, "demo", "--images", "8"], cwd=tmp_path, env=environ, capture_output=True, text=True
    )
    assert run.returncode == 2
    assert "Traceback" not in run.stderr
    assert not (tmp_path / "lotus-runs").exists()
