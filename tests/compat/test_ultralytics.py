"""ultralytics' InfiniteDataLoader: one iterator for all epochs."""

import pytest

from tests.compat import counted


@pytest.fixture(scope="module")
def loop(both):
    return both("ultralytics", "ultralytics_loop.py")


def test_its_batches_are_the_same(loop):
    plain, traced = loop
    assert (plain.code, traced.code) == (0, 0), plain.err.decode()
    # The library tells of its own files, whose places differ.
    lines = [[line for line in ended.out.splitlines() if line[:1].isdigit()] for ended in loop]
    assert lines[0] == lines[1]
    assert len(lines[0]) == 6


def test_its_batches_are_counted_as_one_epoch(loop):
    run = loop[1].run
    counted.sound(run)
    assert run.loaders["dataset"].tolist() == ["Rows"]
    # Its iterator never ends: three batches of each of two epochs.
    assert counted.epochs(run) == {0: [(6, 24)]}
    assert not run.epochs["exhausted"].any()
    assert counted.workers(run) == {0: [{0, 1}]}
    assert counted.operations(run) == {0: {"Scale": 1}}
