"""Every demo's script: it trains, the same with and without workers, and traced each of its
operations is found by name and timed once a sample."""

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from lotus.workloads.catalogue import WORKLOADS
from tests import warm
from tests.integration.conftest import Traced, environment

pytest.importorskip("torchvision")

# What it starts has torch and torchvision imported already; test_demo.py starts real ones.
WARM = warm.interpreter(sys.executable, "torch", "torchvision")
LOTUS = [
    sys.executable,
    "-c",
    f"import sys; sys.executable = {WARM!r}; from lotus.cli import main; sys.exit(main())",
]


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
    "tiny_images": Case(*(200, 64), ("ToTensor", "Normalize")),
    "image_classification": Case(
        *(24, 8),
        ("Loader", "RandomResizedCrop", "RandomHorizontalFlip", "ToTensor", "Normalize"),
        same=False,  # torchvision draws from each worker's own generator
    ),
}
# Runs scripts in one process, one after the other: most of the time is torch's import.
SEVERAL = """\
import json, runpy, sys, traceback
for line in sys.stdin:
    sys.argv = json.loads(line)
    print("run", flush=True)
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except BaseException:
        print(traceback.format_exc(), flush=True)
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
        env=environment({"XDG_CACHE_HOME": str(cache)}),
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    recorded = Traced(0, b"", b"", tmp_path, tmp_path / "run").run
    counts = recorded.ops["operation"].value_counts().to_dict()
    assert counts == dict.fromkeys(case.operations, case.samples)
    assert recorded.samples["sample"].nunique() == len(recorded.samples) == case.samples
    assert len(recorded.batches) == -(-case.samples // case.batch)
    assert recorded.lost.empty
    assert not recorded.notes


@pytest.fixture(scope="module")
def printed(cache: Path) -> dict[str, list[str]]:
    """What each script printed without workers, with two, and with another seed."""
    runs = []
    for name, case in CASES.items():
        workload = WORKLOADS[name]
        data = cache / "lotus" / workload.folder(case.samples)
        maker = importlib.import_module(f"lotus.workloads.{workload.maker}")
        list(maker.make(data, case.samples))
        command = [str(workload.script), "--data", str(data), "--batch-size", str(case.batch)]
        command += ["--epochs", "2", "--threads", "1", "--print-every", "1", *case.options]
        for more in (("--workers", "0"), ("--workers", "2"), ("--workers", "0", "--seed", "1")):
            runs.append(json.dumps([*command, *more]))
    command = [sys.executable, "-c", SEVERAL]
    done = subprocess.run(command, input="\n".join(runs), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    texts = done.stdout.split("run\n")[1:]
    return {name: texts[3 * n : 3 * n + 3] for n, name in enumerate(CASES)}


@pytest.mark.parametrize("name", CASES)
def test_a_script_trains_the_same_with_and_without_workers(
    name: str, printed: dict[str, list[str]]
) -> None:
    case = CASES[name]
    plain, workers, seeded = (re.findall(r"step \d+: loss (\S+)", t) for t in printed[name])
    assert len(plain) == len(workers) == 2 * -(-case.samples // case.batch), printed[name]
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
