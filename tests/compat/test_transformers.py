"""A Trainer of transformers: training with an evaluation after each epoch, then a prediction."""

import pytest

from tests.compat import counted


@pytest.fixture(scope="module")
def training(both):
    return both("transformers", "transformers_train.py")


def test_the_training_is_the_same(training):
    """Every batch and the weights, bit for bit."""
    counted.same(*training)


def test_its_loaders_are_counted(training):
    run = training[1].run
    counted.sound(run)
    # Each evaluation makes a loader of its own.
    assert run.loaders["dataset_length"].tolist() == [24, 6, 6, 5]
    assert counted.epochs(run) == {0: [(6, 24)] * 2, 1: [(2, 6)], 2: [(2, 6)], 3: [(2, 5)]}
    assert run.epochs["exhausted"].all()
    assert (run.epochs["ahead"] == 1).all()  # by accelerate, which it uses


def test_its_workers_and_operations_are_right(training):
    run = training[1].run
    two = {0, 1}
    assert counted.workers(run) == {0: [two] * 2, 1: [two], 2: [two], 3: [two]}
    each = {"Scale": 1, "Shift": 1}
    assert counted.operations(run) == dict.fromkeys(range(4), each)
    assert counted.fetched(run) == counted.counts_noted(training[1])
