"""PyTorch Geometric's data sets, transforms and loaders of graphs."""

from collections import Counter

import pytest

from tests.compat import counted


@pytest.fixture(scope="module")
def loops(both):
    return both("torch_geometric", "geometric_loop.py")


def test_the_graphs_are_the_same(loops):
    counted.same(*loops)


def test_its_loaders_are_counted(loops):
    run = loops[1].run
    counted.sound(run)
    assert run.loaders["dataset"].tolist() == [
        "InMemory", "Single", "InMemory", "Single", "Single", "list", "range",
    ]  # fmt: skip
    assert run.loaders["class"].tolist() == ["DataLoader"] * 6 + ["RandomNodeLoader"]
    ten = (3, 10)
    assert counted.epochs(run) == {
        0: [ten, ten],
        1: [ten],
        2: [ten, ten],
        3: [ten],
        4: [(3, 9)],  # of three graphs with four nodes each
        5: [(3, 5)],
        6: [(2, 4)],  # nodes of one graph
    }
    assert run.epochs["exhausted"].all()


def test_its_workers_and_operations_are_right(loops):
    run = loops[1].run
    here, two = [{-1}], [{0, 1}]
    assert counted.workers(run) == {
        0: here * 2, 1: here, 2: two * 2, 3: two, 4: here, 5: here, 6: here,
    }  # fmt: skip
    counts = {loader: Counter(rows) for loader, rows in run.ops.groupby("loader")["operation"]}
    single, both = ({"RandomJitter": count, "NormalizeFeatures": count} for count in (10, 20))
    # A sampler of batches of a number of nodes asks each graph for its size, transformed, and the
    # one that no longer fits into a batch again for the next.
    assert counts.pop(-1) == {"NormalizeFeatures": 9 + 2}
    assert counts.pop(4) == {"NormalizeFeatures": 9}
    assert counts == {0: both, 1: single, 2: both, 3: single}
