"""Threads that fetch at the same time in one process: each record has its own thread's work."""

import pytest

from tests.launching import ROOT

PROGRAM = "fetching_threads.py"


@pytest.fixture(params=[("--level", "op"), ("--level", "op+cpu")], ids=["op", "op+cpu"])
def ended(request, pair):
    return pair(PROGRAM, str(ROOT), options=request.param)


def test_every_batch_of_every_thread_is_recorded(ended):
    plain, traced = ended
    assert (traced.code, traced.out, traced.err) == (0, plain.out, plain.err)
    run = traced.run
    assert run.notes == []
    assert run.lost.empty
    batches = run.batches
    sizes = batches[batches["wait_ns"].notna()].groupby("loader")["size"].agg(list)
    assert sorted(sizes[:2]) == [[3, 3, 3, 3], [4, 4, 4]]
    assert sorted(sizes[2:4]) == [[4, 4, 4], [6, 6]]
    assert sizes[4] == [5, 5, 2]
    assert batches["fetch_ns"].notna().all()
    # A loader has one thread, and no two loaders that are iterated at once have the same
    tids = batches.groupby("loader")["tid"].unique()
    assert all(len(of_loader) == 1 for of_loader in tids)
    assert tids[0][0] != tids[1][0]
    assert tids[2][0] != tids[3][0]
    assert (batches["tid"] != batches["pid"]).all()
    waits = run.waits.groupby("loader")["tid"].unique()
    assert all(waits[loader].tolist() == tids[loader].tolist() for loader in waits.index)


def test_an_operation_belongs_to_the_fetch_of_its_thread(ended):
    run = ended[1].run
    batches = run.batches.set_index(["loader", "epoch", "batch"])
    of_data = {
        3: ("read b", "Twice"),
        4: ("read a", "Add"),
        5: ("read a", "Add"),
        6: ("read b", "Twice"),
    }
    samples = run.samples
    for loader, own in samples.groupby("loader"):
        size = int(batches.loc[loader, "size"].iloc[0])
        assert len(own) == 12
        ops = run.ops[(run.ops["loader"] == loader) & (run.ops["position"] >= 0)]
        named = ops.assign(operation=ops["operation"].astype(str))
        per_sample = named.groupby(["batch", "position"])["operation"].agg(list)
        assert per_sample.tolist() == [list(of_data[size])] * 12
        assert set(ops["tid"]) == set(batches.loc[loader, "tid"])
        assert (own["self_ns"] > 0).all()
    # Spans of collate belong to the batch, not to a sample
    stacked = run.ops[run.ops["operation"] == "stack"]
    assert (stacked["position"] == -1).all()
    assert stacked.groupby("loader")["batch"].agg(sorted).tolist() in (
        [[0, 1, 2], [0, 1, 2, 3]],
        [[0, 1, 2, 3], [0, 1, 2]],
    )
    # AND what the main thread does meanwhile is of no fetch
    work = run.ops[run.ops["operation"] == "work"]
    assert len(work) == 12
    assert (work["tid"] == work["pid"]).all()
    assert (work[["loader", "batch", "position"]] == -1).all(axis=None)
    if "cpu_ns" in run.ops:
        assert run.ops["cpu_ns"].notna().all()
