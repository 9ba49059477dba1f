"""Data sets of Hugging Face in torch's loader: map style, with a transform, and as streams."""

from collections import Counter

import pytest

from tests.compat import counted


@pytest.fixture(scope="module")
def loops(both):
    return both("datasets", "datasets_loop.py")


def test_the_rows_are_the_same(loops):
    """And so are the fingerprints under which the library keeps what it computed."""
    counted.same(*loops)


def test_their_loaders_are_counted(loops):
    run = loops[1].run
    counted.sound(run)
    assert run.loaders["dataset"].tolist() == [
        *["Dataset"] * 3, *["IterableDataset"] * 5, "Dataset",
    ]  # fmt: skip
    assert counted.epochs(run) == {
        0: [(4, 20), (4, 20)],
        1: [(4, 20), (4, 20)],
        2: [(3, 18)],
        3: [(5, 20), (5, 20)],  # three shards: one worker has two of them
        4: [(6, 20)],
        5: [(3, 5)],
        6: [(4, 10)],
        7: [(4, 10)],
        8: [(4, 20)],
    }
    assert run.epochs["exhausted"].all()
    # A map-style data set is asked for whole batches, a stream for one sample after the other.
    samples = run.samples.groupby("loader")
    assert samples["many"].sum().tolist() == [8, 8, 3, 0, 0, 0, 0, 0, 4]
    # The filter drops the last row of each of the two shards, in search of one more sample.
    assert samples.size().tolist() == [8, 8, 3, 40, 20, 5, 10, 10, 4]


def test_their_workers_and_operations_are_right(loops):
    run = loops[1].run
    two = [{0, 1}]
    assert counted.workers(run) == {
        0: two * 2, 1: two * 2, 2: [{-1}], 3: two * 2, 4: two, 5: [{-1}],
        6: [{-1}], 7: two, 8: [{-1}],
    }  # fmt: skip
    # The transform is called once a batch, the functions of a stream for each row that comes to
    # them; one that is a coroutine is not seen.
    loaders = run.ops[run.ops["loader"] >= 0].groupby("loader")
    assert {loader: dict(Counter(rows)) for loader, rows in loaders["operation"]} == {
        1: {"augment": 8},
        2: {"augment": 3},
        3: {"double": 40},
        6: {"double": 20, "even": 20, "lambda": 10},
        7: {"double": 20, "even": 20, "lambda": 10},
        8: {
            "picture": 4, "picture/RandomHorizontalFlip": 20, "picture/RandomApply": 20,
            "picture/RandomApply/RandomVerticalFlip": 20, "picture/Resize": 20,
        },
    }  # fmt: skip
    outside = run.ops[(run.ops["loader"] == -1) & (run.ops["operation"] == "augment")]
    assert len(outside) == 21  # map() takes each row, shuffle()[:2] one piece


def test_their_parts_add_up(loops):
    """What is in no operation is the data set's own code."""
    run = loops[1].run
    # A shuffled stream reads its shards ahead, in threads, also between samples.
    ops, samples = (table[table["loader"] != 3] for table in (run.ops, run.samples))
    assert (samples["ops_ns"] + samples["self_ns"] == samples["duration_ns"]).all()
    outer = ops[(ops["position"] >= 0) & ~ops["nested"]]
    assert outer["duration_ns"].sum() == samples["ops_ns"].sum()
