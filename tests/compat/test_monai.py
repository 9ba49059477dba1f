"""MONAI's dictionary transforms, its data sets that cache, and its loaders."""

from collections import Counter

import pytest

from tests.compat import counted


@pytest.fixture(scope="module")
def loops(both):
    return both("monai", "monai_loop.py")


def test_the_volumes_are_the_same(loops):
    """And the hashes of transforms, by which files of a cache are found."""
    counted.same(*loops)


def test_its_loaders_are_counted(loops):
    run = loops[1].run
    counted.sound(run, but=(8,))
    four = ["Dataset", "CacheDataset", "PersistentDataset", "Dataset"]
    assert run.loaders["dataset"].tolist() == [*four, *four, "Dataset"]
    assert run.loaders["class"].tolist() == [
        *["DataLoader"] * 3, "ThreadDataLoader", *["DataLoader"] * 3, *["ThreadDataLoader"] * 2,
    ]  # fmt: skip
    once = [(3, 8)]
    epochs = counted.epochs(run)
    assert epochs.pop(8) == [(2, 0)]  # how many samples a thread took is not seen
    assert epochs == {0: once * 2, **dict.fromkeys([1, 2, 3], once), 4: once * 2,
                      **dict.fromkeys([5, 6, 7], once)}  # fmt: skip
    assert run.epochs["exhausted"].all()
    assert [each["what"].rpartition(".")[2] for each in run.unseen] == ["ThreadDataLoader"]
    assert run.unseen[0]["why"] == "its workers are threads"


def test_its_workers_and_operations_are_right(loops):
    run = loops[1].run
    here, two = {-1}, {0, 1}
    makers = counted.workers(run)
    assert [makers[loader] for loader in range(8)] == [
        [here] * 2, [here], [here], [here], [two] * 2, [two], [two], [two],
    ]  # fmt: skip
    ops = run.ops[run.ops["loader"] >= 0]
    counts = {loader: Counter(rows) for loader, rows in ops.groupby("loader")["operation"]}
    for number, counted_of in counts.items():
        # One of two at random, for each of the 8 volumes.
        either = counted_of.pop("OneOf/RandGaussianNoised", 0) + counted_of.pop("OneOf/Lambdad", 0)
        assert either == counted_of["OneOf"], number
    # A Compose inside a Compose is not timed by itself: MONAI asks for its type. To its caches it
    # is random, with all that follows.
    names = ["Compose/EnsureChannelFirstd", "Compose/ScaleIntensityd", "RandFlipd", "OneOf"]
    random = dict.fromkeys(names, 8)
    every = {"LoadImaged": 8, **random}
    twice = dict.fromkeys(every, 16)
    # The cache of CacheDataset is filled before the loop. In the second round that of
    # PersistentDataset has what the first one put into it.
    assert counts == {
        0: twice, 1: random, 2: every, 3: every, 4: twice, 5: random, 6: random, 7: every,
    }  # fmt: skip
