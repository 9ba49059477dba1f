"""`lotus compare` on recorded programs: what was made slower is found, and CI can tell."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.called import called
from tests.integration.conftest import ROOT
from tests.integration.launched import LOTUS
from tests.launching import SMALL_TORCH

pytestmark = pytest.mark.usefixtures("own_directory", "lotus_on_path")

PROGRAM = """
import sys, time
from torch.utils.data import DataLoader, Dataset

class Slow:
    took_ns = 0

    def __call__(self, x):
        begin = time.monotonic_ns()
        for _ in range(int(sys.argv[1])):
            time.sleep(0.002)
        Slow.took_ns += time.monotonic_ns() - begin
        return x

class Same:
    def __call__(self, x):
        time.sleep(0.001)
        return x

class Compose:
    def __init__(self, transforms):
        self.transforms = transforms
    def __call__(self, x):
        for one in self.transforms:
            x = one(x)
        return x

class Data(Dataset):
    def __init__(self):
        self.transform = Compose([Slow(), Same()])
    def __len__(self):
        return 80
    def __getitem__(self, index):
        return self.transform(float(index))

if __name__ == "__main__":
    for batch in DataLoader(Data(), batch_size=4):
        pass
    with open(sys.argv[2], "w") as file:
        print(Slow.took_ns, file=file)
"""
OPERATIONS = ("--op", "__main__:Slow.__call__", "--op", "__main__:Same.__call__")


def record(name: str, waits: int) -> None:
    Path("program.py").write_text(PROGRAM)
    command = [sys.executable, "program.py", str(waits), f"{name}.took"]
    options = ["-q", *OPERATIONS]
    subprocess.run([*LOTUS, "trace", "-o", name, *options, "--", *command], check=True)


def compared(*arguments: str) -> subprocess.CompletedProcess[str]:
    return called("compare", *arguments)


def as_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LOTUS, "compare", *arguments], capture_output=True, text=True)


def document(*arguments: str) -> dict[str, Any]:
    done = compared(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["comparisons"][0]  # type: ignore[no-any-return]


def slow_line(comparison: dict[str, Any]) -> dict[str, Any]:
    lines = comparison["loaders"][0]["lines"]
    return next(
        line for line in lines if line["id"].startswith("operation:") and "Slow" in line["id"]
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PYTHONPATH", os.pathsep.join([*SMALL_TORCH.values(), str(ROOT)]))
        for turn in range(3):
            # As often as this it waits, however long each time.
            record(f"before-{turn}", 1)
            record(f"after-{turn}", 15)
        Path("none.py").write_text("import torch.utils.data\n")
        command = [sys.executable, "none.py"]
        subprocess.run([*LOTUS, "trace", "-q", "-o", "none", "--", *command], check=True)
    return folder


def test_the_slower_operation_is_found(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    comparison = document(*(f"{side}-[0-9]" for side in ("before", "after")))
    assert [len(comparison[side]["runs"]) for side in "ab"] == [3, 3]
    line = slow_line(comparison)
    # Sleeping takes longer on a busy machine; the program has looked how long.
    before, after = (
        sum(int(path.read_text()) for path in Path().glob(f"{side}-*.took"))
        for side in ("before", "after")
    )
    assert line["difference"] == pytest.approx(after / before - 1, rel=0.05)
    assert line["low"] < line["difference"] < line["high"]
    words = [fact["what"] for fact in comparison["facts"]]
    assert words == ["words"]  # the command line, and nothing else


def test_exit_codes_tell_slower_from_broken(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    sides = ("before-0", "after-0")
    metric = ("--metric", slow_line(document(*sides))["id"])
    for turn in range(3):  # one in which the machine stood still may tell nothing
        both = (f"before-{turn}", f"after-{turn}")
        slower = as_process(*both, "--fail-above", "1%", *metric)
        if slower.returncode:
            break
    assert slower.returncode == 1
    assert "Failed: operation:" in slower.stdout
    passed = compared(*sides, "--fail-above", "9999%", *metric)
    assert passed.returncode == 0
    assert "Passed: " in passed.stdout
    for broken in (("before-0", "none"), ("before-0", "nowhere"), ("before-0", "program.py")):
        done = compared(*broken, "--fail-above", "1%")
        assert done.returncode == 2
        assert done.stderr.startswith("lotus: ")
        assert "Traceback" not in done.stderr
    assert compared("before-0", "before-0", "--fail-above", "0%").returncode == 0


def test_the_page_is_written_whole_or_not_at_all(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("plotly")
    monkeypatch.chdir(runs)
    done = compared("before-0", "after-0", "--html", "page.html")
    assert done.returncode == 0, done.stderr
    text = Path("page.html").read_text()
    assert "Differences" in text
    assert text.rstrip().endswith("</html>")
    wrong = compared("before-0", "after-0", "--html", "no-such-folder/page.html")
    assert wrong.returncode == 2
    assert "no-such-folder" in wrong.stderr
