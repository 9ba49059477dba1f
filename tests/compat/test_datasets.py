"""Data sets of Hugging Face in torch's loader: map style, with a transform, and as streams."""

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
    assert run.loaders["dataset"].tolist() == ["Dataset"] * 3 + ["IterableDataset"] * 3
    assert counted.epochs(run) == {
        0: [(4, 20), (4, 20)],
        1: [(4, 20), (4, 20)],
        2: [(3, 18)],
        3: [(5, 20), (5, 20)],  # three shards: one worker has two of them
        4: [(6, 20)],
        5: [(3, 5)],
    }
    assert run.epochs["exhausted"].all()
    # A map-style data set is asked for whole batches, a stream for one sample after the other.
    samples = run.samples.groupby("loader")
    assert samples["many"].sum().tolist() == [8, 8, 3, 0, 0, 0]
    assert samples.size().tolist() == [8, 8, 3, 40, 20, 5]


def test_their_workers_and_operations_are_right(loops):
    run = loops[1].run
    two = [{0, 1}]
    assert counted.workers(run) == {
        0: two * 2, 1: two * 2, 2: [{-1}], 3: two * 2, 4: two, 5: [{-1}],
    }  # fmt: skip
    # The transform is called once a batch, and also where no loader asks for rows.
    ops = run.ops
    assert set(ops["operation"]) == {"augment"}
    inside = ops[ops["position"] >= 0]
    assert inside.groupby("loader").size().to_dict() == {1: 8, 2: 3}
    assert (ops["loader"] == -1).sum() == 21  # map() takes each row, shuffle()[:2] one piece
