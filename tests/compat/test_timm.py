"""timm's data sets, transforms and loaders, as its train.py puts them together."""

import pytest

from tests.compat import counted


@pytest.fixture(scope="module")
def loops(both):
    return both("timm", "timm_loaders.py")


def test_the_pictures_are_the_same(loops):
    """Augmented at random in workers, erased and normalised by timm's prefetcher."""
    counted.same(*loops)


def test_its_loaders_are_counted(loops):
    run = loops[1].run
    counted.sound(run)
    assert set(run.loaders["dataset"]) == {"ImageDataset"}
    assert run.loaders["class"].tolist()[2] == "MultiEpochsDataLoader"
    assert counted.epochs(run) == {
        0: [(2, 10), (2, 10)],
        1: [(3, 12)],
        2: [(4, 20)],  # one iterator for all of its epochs, as timm means it
        3: [(3, 12)],
    }
    assert run.epochs["exhausted"].tolist() == [True, True, True, False, True]


def test_its_workers_and_operations_are_right(loops):
    run = loops[1].run
    assert counted.workers(run) == {0: [{0, 1}] * 2, 1: [{0}], 2: [{0}], 3: [{-1}]}
    training = [
        "RandomResizedCropAndInterpolation", "RandomHorizontalFlip", "RandAugment",
        "MaybePILToTensor",
    ]  # fmt: skip
    operations = counted.operations(run)
    for loader in (0, 2):
        # Two are drawn for each picture, by name.
        drawn = [name for name in operations[loader] if name.startswith("RandAugment/")]
        assert sum(operations[loader].pop(name) for name in drawn) == pytest.approx(2)
    evaluation = ["Resize", "CenterCrop", "MaybeToTensor", "Normalize"]
    assert operations == {
        0: dict.fromkeys(training, 1),
        1: dict.fromkeys(evaluation, 1),
        2: dict.fromkeys(training, 1),
        3: dict.fromkeys(evaluation, 1),
    }
