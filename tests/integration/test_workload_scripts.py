"""Every demo's script: it trains, the same with and without workers, and traced each of its
operations is found by name and timed once a sample."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import lotus
from lotus.workloads.catalogue import WORKLOADS

pytest.importorskip("torchvision")

LOTUS = [sys.executable, "-m", "lotus"]


class Case(NamedTuple):
    """One demo on little data, and what its trace should have."""

    samples: int
    batch: int
    operations: tuple[str, ...]
    options: tuple[str, ...] = ()
    same: bool = True  # also with another number of workers


CASES = {
    "segmentation": Case(
        *(5, 2),
        (
            *("Loader", "RandBalancedCrop", "RandFlip", "Cast"),
            *("RandomBrightnessAugmentation", "GaussianNoise"),
        ),
        ("--patch", "32"),
    ),
    "detection": Case(
        *(10, 4),
        ("Loader", "Resize", "RandomHorizontalFlip", "ToTensor", "Normalize"),
        ("--size", "160"),
    ),
    "audio": Case(
        *(10, 4),
        ("Loader", "Resample", "LogMelSpectrogram", "Normalize", "FrequencyMasking", "TimeMasking"),
    ),
    "text": Case(*(70, 16), ("Loader", "Normalize", "Tokenize", "Truncate", "ToTensor")),
    "image_classification": Case(
        *(24, 8),
        ("Loader", "RandomResizedCrop", "RandomHorizontalFlip", "ToTensor", "Normalize"),
        same=False,  # torchvision draws from each worker's own generator
    ),
}
# Runs a script several times in one process: most of the time is torch's import.
SEVERAL = """\
import runpy, sys
script, *runs = sys.argv[1:]
for run in runs:
    sys.argv = [script, *run.split(" ")]
    print("run", flush=True)
    runpy.run_path(script, run_name="__main__")
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_every_demo_is_tried() -> None:
    assert CASES.keys() == WORKLOADS.keys()


@pytest.mark.parametrize("name", CASES)
def test_a_traced_demo_has_every_operation_of_every_sample(
    name: str, cache: Path, tmp_path: Path
) -> None:
    case = CASES[name]
    options = ["--samples", str(case.samples), "--batch-size", str(case.batch), "-o", "run"]
    run = subprocess.run(
        [*LOTUS, "demo", "--workload", name, *options],
        cwd=tmp_path,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    recorded = lotus.load(tmp_path / "run")
    counts = recorded.ops["operation"].value_counts().to_dict()
    assert counts == dict.fromkeys(case.operations, case.samples)
    assert recorded.samples["sample"].nunique() == len(recorded.samples) == case.samples
    assert len(recorded.batches) == -(-case.samples // case.batch)
    assert recorded.lost.empty
    assert not recorded.notes


@pytest.mark.parametrize("name", CASES)
def test_a_script_trains_the_same_with_and_without_workers(name: str, cache: Path) -> None:
    case, workload = CASES[name], WORKLOADS[name]
    data = cache / "lotus" / workload.folder(case.samples)
    make = [sys.executable, "-m", "lotus.workloads.making", workload.maker, str(data)]
    subprocess.run([*make, "--count", str(case.samples)], check=True)
    common = f"--data {data} --epochs 2 --threads 1 --batch-size {case.batch} --print-every 1"
    common = " ".join((common, *case.options))
    runs = [f"{common} --workers 0", f"{common} --workers 2", f"{common} --workers 0 --seed 1"]
    command = [sys.executable, "-c", SEVERAL, str(workload.script), *runs]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    plain, workers, seeded = (
        re.findall(r"step \d+: loss (\S+)", text) for text in done.stdout.split("run\n")[1:]
    )
    assert len(plain) == len(workers) == 2 * -(-case.samples // case.batch)
    assert all(0 < float(loss) < 1000 for loss in (*plain, *workers))
    assert len(set(plain)) == len(plain)
    assert plain[0] != seeded[0]
    if case.same:
        assert plain == workers


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_script_needs_nothing_but_what_the_demo_extra_brings(name: str) -> None:
    tree = ast.parse(WORKLOADS[name].script.read_text())
    imported = {
        (alias.name if isinstance(node, ast.Import) else str(node.module)).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert imported <= {"torch", "torchvision", "numpy", "PIL", *sys.stdlib_module_names}
