"""Run.syncs: when gradients were computed and averaged."""

from lotus.inside.trace.log import log_format
from lotus.reading.run import load
from tests.logs import RunBuilder, pack_frame, pack_header

WHOSE = ["rank", "local_rank", "world_size", "host", "pid"]


def sync(log, step, start, ready, end):
    times = {"start_ns": start, "ready_ns": ready, "end_ns": end}
    log.data += pack_frame(log_format.SYNC, {"step": step, "tid": log.pid, "models": 1, **times})


def test_each_pass_is_a_row_of_its_rank(tmp_path):
    # GIVEN two ranks, of which one made a pass more
    run = RunBuilder(tmp_path / "run")
    for rank, passes in ((1, 2), (0, 1)):
        log = run.process(100 + rank, rank=rank, local_rank=rank, world_size=2)
        for step in range(passes):
            sync(log, step, 1000 * step + 10, 1000 * step + 400, 1000 * step + 450 + rank)
    # WHEN they are asked for, THEN they are by rank and step, and what nothing overlaps is told
    table = load(run.end()).syncs
    assert table.columns.tolist() == [
        *WHOSE, "step", "start_ns", "ready_ns", "end_ns", "exposed_ns",
    ]  # fmt: skip
    assert table.drop(columns=["host"]).to_numpy().tolist() == [
        [0, 0, 2, 100, 0, 10, 400, 450, 50],
        [1, 1, 2, 101, 0, 10, 400, 451, 51],
        [1, 1, 2, 101, 1, 1010, 1400, 1451, 51],
    ]
    assert {str(table[name].dtype) for name in table.columns[5:]} == {"int64"}


def test_a_run_without_such_passes_has_an_empty_table(tmp_path):
    # GIVEN a run of one process, and one of before this was recorded
    run = RunBuilder(tmp_path / "run")
    run.process(100).wait(0, 0, 0, start_ns=1, end_ns=2)
    old = run.process(101)
    frames = [frame for frame in log_format.description() if frame["name"] != "sync"]
    old.data[: old.header_size] = pack_header(pid=101, frames=frames)
    old.wait(0, 0, 0, start_ns=1, end_ns=2)
    # WHEN it is read, THEN the table is empty, with its columns, and nothing counts as lost
    loaded = load(run.end())
    assert len(loaded.waits) == 2
    assert not len(loaded.lost)
    assert loaded.syncs.columns.tolist()[5:] == [
        "step", "start_ns", "ready_ns", "end_ns", "exposed_ns",
    ]  # fmt: skip
    assert not len(loaded.syncs)


def test_models_are_told_apart_by_the_shapes_of_what_they_train(tmp_path):
    # GIVEN a rank with two models, and a damaged event
    run = RunBuilder(tmp_path / "run")
    log = run.process(100, rank=1, local_rank=1, world_size=2)
    for parameters, shapes in ((7, "a" * 64), (83, "b" * 64), (-1, "c"), (1 << 70, "d")):
        log.event("model", parameters=parameters, shapes=shapes)
    # WHEN they are asked for, THEN both are there, and the rest counts as lost
    loaded = load(run.end())
    assert loaded.models.columns.tolist() == [*WHOSE, "parameters", "shapes"]
    assert loaded.models["parameters"].tolist() == [7, 83]
    assert loaded.models["rank"].tolist() == [1, 1]
    assert loaded.lost["count"].sum() == 2
