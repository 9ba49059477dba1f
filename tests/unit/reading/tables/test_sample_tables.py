"""Samples and operations: times, nesting, sums, and those outside of samples."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lotus.inside.trace.log import log_format
from lotus.reading.logs import frame_scanner
from lotus.reading.run import load
from tests.logs import START_NS, RunBuilder, Sample, pack_frame

SECOND = 1_000_000_000


@pytest.fixture
def run(tmp_path):
    return RunBuilder(tmp_path / "run")


def worker_of(run, **header):
    """A worker of loader 0, epoch 0, with pid 201 and number 0."""
    run.process(100).iterator(0, 0, 500, workers=[201])
    worker = run.process(201, **header)
    worker.worker(0)
    return worker


def test_operations_know_where_they_belong(run):
    # GIVEN two batches of two samples with two operations each
    worker = worker_of(run)
    worker.operations("Loader", kind="loader", index=-1)
    worker.operations("Compose", index=0)
    worker.operations("ToTensor", index=1, parent="Compose")
    for batch in (3, 4):
        worker.batch(
            batch,
            start_ns=1_000 * batch,
            samples=[
                Sample(10 * batch, 100, [("Loader", 60), ("ToTensor", 30)]),
                Sample(10 * batch + 1, 80, [("Loader", 50)]),
            ],
            tid=777,
        )
    # WHEN operations and samples are asked for
    loaded = load(run.end())
    # THEN each row has its keys, names and times
    ops = loaded.ops
    assert ops["batch"].tolist() == [3, 3, 3, 4, 4, 4]
    assert ops["position"].tolist() == [0, 0, 1, 0, 0, 1]
    assert ops["sample"].tolist() == [30, 30, 31, 40, 40, 41]
    assert ops["operation"].tolist() == ["Loader", "ToTensor", "Loader"] * 2
    assert ops["parent"].tolist() == ["", "Compose", ""] * 2
    assert ops["index"].tolist() == [-1, 1, -1] * 2
    assert ops["start_ns"].tolist() == [3_000, 3_060, 3_100, 4_000, 4_060, 4_100]
    assert ops["duration_ns"].tolist() == [60, 30, 50] * 2
    constant = ops[["rank", "pid", "tid", "worker", "loader", "epoch"]].drop_duplicates()
    assert constant.to_numpy().tolist() == [[0, 201, 777, 0, 0, 0]]
    assert not ops["nested"].any()
    samples = loaded.samples
    assert samples["start_ns"].tolist() == [3_000, 3_100, 4_000, 4_100]
    assert samples["ops_ns"].tolist() == [90, 50, 90, 50]
    assert samples["self_ns"].tolist() == [10, 30, 10, 30]
    assert samples["sample"].tolist() == [30, 31, 40, 41]


def test_types(run):
    # GIVEN an operation
    worker = worker_of(run)
    worker.batch(0, start_ns=1, samples=[Sample(0, 10, [("Loader", 5)])])
    # WHEN the table is asked for, THEN times are int64 and names are categories that occur
    ops = load(run.end()).ops
    assert ops["operation"].dtype == "category"
    assert list(ops["operation"].cat.categories) == ["Loader"]
    assert {str(ops[name].dtype) for name in ("start_ns", "duration_ns", "sample")} == {"int64"}
    assert str(ops["nested"].dtype) == "bool"


def test_inner_operations_are_nested_and_counted_once(run):
    # GIVEN a container that holds two operations, and one after it
    worker = worker_of(run)
    ops = [("Flip", 20, 15), ("Jitter", 30, 40), ("RandomApply", 70, 10), ("ToTensor", 10, 85)]
    worker.batch(0, start_ns=1_000, samples=[Sample(0, 100, ops), Sample(1, 100, ops)])
    # WHEN operations and samples are asked for
    loaded = load(run.end())
    # THEN only what lies in the container is nested, and the sample counts its time once
    assert loaded.ops["nested"].tolist() == [True, True, False, False] * 2
    assert loaded.samples["ops_ns"].tolist() == [80, 80]
    assert loaded.samples["self_ns"].tolist() == [20, 20]


def test_neighbours_are_not_nested(run):
    # GIVEN operations of which one starts when the other ends, or took no time
    worker = worker_of(run)
    ops = [("A", 10, 0), ("B", 0, 10), ("C", 10, 10), ("D", 5, 20), ("E", 5, 20)]
    worker.batch(0, start_ns=1_000, samples=[Sample(0, 100, ops)])
    # WHEN operations are asked for, THEN only D, which lies in E from its start on, is nested
    assert load(run.end()).ops["nested"].tolist() == [False, False, False, True, False]


def test_an_operation_never_lies_in_one_of_another_sample(run):
    # GIVEN a worker whose second frame (the outer one, which ends later) holds an operation
    # around all of the first frame: a nested loader's batch inside a sample
    worker = worker_of(run)
    worker.loader(0)
    worker.batch(
        0, loader=0, epoch=0, start_ns=1_100, samples=[Sample(0, 50, [("Inner", 40)])], worker=-1
    )
    worker.batch(0, start_ns=1_000, samples=[Sample(5, 300, [("Outer", 280)])])
    # WHEN operations are asked for, THEN neither is nested, and each sample has its own
    loaded = load(run.end())
    assert loaded.ops["nested"].tolist() == [False, False]
    assert loaded.samples["ops_ns"].tolist() == [40, 280]
    assert loaded.samples["loader"].tolist() == [1, 0]


def test_times_pass_32_bits_of_the_clock(run):
    # GIVEN a sample during which the lower half of the clock starts again
    start = (7 << 32) - 50
    worker = worker_of(run)
    worker.batch(0, start_ns=start, samples=[Sample(0, 200, [("A", 30), ("B", 100), ("C", 20)])])
    # WHEN operations are asked for, THEN their times are whole
    ops = load(run.end()).ops
    assert ops["start_ns"].tolist() == [start, start + 30, start + 130]
    assert ops["duration_ns"].tolist() == [30, 100, 20]


def test_operations_that_are_too_long_for_the_array(run):
    # GIVEN a sample of ten seconds, whose operations the recorder wrote apart, and a short one
    worker = worker_of(run)
    worker.batch(
        0,
        start_ns=SECOND,
        samples=[Sample(8, 10 * SECOND), Sample(9, 100, [("Loader", 60)])],
        loose=[
            ("Decode", SECOND, 2 * SECOND, 201, 0),
            ("Loader", SECOND, 6 * SECOND, 201, 0),
            ("ToTensor", 8 * SECOND, SECOND, 201, 0),
        ],
    )
    # WHEN operations and samples are asked for
    loaded = load(run.end())
    # THEN they belong to their sample like all others
    ops = loaded.ops.sort_values(["position", "start_ns", "duration_ns"])
    assert ops["operation"].tolist() == ["Decode", "Loader", "ToTensor", "Loader"]
    assert ops["nested"].tolist() == [True, False, False, False]
    assert ops["sample"].tolist() == [8, 8, 8, 9]
    assert ops["batch"].tolist() == [0] * 4
    assert loaded.samples["ops_ns"].tolist() == [7 * SECOND, 60]


def test_loose_and_other_operations_of_one_sample_nest(run):
    # GIVEN a region on the fetch thread around one operation and beside another
    worker = worker_of(run)
    ops = [("Inner", 20, 10), ("After", 30, 60)]
    worker.batch(
        0,
        start_ns=1_000,
        samples=[Sample(0, 100, ops), Sample(1, 100, ops)],
        loose=[("region", 1_105, 40, 201, 1)],
    )
    # WHEN operations and samples are asked for
    loaded = load(run.end())
    # THEN in that sample the operation inside the region is nested, and the region counts
    assert loaded.ops["nested"].tolist() == [False, False, True, False, False]
    assert loaded.samples["ops_ns"].tolist() == [50, 70]


def test_a_loose_operation_that_ends_with_the_one_around_it(run):
    # GIVEN a region that ended at the same nanosecond as the operation in which it lies
    worker = worker_of(run)
    worker.batch(
        0,
        start_ns=1_000,
        samples=[Sample(0, 100, [("Outer", 90)])],
        loose=[("region", 1_050, 40, 201, 0)],
    )
    # WHEN operations are asked for, THEN the region is the nested one
    assert load(run.end()).ops["nested"].tolist() == [False, True]


def test_what_other_threads_do_is_not_the_samples_own_time(run):
    # GIVEN an operation on another thread during a sample
    worker = worker_of(run)
    worker.batch(
        0,
        start_ns=1_000,
        samples=[Sample(6, 100, [("Loader", 50)])],
        loose=[("prefetch", 1_010, 80, 999, 0), ("read", 1_020, 30, 999, 0)],
    )
    # WHEN operations and samples are asked for
    loaded = load(run.end())
    # THEN it is a row of that sample and of that thread, beside the sample's own operations
    row = loaded.ops.iloc[1]
    assert (row["tid"], row["sample"], row["batch"], row["position"]) == (999, 6, 0, 0)
    assert loaded.ops["nested"].tolist() == [False, False, True]
    assert loaded.samples["ops_ns"].tolist() == [50]


def test_regions_outside_of_samples(run):
    # GIVEN a region around the collation of a batch, in which another one lies, one on the main
    # thread around a step, one while the worker waits, and one that began before the fetch
    worker = worker_of(run)
    worker.batch(
        7,
        start_ns=1_000,
        samples=[Sample(0, 100)],
        collate_ns=50,
        loose=[
            ("pad", 1_110, 20, 201, 1),
            ("collate", 1_105, 40, 201, 1),
            ("background", 1_010, 50, 555, -1),
            ("early", 900, 150, 201, 0),
        ],
    )
    worker.loose(("idle", 2_000, 10))
    main = run.logs[0]
    main.wait(0, 0, 7, start_ns=1_500, end_ns=1_600, loose=[("forward", 1_700, 90)])
    main.loose(("backward", 1_800, 90))
    # WHEN operations are asked for
    ops = load(run.end()).ops.set_index("operation")
    # THEN only what the fetch thread did during the fetch is of that batch; none is of a sample
    assert set(ops["sample"]) == set(ops["position"]) == {-1}
    places = ops[["pid", "worker", "loader", "epoch", "batch"]]
    assert places.loc["collate"].tolist() == [201, 0, 0, 0, 7]
    assert places.loc["background"].tolist() == [201, 0, 0, -1, -1]
    assert places.loc["early"].tolist() == [201, 0, 0, -1, -1]
    assert places.loc["idle"].tolist() == [201, 0, 0, -1, -1]
    assert places.loc["forward"].tolist() == [100, -1, -1, -1, -1]
    assert places.loc["backward"].tolist() == [100, -1, -1, -1, -1]
    assert ops["nested"][ops["nested"]].index.tolist() == ["pad"]


@pytest.mark.parametrize("index", [[3, 1 << 32], [-1, 5], [1 << 40, 0]])
def test_indices_that_need_64_bits(run, index):
    # GIVEN sample indices beyond 32 bits, or negative
    worker = worker_of(run)
    worker.batch(0, start_ns=1, samples=[Sample(number, 10) for number in index])
    # WHEN samples are asked for, THEN they are what they were
    assert load(run.end()).samples["sample"].tolist() == index


def test_samples_without_index(run):
    # GIVEN an iterable data set, and a batch that failed at its second of three samples
    worker = worker_of(run)
    worker.batch(0, start_ns=1, samples=[Sample(None, 10), Sample(None, 10)])
    worker.batch(
        1,
        start_ns=50,
        samples=[Sample(7, 10), Sample(8, 10)],
        index=[7, 8, 9],
        flags=log_format.FAILED,
    )
    # WHEN samples are asked for, THEN what is known is told
    assert load(run.end()).samples["sample"].tolist() == [-1, -1, 7, 8]


def test_many_samples_in_one_call(run):
    # GIVEN a data set that fetches a batch in one call, and one such batch of a single sample
    worker = worker_of(run)
    for batch, index in enumerate(([4, 5, 6], [9])):
        worker.batch(
            batch,
            start_ns=1_000 * batch + 1,
            samples=[Sample(None, 100, [("Loader", 60), ("Loader", 20)])],
            index=index,
            size=len(index),
            flags=log_format.MANY,
        )
    # WHEN samples are asked for
    loaded = load(run.end())
    # THEN a row covers its batch
    assert loaded.samples["many"].all()
    assert loaded.samples["sample"].tolist() == [-1, 9]
    assert loaded.samples["ops_ns"].tolist() == [80, 80]
    assert loaded.batches["samples_ns"].tolist() == [100, 100]


def test_levels_without_operations_or_samples(tmp_path):
    # GIVEN runs that recorded batches, or batches and samples only
    for level, samples in (("batch", []), ("sample", [Sample(0, 10)])):
        run = RunBuilder(tmp_path / level, level=level)
        worker = worker_of(run, level=level)
        worker.batch(0, start_ns=1_000, samples=samples, size=1, fetch_ns=30)
        # WHEN tables are asked for
        loaded = load(run.end())
        # THEN what was not recorded is not taken for nothing
        assert loaded.ops.empty
        assert len(loaded.samples) == len(samples)
        assert loaded.samples["ops_ns"].isna().all()
        assert loaded.samples["self_ns"].isna().all()
        assert loaded.batches["samples_ns"].isna().tolist() == [level == "batch"]
        assert loaded.batches["self_ns"].isna().tolist() == [level == "batch"]


def test_counters_of_operations(tmp_path):
    # GIVEN level op+cpu, and a frame whose counters are lost
    run = RunBuilder(tmp_path / "run", level="op+cpu")
    worker = worker_of(run, level="op+cpu")
    sample = Sample(0, 100, [("A", 10), ("B", 20)])
    worker.batch(0, start_ns=1_000, samples=[sample])
    worker.batch(
        1,
        start_ns=2_000,
        samples=[sample],
        ops_cpu=[(9, 1, 2, 512), (19, 3, 4, 0)],
        loose=[("pad", 2_110, 5, 201, 1)],
        loose_cpu=[(4, 5, 6, 7)],
    )
    # WHEN operations are asked for, THEN each has its own counters, or none
    ops = load(run.end()).ops
    assert ops["operation"].tolist() == ["A", "B", "A", "B", "pad"]
    counters = ops[["cpu_ns", "minor_faults", "major_faults", "read_bytes"]].to_numpy()
    assert np.isnan(counters[:2]).all()
    assert counters[2:].tolist() == [[9, 1, 2, 512], [19, 3, 4, 0], [4, 5, 6, 7]]


def test_run_delay_and_process_cpu_time_of_operations(tmp_path):
    # GIVEN operations of which the kernel tells how long they had no core, and one of which not
    run = RunBuilder(tmp_path / "run", level="op+cpu")
    worker = worker_of(run, level="op+cpu")
    unmeasured = log_format.UNMEASURED
    worker.batch(
        0,
        start_ns=2_000,
        samples=[Sample(0, 100, [("A", 10), ("B", 20)])],
        ops_cpu=[(9, 1, 2, 512, 1, 30), (19, 3, 4, 0, unmeasured, 19)],
        loose=[("pad", 2_110, 5, 201, 1)],
        loose_cpu=[(unmeasured,) * 6],
    )
    # WHEN operations are asked for, THEN what is not known is no number
    ops = load(run.end()).ops
    assert ops["run_delay_ns"].fillna(-1).tolist() == [1, -1, -1]
    assert ops["process_cpu_ns"].fillna(-1).tolist() == [30, 19, -1]
    assert ops["cpu_ns"].fillna(-1).tolist() == [9, 19, -1]


def test_operations_of_a_log_without_their_run_delay(tmp_path, monkeypatch):
    # GIVEN a log of a version that recorded four numbers of an operation
    frames = {}
    for kind, (name, fixed, arrays) in log_format.FRAMES.items():
        shorter = [
            (array, fields[:4] if array in frame_scanner.LATER_OF_ARRAYS else fields)
            for array, fields in arrays
        ]
        frames[kind] = (name, fixed, tuple(shorter))
    monkeypatch.setattr(log_format, "FRAMES", frames)
    run = RunBuilder(tmp_path / "run", level="op+cpu")
    worker = worker_of(run, level="op+cpu")
    worker.batch(
        0,
        start_ns=2_000,
        samples=[Sample(0, 100, [("A", 10), ("B", 20)])],
        ops_cpu=[(9, 1, 2, 512), (19, 3, 4, 0)],
        loose=[("pad", 2_110, 5, 201, 1)],
        loose_cpu=[(4, 5, 6, 7)],
    )
    path = run.end()
    monkeypatch.undo()
    # WHEN operations are asked for, THEN these are there, and the others are not known
    loaded = load(path)
    assert loaded.ops["cpu_ns"].tolist() == [9, 19, 4]
    assert loaded.ops["read_bytes"].tolist() == [512, 0, 7]
    assert loaded.ops[["run_delay_ns", "process_cpu_ns"]].isna().all(axis=None)


def test_operations_without_a_name(run):
    # GIVEN a log in which the definitions are damaged
    worker = worker_of(run)
    worker.operations("Loader")
    begin = len(worker.data)
    worker.operations("Crop")
    worker.data[begin + 40] ^= 1
    worker.batch(0, start_ns=1, samples=[Sample(0, 9, [("Crop", 3), ("Loader", 3), ("Crop", 3)])])
    # WHEN operations are asked for
    loaded = load(run.end())
    # THEN they are there, and the loss is told
    assert loaded.ops["operation"].tolist() == ["(unnamed)", "Loader", "(unnamed)"]
    assert loaded.lost["what"].tolist().count("corrupt frame") == 1


def test_operations_in_no_sample_are_lost_rows(run):
    # GIVEN a frame whose samples claim fewer operations than there are
    worker = worker_of(run)
    worker.id_of("A")
    rows = {
        "samples": [(1_000, 100, 1), (1_100, 100, 2)],
        "ops": [(1_000, 1_010, 1), (1_100, 1_120, 1), (1_200, 1_230, 1)],
    }
    fixed = {"loader": -1, "worker": 0, "size": 2, "fetch_start_ns": 1_000, "fetch_ns": 300}
    worker.data += pack_frame(log_format.BATCH, fixed, rows)
    worker.batch(1, start_ns=2_000, samples=[Sample(0, 100, [("A", 40)])])
    # WHEN operations are asked for
    loaded = load(run.end())
    # THEN those that can be placed are, also those of the frame after it
    assert loaded.ops["duration_ns"].tolist() == [10, 20, 40]
    assert loaded.samples["ops_ns"].tolist() == [10, 20, 40]
    assert "operation outside of the samples of its batch" in loaded.lost["what"].tolist()


# A tree of operations: (duration of its own before and after its children, children).
TREES = st.recursive(
    st.tuples(st.integers(1, 50), st.just(())),
    lambda children: st.tuples(st.integers(1, 50), st.lists(children, max_size=3).map(tuple)),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(samples=st.lists(st.lists(TREES, max_size=3), min_size=1, max_size=4), apart=st.randoms())
def test_nesting_of_any_program(tmp_path_factory, samples, apart):
    # GIVEN samples with operations in each other to any depth, each stored in either of two ways
    run = RunBuilder(tmp_path_factory.mktemp("runs") / "run")
    worker = worker_of(run)
    expected = {}  # (start, duration) -> nested
    made, loose = [], []
    at = 1_000
    for position, trees in enumerate(samples):
        rows = []

        def call(tree, now, depth, rows=rows, start=at, position=position):
            own, children = tree
            begin, now = now, now + own
            for child in children:
                now = call(child, now, depth + 1) + 1
            now += own
            expected[(begin, now - begin)] = depth > 0
            if apart.random() < 0.3:
                loose.append(("op", begin, now - begin, 201, position))
            else:
                rows.append(("op", now - begin, begin - start))
            return now

        now = at + 3
        for tree in trees:
            now = call(tree, now, 0)
        made.append(Sample(position, now + 5 - at, rows))
        at = now + 5
    worker.batch(0, start_ns=1_000, samples=made, loose=loose)
    # WHEN operations and samples are asked for
    loaded = load(run.end())
    # THEN just the outermost are not nested, and they and self time make up each sample
    rows = zip(loaded.ops["start_ns"], loaded.ops["duration_ns"], strict=True)
    nested = dict(zip(rows, loaded.ops["nested"], strict=True))
    assert nested == expected
    top = loaded.ops[~loaded.ops["nested"]].groupby("position")["duration_ns"].sum()
    assert (
        top.reindex(range(len(samples)), fill_value=0).tolist() == loaded.samples["ops_ns"].tolist()
    )


def test_a_region_that_began_before_its_sample_keeps_its_start(tmp_path):
    # GIVEN a region around a generator's `yield`: it began in the sample before the one it ended in
    run = RunBuilder(tmp_path / "run")
    main = run.process(pid=100)
    first = Sample(1, 100, [("Decode", 50)])
    second = Sample(2, 100, [("region", 130, -60), ("Flip", 20, 75)])
    main.batch(0, start_ns=START_NS, samples=[first, second])
    # WHEN it is read, THEN it starts where it did
    ops = load(run.end()).ops
    starts = dict(zip(ops["operation"].astype(str), ops["start_ns"] - START_NS, strict=True))
    assert starts == {"Decode": 0, "region": 40, "Flip": 175}
