"""Data sets that read through a file's position: forked workers share it, so none may be tried."""

import sys

import pytest

from lotus.settings import tuned_file
from tests.integration.conftest import LOTUS, PROGRAMS, ROOT, Start, command_of

SCRIPT = "tune/tune_files.py"
SHARED = [("lazy", 0), ("init", 1), ("held", 0)]  # how it reads, workers
ALONE = [("lazy", 1), ("log", 0), ("stream", 0)]


def applied(folder, how, workers, budget="2s"):
    command = command_of(SCRIPT, [how, str(workers)])
    words = ["tune", "--apply", "-f", "-o", "tuned.json", "--budget", budget]
    words += ["--strategy", "random", "--", *command]
    folder = folder / f"{how}{workers}"
    folder.mkdir(exist_ok=True)
    return Start([*LOTUS, *words], folder, "tune", {"COLUMNS": "500"})


@pytest.fixture(scope="module")
def runs(torch, tmp_path_factory):
    """All of them, a few at a time."""
    folder, ended = tmp_path_factory.mktemp("files"), {}
    waiting = SHARED + ALONE
    while waiting:
        some, waiting = waiting[:3], waiting[3:]
        started = [(case, applied(folder, *case)) for case in some]
        ended.update((case, start.end()) for case, start in started)
    for budget in ("6s", "20s", "60s"):
        for case in ALONE:  # a busy machine may have had no time for a second setting
            if "more time: lotus tune" in " ".join(ended[case].err.decode().split()):
                ended[case] = applied(folder, *case, budget=budget).end()
    return ended


@pytest.mark.parametrize(("how", "workers"), SHARED)
def test_nothing_is_tried_where_workers_would_share_a_position(runs, how, workers):
    ended = runs[how, workers]
    folder = ended.truth.parent
    message = " ".join(ended.err.decode().split())
    assert ended.code == 0, message
    assert "seen 320 wrong 0" in ended.out.decode()
    assert f"moves the read position of {folder}/records," in message
    assert "no other setting could be tried" in message
    assert "num_workers=1 in the code" in message
    entry = tuned_file.read(folder / "tuned.json").loaders[0]
    assert entry.setting.num_workers == workers


@pytest.mark.parametrize(("how", "workers"), ALONE)
def test_files_that_no_two_workers_share_hinder_nothing(runs, how, workers):
    ended = runs[how, workers]
    message = " ".join(ended.err.decode().split())
    assert ended.code == 0, message
    assert "seen 320 wrong 0" in ended.out.decode()
    assert "position" not in message
    assert "could be tried" not in message or how == "stream"  # its epochs are compared first


@pytest.mark.parametrize(("how", "tried"), [("lazy", "tried 1 0 "), ("pread", "tried ")])
def test_a_call_tries_nothing_either(torch, tmp_path, how, tried):
    env = {"PYTHONPATH": str(ROOT)}
    words = [sys.executable, str(PROGRAMS / SCRIPT), how, "0", "call"]  # it has pandas
    ended = Start(words, tmp_path, "call", env).end()
    out = ended.out.decode()
    assert ended.code == 0, ended.err.decode()
    assert "seen 320 wrong 0" in out
    assert out.startswith(tried)
    assert ("moves the read position" in out) == (how == "lazy")
