"""The notebooks: committed without outputs, and true when they are run from clean."""

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NEEDS = {"01_first_trace": "torch", "03_tuning": "torch", "05_advice": "torchvision"}
SLOWEST_S = 600  # of one cell, on a busy machine; then its kernel hangs


def _book(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def test_all_are_there() -> None:
    names = [path.stem for path in NOTEBOOKS]
    assert names == [
        "01_first_trace", "02_frontend_backend", "03_tuning", "04_your_own_run", "05_advice",
    ]  # fmt: skip


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_committed_without_outputs_and_places(path: Path) -> None:
    book = _book(path)
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
        assert cell["metadata"] == {}
    assert book["cells"][0]["cell_type"] == "markdown"
    text = path.read_text("utf-8")
    assert not any(f"/{place}/" in text for place in ("home", "root", "tmp", "Users", "work"))


@pytest.fixture
def executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, Path], Any]:
    """executed(book, folder): run a notebook in a kernel of this very Python.

    Whatever is installed as "python3" beside. Raises the error of a cell.
    """
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    kernel = tmp_path / "data" / "kernels" / "python3"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(
        json.dumps({"argv": command, "display_name": "Python 3", "language": "python"})
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "data"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))

    def run(book: Any, folder: Path) -> Any:
        client = nbclient.NotebookClient(
            book, timeout=SLOWEST_S, startup_timeout=SLOWEST_S, iopub_timeout=SLOWEST_S,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
        )  # fmt: skip
        return client.execute()

    return run


def _shown(book: Any) -> str:
    outputs = [output for cell in book.cells for output in cell.get("outputs", ())]
    return "\n".join(
        str(output.get("text", "")) + str(output.get("data", {})) for output in outputs
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_from_clean(path: Path, executed: Callable[[Any, Path], Any]) -> None:
    nbformat = pytest.importorskip("nbformat")
    for needed in ("matplotlib", NEEDS.get(path.stem, "pandas")):
        pytest.importorskip(needed)
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    executed(book, path.parent)
    outputs = [output for cell in book.cells for output in cell.get("outputs", ())]
    figures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(figures) >= 1
    text = _shown(book)
    for wanted in SAYS[path.stem]:
        assert wanted in text


LOOP = """\
import time
from torch.utils.data import DataLoader, Dataset


class Slow(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        time.sleep(0.02)
        return float(index)


total = sum(batch.sum().item() for batch in DataLoader(Slow(), batch_size=4))
print("total", total)
"""


def test_a_traced_cell_runs_as_without_it_and_shows_the_verdict_below(
    executed: Callable[[Any, Path], Any], tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    v4 = pytest.importorskip("nbformat").v4
    cells = ["%load_ext lotus", f"%%lotus\n{LOOP}", "print('kept', total, len(_lotus_run.batches))"]
    book = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in cells])
    executed(book, tmp_path)
    text = _shown(book)
    assert "total 1128.0" in text
    assert "kept 1128.0 12" in text
    for words in ("HIGHLY INPUT-BOUND", "First cause", "Next step"):
        assert words in text
    (run,) = (tmp_path / "lotus-runs").glob("notebook-*")
    assert f"All of it: lotus report {run}<" in text
    assert "Slow at line 14 of a cell, 0 workers" in text
    assert "lotus report: a cell of a notebook, " in text


def test_an_error_in_a_traced_cell_is_the_cells(
    executed: Callable[[Any, Path], Any], tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    v4 = pytest.importorskip("nbformat").v4
    cells = ["%load_ext lotus", "%%lotus --levl op\nwrong = 1", "assert 'wrong' not in dir()"]
    cells += ["%%lotus\nraise KeyError('mine')", "print('not reached')"]
    book = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in cells])
    with pytest.raises(pytest.importorskip("nbclient").exceptions.CellExecutionError) as caught:
        executed(book, tmp_path)
    assert caught.value.ename == "KeyError"
    text = _shown(book)
    assert "unrecognized arguments: --levl op" in text
    assert "the cell was not run" in text
    assert "not reached" not in text


def test_a_cell_that_does_not_compile_is_not_run_and_its_error_is_shown_once(
    executed: Callable[[Any, Path], Any], tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    v4 = pytest.importorskip("nbformat").v4
    book = v4.new_notebook(cells=[v4.new_code_cell(c) for c in ("%load_ext lotus", "%%lotus\n1+")])
    with pytest.raises(pytest.importorskip("nbclient").exceptions.CellExecutionError) as caught:
        executed(book, tmp_path)
    assert caught.value.ename == "SyntaxError"
    assert [each["output_type"] for each in book.cells[-1].outputs] == ["error"]
    assert not (tmp_path / "lotus-runs").exists()


def test_the_pictures_of_the_readme_are_there_and_small() -> None:
    folder = ROOT / "notebooks"
    shown = re.findall(r"\]\((img/[^)]+)\)", (folder / "README.md").read_text("utf-8"))
    assert shown
    for path in (*map(folder.joinpath, shown), *(folder / "img").iterdir()):
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        assert path.stat().st_size < 80_000


# What a reader is to see when it has run.
SAYS = {
    "01_first_trace": ("<strong>", "Next step", "Smooth", "s of waiting"),
    "02_frontend_backend": ("1 worker is enough", "has no hardware counters", "collate"),
    "03_tuning": ("tried in", "workers: 1 before", "the run itself is simulated"),
    "05_advice": (
        "ith data always ready",
        "times: tensors of uint8",
        "+    return torchvision.io",
        "ache",
    ),
    "04_your_own_run": ("NOT INPUT-BOUND", "nothing was met that could not be looked into"),
}
