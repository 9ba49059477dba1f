"""Where the program sets torch's threads, by its source."""

import os
import sys
from types import SimpleNamespace

import pytest

from lotus.inside.common import compute_threads
from lotus.inside.common.compute_threads import library_threads_set_at, threads_set_at


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
        ('os.environ["OPENBLAS_NUM_THREADS"] = "8"', True),
        ('os.environ["OMP_NUM_THREADS"] = "1" if args.slow else "8"', True),
        ('os.environ.update({"MKL_NUM_THREADS": "4"})', True),
        ("threadpoolctl.threadpool_limits(limits=4)", True),
        ("cv2.setNumThreads(8)  # all", True),
        ('os.environ["OPENBLAS_NUM_THREADS"] = "1"', False),
        ('os.environ.update({"MKL_NUM_THREADS": "1"})', False),
        ("threadpoolctl.threadpool_limits(limits=1)", False),
        ("cv2.setNumThreads(0)", False),
        ('os.environ.setdefault("OMP_NUM_THREADS", "8")', False),
        ('print(os.environ["OMP_NUM_THREADS"] == "8")', False),
        ('# os.environ["OMP_NUM_THREADS"] = "8"', False),
    ],
)
def test_a_line_that_gives_a_library_several_threads_is_named(main, line, found):
    with main.open("a") as file:
        file.write(line + "\n")
    assert library_threads_set_at(None) == ("train.py:4" if found else "")


@pytest.mark.parametrize("name", ["gone.py", "<string>", "nul\0", ".", "pipe"])
def test_a_file_that_cannot_be_read_says_nothing(main, tmp_path, name):
    os.mkfifo(tmp_path / "pipe")  # as of `python <(...)`; to open it for reading alone blocks
    assert threads_set_at(frame_of(tmp_path / name)) == ""
