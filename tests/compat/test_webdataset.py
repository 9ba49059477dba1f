"""WebDataset's pipelines of stages over tar files, in torch's loader and in WebDataset's own."""

from collections import Counter

import pytest

from tests.compat import counted


@pytest.fixture(scope="module")
def loops(both):
    return both("webdataset", "webdataset_loop.py")


def test_the_samples_are_the_same(loops):
    counted.same(*loops)


def test_their_loaders_are_counted(loops):
    run = loops[1].run
    counted.sound(run)
    assert run.loaders["dataset"].tolist() == ["WebDataset"] * 4 + ["DataPipeline"]
    two = [{0, 1}]  # one shard each
    assert counted.workers(run) == {0: [{-1}] * 2, 1: two, 2: [{-1}], 3: two, 4: [{-1}]}
    # Where the pipeline makes the batches, torch's loader asks it once for each.
    assert counted.epochs(run) == {
        0: [(6, 16), (6, 16)],
        1: [(6, 16)],
        2: [(6, 22)],
        3: [(6, 22)],
        4: [(2, 7)],
    }
    assert run.epochs["exhausted"].all()
    assert run.samples.groupby("loader").size().tolist() == [32, 16, 6, 6, 7]


def test_their_stages_are_operations(loops):
    run = loops[1].run
    assert (run.ops["position"] >= 0).all()
    counts = {loader: Counter(rows) for loader, rows in run.ops.groupby("loader")["operation"]}
    # Of a shard two files a sample are read, and its end.
    files = 2 * 16 + 2
    mapped = {
        "StreamingOpen": 2, "tar_file_expander": files, "decode": 16, "parse": 16,
        "map_dict:noisy": 16, "map_dict:negative": 16, "to_tuple": 16, "map_tuple:Compose": 16,
        "map_tuple:Compose/Scale": 16, "map_tuple:Compose/Shift": 16, "map_tuple:negative": 16,
    }  # fmt: skip
    # Eleven of the 16 have a class below 2.
    own = {
        "StreamingOpen": 2, "tar_file_expander": files, "decode": 16, "parse": 16, "small": 16,
        "rename": 11, "to_tuple": 11, "pairs": 22, "map_tuple:add": 22, "batched": 6,
    }  # fmt: skip
    assert counts[0] == {name: 2 * count for name, count in mapped.items()}
    assert counts[1] == mapped
    assert counts[2] == counts[3] == own
    # Of classes 0, 1, 2, 0 and so on those of 0 are left out: 11 are tried for 7.
    assert counts[4]["lambda"] == counts[4]["decode"] == 11


def test_their_parts_add_up(loops):
    """Stages take turns: those that are not inside another one never overlap."""
    run = loops[1].run
    samples = run.samples
    assert (samples["self_ns"] >= 0).all()
    outer = run.ops[~run.ops["nested"]].sort_values(["pid", "start_ns"])
    ends = outer["start_ns"] + outer["duration_ns"]
    following = outer.groupby("pid")["start_ns"].shift(-1)
    assert (ends <= following.fillna(ends)).all()
    assert outer["duration_ns"].sum() == samples["ops_ns"].sum()
