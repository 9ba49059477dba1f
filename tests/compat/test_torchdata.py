"""torchdata's StatefulDataLoader, which is not seen: named as such, and left as it is."""

from tests.compat import counted


def test_a_stateful_loader_goes_on_and_is_named(both):
    plain, traced = both("torchdata", "stateful_loader.py")
    counted.same(plain, traced)
    run = traced.run
    assert [one["what"].rpartition(".")[2] for one in run.unseen] == ["StatefulDataLoader"]
    # torch's own loader beside it is recorded; what the other fetched is of no loader
    counted.sound(run)
    assert counted.epochs(run) == {0: [(5, 20)]}
    assert counted.operations(run)[0] == {"Scale": 1, "Shift": 1}
    assert run.batches["loader"].isin([0, -1]).all()
    assert run.batches.loc[run.batches["loader"] < 0, "wait_ns"].isna().all()
