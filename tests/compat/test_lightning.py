"""A Lightning Trainer with a LightningDataModule: fit with validation, then test."""

import pytest

from tests.compat import counted


@pytest.fixture(scope="module")
def fit(both):
    return both("lightning", "lightning_fit.py")


def test_the_fit_is_the_same(fit):
    """Every batch and loss bit for bit, the weights, what is logged and what is warned of."""
    counted.same(*fit)


def test_its_loaders_are_counted(fit):
    run = fit[1].run
    counted.sound(run)
    # The validation loader is first: before the fit one batch of it is tried.
    assert run.loaders["dataset"].tolist() == ["Subset", "Subset", "Rows"]
    assert run.loaders["num_workers"].tolist() == [1, 2, 0]
    assert run.loaders["persistent_workers"].tolist() == [False, True, False]
    assert set(run.loaders["call_site"].str.partition(":")[0]) == {"lightning_fit.py"}
    assert counted.epochs(run) == {
        0: [(1, 4), (2, 8), (2, 8)],
        1: [(6, 24), (6, 24)],
        2: [(3, 10)],
    }
    # Validation was tried once before the fit, which is no epoch of it.
    assert run.epochs["sanity"].tolist() == [True] + [False] * 5
    assert not run.epochs["ahead"].any()
    assert run.loaders["name"].tolist() == ["val", "train", "test"]
    # The Trainer asks for as many batches as a loader says that it has, and not for its end.
    assert not run.epochs["exhausted"].any()


def test_its_workers_and_operations_are_right(fit):
    run = fit[1].run
    assert counted.workers(run) == {0: [{0}] * 3, 1: [{0, 1}] * 2, 2: [{-1}]}
    each = {"Scale": 1, "Shift": 1}
    assert counted.operations(run) == {0: each, 1: each, 2: each}
    # A batch that nobody took may have been cut short with its worker.
    taken = counted.fetched(run)
    noted = counted.counts_noted(fit[1])
    assert taken.keys() <= noted.keys()
    assert all(taken[key] <= noted[key] for key in noted)
    assert sum(taken.values()) >= 20 + 48 + 10
