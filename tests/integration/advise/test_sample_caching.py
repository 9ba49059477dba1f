"""`lotus run` caches samples: batches stay bit-equal, and what is cached is not made again."""

import re
from collections import Counter

import pytest

from lotus.settings import tuned_file
from lotus.settings.space import Setting
from lotus.settings.tuned_file import Entry, SampleCache, Target, Tuned
from tests.integration.conftest import LOTUS, Start, command_of

STEPS = ("Resize", "RandomResizedCrop", "RandomHorizontalFlip", "ToTensor")
# By name: class, where its transform is, cut, operations.
KINDS = {
    "folder": ("ImageFolder", ("transform",), 1, STEPS),
    "subset": ("Subset", ("dataset", "transform"), 1, STEPS),
    "pictures": ("Pictures", ("tf",), 0, STEPS),
    "own": ("Own", ("tf",), 0, ("shift",)),
    "whole": ("Whole", None, 0, ()),
    "drawing": ("Drawing", ("tf",), 1, STEPS),
    "scaled": ("Scaled", ("tf",), 1, STEPS),
    "writing": ("Writing", ("tf",), 1, STEPS),
    "growing": ("Growing", ("tf",), 1, STEPS),
    "failing": ("Failing", ("tf",), 1, STEPS),
}
EQUAL = ("folder", "subset", "pictures", "own", "whole", "failing")
# What stays as it is, and what is said of it.
REFUSED = {
    "drawing": "random numbers are drawn before the cut",
    "writing": "the data set writes to files while it makes a sample",
    "scaled": "the transform's result is not a part of the sample",
}

# Each with what is tried: to start workers takes seconds.
METHODS = {
    "none:0": (*EQUAL, *REFUSED),
    "fork:2": ("folder", "pictures", "whole", "failing"),
    "spawn:1": ("folder", "whole"),
}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("torchvision")
    folder = tmp_path_factory.mktemp("pictures")
    for kind in range(2):
        (folder / str(kind)).mkdir()
        for number in range(12):
            noise = bytes((number * 7 + place * (kind + 3)) % 251 for place in range(40 * 30 * 3))
            made = image.frombytes("RGB", (40, 30), noise)
            made.save(folder / str(kind) / f"{number}.png")
    return folder


class Ran:
    """What a run of programs/transforms/kept.py printed, by word, and what its data sets made."""

    def __init__(self, ended, calls):
        assert ended.code == 0, ended.err.decode()
        self.err = ended.err.decode()
        self.printed, self.made = (
            dict(zip(parts[1::2], parts[2::2], strict=True))
            for text in (ended.out.decode(), calls.read_text())
            for parts in [re.split(r"^== (\S+)\n", text, flags=re.MULTILINE)]
        )
        self.made = {word: Counter(rows.splitlines()) for word, rows in self.made.items()}


def settings_file(folder, names, method, **changes):
    """A file of settings that keep samples of these kinds in `folder`."""
    start, _, workers = method.partition(":")
    setting = Setting(int(workers), start_method=None if start == "none" else start)
    entries = []
    for name in names:
        kind, path, cut, operations = KINDS[name]
        cache = {"path": path, "cut": cut, "operations": operations, "budget_bytes": 1 << 28}
        cache = SampleCache(**{"folder": str(folder / "kept"), **cache, **changes})
        entries.append(Entry(Target(dataset=kind), setting, cache=cache))
    tuned_file.write(folder / "plan.json", Tuned(tuple(entries)))
    return folder / "plan.json"


def start(folder, pictures, words, settings=None):
    """Run programs/transforms/kept.py in the folder above: a cache's key has the working directory.

    Its streams and the file `calls` have the folder's name.
    """
    command = command_of("transforms/kept.py", [str(pictures), *words])
    if settings is not None:
        command = [*LOTUS, "run", "--settings", str(settings), "--", *command]
    calls = folder.with_suffix(".calls")
    calls.touch()
    started = Start(command, folder.parent, folder.name, {"CALLS": str(calls)})
    return Ran(started.end(), calls)


@pytest.fixture(scope="module", params=METHODS)
def runs(request, torch, tmp_path_factory, pictures):
    """(plain, first, second, method): without lotus, and twice with samples cached."""
    method, folder = request.param, tmp_path_factory.mktemp("kept")
    names = METHODS[method]
    words = [f"{name}:{method}" for name in names]
    settings = settings_file(folder, names, method)
    plain = start(folder / "plain", pictures, words)
    first = start(folder / "first", pictures, words, settings)
    return plain, first, start(folder / "second", pictures, words, settings), method


@pytest.mark.parametrize("name", EQUAL)
def test_batches_are_equal_and_nothing_is_made_again(runs, name):
    plain, first, second, method = runs
    word = f"{name}:{method}"
    if word not in plain.printed:
        pytest.skip("tried with other ways to start workers")
    assert first.printed[word] == second.printed[word] == plain.printed[word]
    # AND random numbers went on as without.
    assert "state" in plain.printed[word]
    # AND the second run made nothing, but for the first hit of each worker of both epochs, which is
    # compared; in the first, two workers may both make a sample.
    compared = 2 * max(1, int(method.partition(":")[2]))
    assert set(plain.made[word].values()) >= {2} or name == "failing"
    if name == "subset":  # of the data set before, whose samples are cached
        assert first.made[word].total() <= compared
    else:
        assert first.made[word].keys() == plain.made[word].keys()
        assert first.made[word].total() < plain.made[word].total() or name == "failing"
    assert second.made[word].total() <= compared


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_cached_is_made_as_ever(runs, name):
    plain, *others, method = runs
    word = f"{name}:{method}"
    if word not in plain.printed:
        pytest.skip("tried with other ways to start workers")
    for run in others:
        assert run.printed[word] == plain.printed[word]
        assert run.made[word] == plain.made[word]
        assert f"lotus: samples are not cached: {REFUSED[name]}" in run.err


def test_what_the_program_prints_stays(runs):
    plain, first, second, method = runs
    assert plain.err == ""
    for run in (first, second):
        assert "samples came from the cache" in run.err
        rows = [row for row in run.err.splitlines() if not row.startswith("lotus: ")]
        assert rows == []
    # AND an exception of the data set has no frame of ours.
    if f"failing:{method}" in plain.printed:
        text = plain.printed[f"failing:{method}"]
        assert "no sample 7" in text
        assert ("Traceback" in text) == (method != "none:0")


def test_ranks_share_a_cache(torch, tmp_path, pictures):
    method = "fork:1"
    folder = tmp_path / "pictures" / "0"
    folder.mkdir(parents=True)
    for path in sorted((pictures / "0").iterdir()):
        (folder / path.name).write_bytes(path.read_bytes())
    settings = settings_file(tmp_path, ["folder"], method)
    words = command_of(
        "ranks/kept_ranks.py", [str(tmp_path / "pictures"), method.partition(":")[2]]
    )
    run = [*LOTUS, "run", "-f", "--settings", str(settings), "--", *words]
    ended = Start(run, tmp_path, "job", {}).end()
    text = ended.out.decode() + ended.err.decode()
    assert ended.code == 0, text
    for rank in range(2):
        assert f"rank {rank}: 4 batches, equal: True" in text
    # AND what one rank has cached in the first epoch, the other had in the second.
    assert "lotus: 12 of 24 samples came from the cache" in text
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_a_changed_file_is_read_again(torch, tmp_path, pictures):
    word, settings = "pictures:none:0", settings_file(tmp_path, ["pictures"], "none:0")
    start(tmp_path / "before", pictures, [word], settings)
    changed = pictures / "0" / "3.png"
    before = changed.read_bytes()
    try:
        changed.write_bytes((pictures / "1" / "4.png").read_bytes())
        plain = start(tmp_path / "plain", pictures, [word])
        kept = start(tmp_path / "kept_again", pictures, [word], settings)
    finally:
        changed.write_bytes(before)
    assert kept.printed == plain.printed
    # AND no other one, but for the first of each epoch, which is compared.
    made = {name.rpartition("/")[2] for name in kept.made[word]}
    assert "3.png" in made
    assert len(made) <= 3


def test_other_operations_are_refused(torch, tmp_path, pictures):
    word = "pictures:none:0"
    settings = settings_file(tmp_path, ["pictures"], "none:0", operations=("Resize",))
    kept = start(tmp_path / "run", pictures, [word], settings)
    assert set(kept.made[word].values()) == {2}
    assert "are not cached: its transform is" in kept.err
    assert "samples came from the cache" not in kept.err


def test_a_data_set_that_changes_with_epochs(torch, tmp_path, pictures):
    word, settings = "growing:none:0", settings_file(tmp_path, ["growing"], "none:0")
    plain = start(tmp_path / "plain", pictures, [word])
    kept = start(tmp_path / "run", pictures, [word], settings)
    assert kept.printed == plain.printed
    assert kept.made == plain.made
    assert "its data set is another one from epoch to epoch" in kept.err
    assert len(list((tmp_path / "kept").iterdir())) == 3
