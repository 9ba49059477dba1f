"""Loaders that accelerate prepares: its adapter, batches skipped, batches and streams sharded."""

import pytest

from tests.compat import counted


@pytest.fixture(scope="module")
def training(both):
    return both("accelerate", "accelerate_train.py")


def test_the_training_is_the_same(training):
    counted.same(*training)


def test_its_loaders_are_counted(training):
    run = training[1].run
    counted.sound(run)
    # It iterates torch's loader that it holds, one batch ahead.
    assert set(run.loaders["class"]) == {"DataLoader"}
    assert run.loaders["batch_sampler"].tolist()[2:4] == ["SkipBatchSampler", "BatchSamplerShard"]
    assert counted.epochs(run) == {
        0: [(6, 24), (6, 24)],
        1: [(3, 10), (3, 10)],
        2: [(2, 8)],  # the last two of six
        3: [(4, 8)],  # half of eight
        4: [(3, 6)],
        5: [(4, 8)],
        6: [(3, 6)],
    }
    assert run.epochs["exhausted"].all()
    assert (run.epochs["ahead"] == 1).all()
    assert run.loaders["dataset_kind"].tolist()[4::2] == ["iterable", "iterable"]


def test_its_workers_and_operations_are_right(training):
    run = training[1].run
    two, single = [{0, 1}], [{0}]
    assert counted.workers(run) == {
        0: two * 2, 1: [{-1}] * 2, 2: two, 3: single, 4: single, 5: single, 6: single,
    }  # fmt: skip
    each = {"Scale": 1, "Shift": 1}
    assert counted.operations(run) == {0: each, 1: each, 2: each, 3: each, 5: each}
    noted, fetched = counted.counts_noted(training[1]), counted.fetched(run)
    streams = run.batches[run.batches["loader"].isin([4, 6])]["pid"]
    # A shard of a stream reads all of it and gives its half.
    assert {noted.pop((0, pid)) for pid in set(streams)} == {12}
    assert {fetched.pop((0, pid)) for pid in set(streams)} == {6}
    assert fetched == noted
