"""Where the program sets torch's threads, by its source."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from lotus.inside.trace.loaders import compute_threads
from lotus.inside.trace.loaders.compute_threads import library_threads_set, threads_set_at


def frame_of(path):
    return SimpleNamespace(f_code=SimpleNamespace(co_filename=str(path)))


@pytest.fixture
def main(tmp_path, monkeypatch):
    path = tmp_path / "train.py"
    path.write_text("import torch\n# torch.set_num_threads(4)\nprint(1)\n")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(path), raising=False)
    return path


def test_the_first_call_that_is_no_comment_is_named(main):
    assert threads_set_at(None) == ""
    compute_threads._place_of.cache_clear()
    with main.open("a") as file:
        file.write("if True:\n    torch.set_num_threads(2)  # both\ntorch.set_num_threads(1)\n")
    assert threads_set_at(None) == "train.py:5"


def test_the_file_that_iterates_the_loader_is_read_too(main, tmp_path):
    (tmp_path / "loop.py").write_text("from torch import set_num_threads\nset_num_threads(2)\n")
    assert threads_set_at(frame_of(tmp_path / "loop.py")) == "loop.py:2"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("threadpoolctl.threadpool_limits(limits=4)", True),
        ("cv2.setNumThreads(8)  # all", True),
        ("threadpoolctl.threadpool_limits(limits=1)", False),
        ("cv2.setNumThreads(0)", False),
        ("# cv2.setNumThreads(8)", False),
    ],
)
def test_a_line_that_gives_a_library_several_threads_is_named(main, line, found):
    with main.open("a") as file:
        file.write(line + "\n")
    assert library_threads_set(None) == ("train.py:4" if found else "")


@pytest.mark.parametrize(
    ("value", "line", "found"),
    [
        (
            "97",
            'os.environ["OPENBLAS_NUM_THREADS"] = "97"',
            "OPENBLAS_NUM_THREADS=97 at train.py:4",
        ),
        ("97", 'for name in ("OPENBLAS_NUM_THREADS",):', "OPENBLAS_NUM_THREADS=97 at train.py:4"),
        ("97", "os.environ.update(settings)", "OPENBLAS_NUM_THREADS=97"),
        ("1", 'os.environ["OPENBLAS_NUM_THREADS"] = "1"', ""),
        (None, 'os.environ.pop("OPENBLAS_NUM_THREADS", None)', ""),
        ("many", 'os.environ["OPENBLAS_NUM_THREADS"] = "many"', ""),
    ],
)
def test_a_variable_that_the_program_set_is_named_with_its_line(
    main, monkeypatch, value, line, found
):
    with main.open("a") as file:
        file.write(line + "\n")
    for name in compute_threads._VARIABLES:
        monkeypatch.delenv(name, raising=False)
    if value is not None:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", value)
    assert library_threads_set(None) == found


def test_a_variable_that_the_program_was_started_with_is_not_its_own():
    code = (
        "from lotus.inside.trace.loaders.compute_threads import library_threads_set as count; "
        "print(count(None))"
    )
    environment = os.environ | {"OMP_NUM_THREADS": "8"}
    got = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert got.stdout == "\n"


@pytest.mark.parametrize("name", ["gone.py", "<string>", "nul\0", ".", "pipe"])
def test_a_file_that_cannot_be_read_says_nothing(main, tmp_path, name):
    os.mkfifo(tmp_path / "pipe")  # as of `python <(...)`; to open it for reading alone blocks
    assert threads_set_at(frame_of(tmp_path / name)) == ""
