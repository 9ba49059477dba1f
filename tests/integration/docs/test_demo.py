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
from lotus.workloads.catalogue import WORKLOADS

SCRIPT = Path(jpegs.__file__).with_name("image_classification.py")
LOTUS = [sys.executable, "-m", "lotus"]


def test_the_demo_ends_with_the_report_and_the_paths(tmp_path: Path) -> None:
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [*LOTUS, "demo", "--images", "48", "--batch-size", "8", "--workers", "1", "-o", "run"]
    run = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    transforms = ("RandomResizedCrop", "RandomHorizontalFlip", "ToTensor", "Normalize")
    for word in (*transforms, "decode (default_loader)", "48 images", "next: lotus report run"):
        assert word in run.stdout
    (data,) = (tmp_path / "cache" / "lotus").iterdir()
    assert run.stdout.endswith(f"data set: {data}\nrun:      {tmp_path / 'run'}\n")

    recorded = lotus.load(tmp_path / "run")
    assert len(recorded.batches) == 6
    assert recorded.samples["sample"].nunique() == 48
    assert {*transforms, "Loader"} <= set(recorded.ops["operation"])

    again = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True)
    assert again.returncode == 2
    assert "-f" in again.stderr


def test_a_demo_is_made_larger_by_its_scale(tmp_path: Path) -> None:
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [*LOTUS, "demo", "--workload", "tiny_images", "--samples", "64", "--scale", "3"]
    run = subprocess.run(
        [*command, "-o", "run", "--workers", "0"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert lotus.load(tmp_path / "run").samples["sample"].nunique() == 192
    assert [path.name for path in (tmp_path / "cache" / "lotus").iterdir()] == ["cifar-1-192"]


def test_the_list_says_what_there_is_and_where(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--list"]) == 0
    listed = capfd.readouterr().out
    for workload in WORKLOADS.values():
        assert f"\n{workload.name}\n" in f"\n{listed}".replace(" (default)", "")
        assert f"{workload.count:,} {workload.noun} ({workload.megabytes} MB)" in listed
        assert str(workload.script) in listed
    assert "image_classification (default)" in listed


def test_an_unknown_demo_is_answered_with_those_there_are(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["demo", "--workload", "video"])
    assert ended.value.code == 2
    message = capfd.readouterr().err
    assert all(name in message for name in WORKLOADS)


def test_the_training_script_knows_nothing_of_lotus() -> None:
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
    message = capfd.readouterr().err
    assert message.count("\n") == 1
    assert "pip install torch torchvision pillow" in message


def test_a_data_set_that_cannot_be_made_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "lotus").write_text("a file where the folder should be")
    environ = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    run = subprocess.run(
        [*LOTUS, "demo", "--images", "8"], cwd=tmp_path, env=environ, capture_output=True, text=True
    )
    assert run.returncode == 2
    assert "Traceback" not in run.stderr
    assert not (tmp_path / "lotus-runs").exists()
