"""`lotus run` with alternatives: batches stay equal, or nearly so where that was allowed."""

import random
import re

import pytest

import lotus
from lotus.settings import tuned_file
from lotus.settings.space import Setting
from lotus.settings.tuned_file import AlternativeUse, Entry, SampleCache, Target, Tuned
from tests.integration.conftest import LOTUS, Start, command_of

USES = (AlternativeUse("in_place_normalize", True), AlternativeUse("uint8_tensors", False))
SETTINGS = {
    "Alone": Setting(0),
    "Forked": Setting(2, start_method="fork"),
    "Spawned": Setting(1, start_method="spawn"),
}
OPERATIONS = ("RandomResizedCrop", "RandomHorizontalFlip", "ToTensor", "Normalize")
LEVEL = 1 / 255 / 0.2  # of a pixel, normalised


@pytest.fixture
def pictures(tmp_path):
    """Pictures as they are met: in colour, in grey, for print, and a PNG."""
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("torchvision")
    chance = random.Random(1)
    for number, mode in enumerate(["RGB", "L", "CMYK", "RGB", "RGB", "RGB", "RGB"]):
        folder = tmp_path / "pictures" / str(number % 2)
        folder.mkdir(parents=True, exist_ok=True)
        bands = len(mode)
        small = image.frombytes(mode, (8, 6), chance.randbytes(8 * 6 * bands))
        name = f"{number}.png" if number == 6 else f"{number}.jpg"
        small.resize((80, 60)).save(folder / name)
    return tmp_path / "pictures"


def lines(ended, kind):
    return [row for row in ended.out.decode().splitlines() if row.startswith(kind)]


def means(ended):
    return [float(word) for row in lines(ended, "means") for word in row.split()[1:]]


def test_batches_are_equal_or_as_near_as_was_allowed(torch, tmp_path, pictures):
    cache = SampleCache(("transform",), 0, OPERATIONS, str(tmp_path / "cache"), 1 << 28)
    for name, changes in (("advice", {"alternatives": USES}), ("plan", {"cache": cache})):
        entries = [Entry(Target(dataset=kind), SETTINGS[kind], **changes) for kind in SETTINGS]
        tuned_file.write(tmp_path / f"{name}.json", Tuned(tuple(entries)))
    run = [*LOTUS, "run", "--settings", str(tmp_path / "advice.json")]
    with_all = [*run, "--allow", "uint8_tensors", "--"]
    traced = [*with_all, *LOTUS, "trace", "-q", "-o", str(tmp_path / "run"), "--"]
    caching = [*run, "--settings", str(tmp_path / "plan.json")]
    caching_all = [*caching, "--allow", "uint8_tensors", "--"]
    cached = [*caching, "--"], caching_all, [*caching_all, *LOTUS, "trace", "-q", "--"]
    ended = []
    for number, before in enumerate(([], [*run, "--"], with_all, traced, *cached)):
        copy = tmp_path / str(number) / "pictures"  # the program damages one
        copy.mkdir(parents=True)
        for path in pictures.rglob("*.*"):
            (copy / path.parent.name).mkdir(exist_ok=True)
            (copy / path.parent.name / path.name).write_bytes(path.read_bytes())
        words = [str(copy), *(["traced"] if "trace" in before else [])]
        command = [*before, *command_of("transforms/pictured.py", words)]
        ended.append(Start(command, tmp_path / str(number), "run", {}).end())
    plain, exact, allowed, traced_too, cached_exact, cached_allowed, both_traced = ended

    # Without --allow nothing changes, and one line says what was left out.
    assert plain.code == exact.code == allowed.code == 1
    assert exact.out == plain.out
    text = exact.err.decode()
    assert "uint8_tensors is left out, as it may change values; --allow uint8_tensors" in text
    for kind in SETTINGS:
        assert f"put in for the loader of {kind}" in text
    assert "is left out: its result is not equal" not in text

    # With it random numbers, labels and shapes stay, and pixels nearly.
    assert lines(allowed, "same") == lines(plain, "same")
    assert lines(allowed, "bits") != lines(plain, "bits")
    pairs = list(zip(means(allowed), means(plain), strict=True))
    assert max(abs(new - own) for new, own in pairs) < LEVEL
    assert ": uint8_tensors\n" in allowed.err.decode()

    # What alternatives make can be cached, and is then the same again: decoded pictures, in each
    # second epoch. The damaged one is read again.
    for kept, made in ((cached_exact, exact), (cached_allowed, allowed), (both_traced, allowed)):
        assert lines(kept, "bits") == lines(made, "bits")
        text = kept.err.decode()
        assert text.count(" are cached as RandomResizedCrop") == len(SETTINGS), text
        assert "samples are not cached" not in text
        counted = re.search(r"(\d+) of \d+ samples came from the cache", text)
        assert counted is not None, text
        assert int(counted[1]) >= 7 * len(SETTINGS)
    assert "as RandomResizedCropTensor gets them" in cached_allowed.err.decode()

    # A trace changes nothing of that, and shows what makes the samples.
    for kind in ("bits", "means"):
        assert lines(traced_too, kind) == lines(allowed, kind)
    assert "no alternatives" not in traced_too.err.decode()
    recorded = lotus.load(tmp_path / "run")
    operations = recorded.ops.groupby("loader")["operation"].unique()
    assert len(operations) == len(SETTINGS)
    for names in operations:
        assert {"Loader", "RandomResizedCropTensor", "RandomHorizontalFlip", "ToFloat"} == set(
            names
        )
    # The batch with the damaged picture is not collated.
    assert (recorded.batches["collate_ns"] == 0).tolist() == [*[False] * 19, True]

    # The program's own error, as it stands without lotus.
    rows = [row for row in plain.err.decode().splitlines() if "UnidentifiedImageError" in row]
    for other in (exact, allowed, cached_exact, cached_allowed):
        error = other.err.decode()
        assert "UnidentifiedImageError" in error
        assert "alternatives" not in error.partition("Traceback")[2], error
    assert rows


def test_a_name_that_the_settings_lack_starts_nothing(tmp_path):
    entry = Entry(Target(dataset="X"), Setting(0), alternatives=USES)
    tuned_file.write(tmp_path / "advice.json", Tuned((entry,)))
    words = [*LOTUS, "run", "--settings", str(tmp_path / "advice.json"), "--allow", "other", "--"]
    ended = Start([*words, "touch", str(tmp_path / "started")], tmp_path, "run", {}).end()
    assert ended.code == 2
    expected = "--allow other: the settings have only in_place_normalize, uint8_tensors"
    assert expected in ended.err.decode()
    assert not (tmp_path / "started").exists()
