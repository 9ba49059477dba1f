"""torchdata's StatefulDataLoader: recorded as torch's, with its snapshots, and left as it is."""

import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.samples.operation_statistics import worker_time_table
from tests.compat import counted

# Of each pair of loaders: without workers, persistent workers, spawned ones; then of streams.
EPOCHS = {
    0: [(3, 9)],
    1: [(4, 11), (7, 20)],
    2: [(3, 9)],
    3: [(4, 11), (7, 20)],
    4: [(3, 9)],
    5: [(4, 11), (7, 20)],
    6: [(3, 9)],
    7: [(4, 11), (7, 20)],
    8: [(3, 9)],  # each worker has all 20 items
    9: [(11, 31), (14, 40)],
    10: [(5, 20)],  # torch's
}
WITH_WORKERS = (2, 3, 4, 5, 8, 9)


@pytest.fixture(scope="module")
def ended(both):
    return both("torchdata", "stateful_loader.py")


def test_a_stateful_loader_goes_on_as_untraced_and_is_recorded(ended):
    plain, traced = ended
    # The batches, the states and the random numbers after them
    counted.same(plain, traced)
    run = traced.run
    assert run.unseen == []
    counted.sound(run)
    assert counted.epochs(run) == EPOCHS
    for loader, sets in counted.workers(run).items():
        expected = {0} if loader == 10 else {0, 1} if loader in WITH_WORKERS else {-1}
        assert all(numbers == expected for numbers in sets), loader
    for loader, counts in counted.operations(run).items():
        assert counts == {"Scale": 1, "Shift": 1}, loader
    sent = run.batches[run.batches["loader"].isin(WITH_WORKERS) & run.batches["wait_ns"].notna()]
    assert sent["send_ns"].notna().mean() > 0.9
    assert (run.batches.loc[run.batches["size"] > 0, "collate_ns"] > 0).all()
    loaders = run.loaders.set_index("loader")["snapshot_every_n_steps"]
    assert loaders[:10].tolist() == [1, 2] * 5
    assert pd.isna(loaders[10])


def test_its_snapshots_are_a_part_of_their_own(ended):
    run = ended[1].run
    made = run.batches[run.batches["fetch_ns"].notna()]
    every = made[made["loader"].isin([2, 4, 8])]
    others = made[~made["loader"].isin(WITH_WORKERS)]
    # A worker takes its part after each fetch, before the batch is sent
    assert (every["snapshot_ns"] > 0).all()
    assert (others["snapshot_ns"] == 0).all()
    after = every["fetch_start_ns"] + every["fetch_ns"]
    assert (after + every["snapshot_ns"] <= every["put_ns"]).all()
    # The main process takes its part in each `next` of a loader that takes them at each step
    waits = run.waits
    in_next = waits[waits["loader"].isin([2, 4, 8])]
    assert (in_next["snapshot_ns"] > 0).all()
    assert (waits["snapshot_ns"] <= waits["wait_ns"]).all()
    assert (waits.loc[waits["loader"].isin([0, 1, 6, 7, 10]), "snapshot_ns"] == 0).all()
    # Its iterators draw from the sampler by torch's own method
    assert (waits["sampler_ns"] >= 0).all()
    assert (waits.loc[waits["batch"] == 0, "sampler_ns"] > 0).all()
    # `state_dict()` is the program's own call, in its training step
    states = run.epochs.groupby("loader")["state_dict_ns"].sum()
    assert (states[[0, 2, 4, 6, 8]] > 0).all()
    assert states[10] == 0
    # The report has them in rows of their own
    (scope,) = scopes(run, [2])
    parts = worker_time_table(scope).set_index("part")["total_ns"]
    assert parts["snapshot of the state"] == every.loc[every["loader"] == 2, "snapshot_ns"].sum()
