"""`lotus tune` as a job's command: a short loop, a file that is there, a second start."""

import os

import pytest

from lotus.settings import tuned_file
from tests.integration.conftest import LOTUS, PYTHON, Start

LOOP = """
import sys, time
from torch.utils.data import DataLoader, IterableDataset

kind, count = sys.argv[1], int(sys.argv[2])

class Waits(list):
    def __getitem__(self, index):
        if count > 100:  # a short loop is one on a machine too where each sleep is long
            time.sleep(0.001)
        return index

class Stream(IterableDataset):
    def __iter__(self):
        return iter(Waits(range(40)))

if __name__ == "__main__":
    loader = DataLoader(Stream() if kind == "stream" else Waits(range(count)), batch_size=4)
    print("batches", sum(1 for batch in loader))
"""


@pytest.fixture
def tune(tmp_path):
    """tune(name, kind, count, *options) starts the command in a folder of its own; `.end()`."""
    (tmp_path / "loop.py").write_text(LOOP)

    def start(name, kind, count, *options):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        script = [PYTHON, str(tmp_path / "loop.py"), kind, str(count)]
        return Start([*LOTUS, "tune", *options, "--", *script], folder, name, {"COLUMNS": "500"})

    return start


def test_a_loop_of_a_moment_is_said_to_be_one_and_nothing_is_tried(torch, tune, tmp_path):
    plan = {
        "ended": ("list", 40, [], b""),
        "long": ("list", 80, [], b""),
        "stream": ("stream", 0, [], b""),
        "applied": ("list", 40, ["--apply"], b"batches 10\n"),
        "forced": ("list", 40, ["-f", "--budget", "2s"], b""),
    }
    started = {name: tune(name, *words[:2], *words[2]) for name, words in plan.items()}
    for name, (kind, count, _, out) in plan.items():
        ended = started[name].end()
        message = ended.err.decode()
        assert (ended.code, ended.out) == (0, out), message
        if name == "forced":
            assert "Trials: " in message
            assert (tmp_path / name / "tuned.json").exists()
            continue
        words = "Stream" if kind == "stream" else f"Waits ({count} samples, SequentialSampler)"
        assert f"lotus: an epoch of the loader of {words}" in message
        assert "too short to gain from another setting, so none was tried" in message
        assert "lotus tune -f -- COMMAND" in message
        assert "settings are tried now" not in message
        assert message.count("\n") == 1
        left = {path.name for path in (tmp_path / name).rglob("*")} - {"lotus-runs"}
        assert left == {f"{name}.out", f"{name}.err"}


def test_a_file_that_is_there_is_refused_before_the_program_starts(tune, tmp_path):
    folder = tmp_path / "again"
    folder.mkdir()
    for file, options in (("tuned.json", []), ("other.json", ["--apply", "-o", "other.json"])):
        (folder / file).write_text("kept")
        ended = tune("again", "list", 40, *options).end()
        assert (ended.code, ended.out) == (2, b"")
        assert ended.err.decode() == (
            f"lotus: {file} exists: overwrite it with -f, or name another with -o\n"
        )
        assert (folder / file).read_text() == "kept"


def test_a_command_line_that_applies_starts_a_second_time(torch, tune, tmp_path):
    folder = tmp_path / "job"
    for turn in (1, 2):
        ended = tune("job", "list", 1600, "--apply", "--budget", "2s").end()
        message = ended.err.decode()
        assert (ended.code, ended.out) == (0, b"batches 400\n"), message
        assert "Trials: " in message
        written = sorted((folder / "lotus-runs").glob("loop-*/tuned.json"))
        assert len(written) == turn
        assert tuned_file.read(written[-1]).loaders[0].loader.dataset == "Waits"
    assert not (folder / "tuned.json").exists()


def test_no_directory_is_left_where_nothing_was_found(tmp_path):
    words = [*LOTUS, "tune", "--apply", "--", PYTHON, "-c", "raise SystemExit(7)"]
    ended = Start(words, tmp_path, "tune", {}).end()
    assert ended.code == 7
    assert os.listdir(tmp_path / "lotus-runs") == []
