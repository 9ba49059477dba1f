"""Records of main processes and workers, joined on rank, loader, epoch and batch."""

import numpy as np
import pytest

from lotus.reading.run import load
from tests.logs import RunBuilder, Sample, made
from tests.simulation import simulate


@pytest.fixture
def run(tmp_path):
    return RunBuilder(tmp_path / "run")


def keys(table):
    return table[["rank", "loader", "epoch", "batch"]].to_numpy().tolist()


# -- whose records they are ------------------------------------------------------------------


def test_a_batch_is_joined_by_the_pid_of_its_worker(run):
    # GIVEN two workers of one loader, each of which made one batch
    main = run.process(100)
    main.iterator(0, 0, 1_000, 1_100, [201, 202])
    for number in (0, 1):
        worker = run.process(201 + number, start_ns=1_050)
        worker.worker(number)
        made(
            worker, number, 2_000 + number, cpu_ns=7, bytes=64, sends=[(0, number, 2_020, 5, 6, 7)]
        )
    main.wait(0, 0, 0, start_ns=1_500, end_ns=2_100, arrival_ns=2_090)
    main.wait(0, 0, 1, start_ns=2_300, end_ns=2_310, arrival_ns=2_305)
    # WHEN batches are asked for
    batches = load(run.end()).batches
    # THEN each row has both halves
    assert keys(batches) == [[0, 0, 0, 0], [0, 0, 0, 1]]
    assert batches["pid"].tolist() == [201, 202]
    assert batches["worker"].tolist() == [0, 1]
    first = batches.iloc[0]
    assert (first["fetch_ns"], first["cpu_ns"], first["bytes"], first["size"]) == (10, 7, 64, 1)
    assert (first["send_ns"], first["ready_ns"], first["send_bytes"]) == (18, 2_025, 1_000)
    assert (first["taken_ns"], first["wait_ns"], first["delay_ns"]) == (2_100, 600, 75)
    assert first["step_ns"] == 200


def test_persistent_workers_are_told_by_how_often_they_were_resumed(run):
    # GIVEN one worker over three epochs
    main, worker = run.process(100), run.process(201, start_ns=1_050)
    worker.worker(0)
    for epoch in range(3):
        start = 1_000 * (epoch + 1)
        main.iterator(0, epoch, start, start + 10, [201], resumed=epoch > 0)
        main.wait(0, epoch, 0, start_ns=start + 20, end_ns=start + 300)
        made(worker, 0, start + 100, sends=[(epoch, 0, start + 120, 1, 1, 1)])
        worker.resume()
    # WHEN batches are asked for
    batches = load(run.end()).batches
    # THEN each epoch has its own, with its own times
    assert keys(batches) == [[0, 0, epoch, 0] for epoch in range(3)]
    assert batches["fetch_start_ns"].tolist() == [1_100, 2_100, 3_100]
    assert batches["taken_ns"].tolist() == [1_300, 2_300, 3_300]
    assert batches["ready_ns"].tolist() == [1_121, 2_121, 3_121]


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_lost_iterator_event_of_persistent_workers(run, lost):
    # GIVEN three epochs of persistent workers, of which one iterator event is lost
    main, worker = run.process(100), run.process(201, start_ns=1_050)
    worker.worker(0)
    for epoch in range(3):
        if epoch != lost:
            main.iterator(0, epoch, 1_000 * (epoch + 1), workers=[201], resumed=epoch > 0)
        made(worker, 0, 1_000 * epoch + 1_100)
        worker.resume()
    worker.event("worker_ready", worker=0, time_ns=1_090)
    # WHEN batches are asked for, THEN all still have their epoch, and no start-up is made up
    loaded = load(run.end())
    assert keys(loaded.batches) == [[0, 0, epoch, 0] for epoch in range(3)]
    assert loaded.workers["startup_ns"].isna().tolist() == [lost == 0]


def test_an_epoch_that_passed_the_workers_by(run):
    # GIVEN workers that were made in epoch 0 and resumed in epoch 2, while epoch 1 had its own
    main, worker = run.process(100), run.process(201, start_ns=1_050)
    worker.worker(0)
    main.iterator(0, 0, 1_000, workers=[201])
    main.iterator(0, 1, 2_000, workers=[301])
    main.iterator(0, 2, 3_000, workers=[201], resumed=True)
    made(worker, 0, 1_100)
    worker.resume()
    made(worker, 0, 3_100)
    # WHEN batches are asked for, THEN the resumed one belongs to epoch 2
    assert load(run.end()).batches["epoch"].tolist() == [0, 2]


def test_a_pid_that_is_used_twice(run):
    # GIVEN a long run in which the kernel gave a pid again, to a worker of another loader
    main = run.process(100)
    for epoch, (loader, start) in enumerate([(0, 1_000), (1, 5_000)]):
        main.iterator(loader, epoch, start, workers=[201])
        worker = run.process(201, start_ns=start + 50)
        worker.worker(0)
        made(worker, 0, start + 100)
    # WHEN batches and workers are asked for
    loaded = load(run.end())
    # THEN each process is the one that was started last before its log
    assert keys(loaded.batches) == [[0, 0, 0, 0], [0, 1, 1, 0]]
    assert loaded.batches["fetch_start_ns"].tolist() == [1_100, 5_100]
    assert loaded.workers["loader"].tolist() == [0, 1]
    assert loaded.workers["pid"].tolist() == [201, 201]


def test_a_pid_that_is_used_twice_and_once_without_record(run):
    # GIVEN the same, where the second iterator event is lost
    main = run.process(100)
    main.iterator(0, 0, 1_000, workers=[201])
    for start in (1_050, 5_050):
        worker = run.process(201, start_ns=start)
        worker.worker(0)
        made(worker, 0, start + 50)
    # WHEN batches are asked for, THEN the second process is nobody's, not the first loader's
    batches = load(run.end()).batches
    assert keys(batches) == [[0, -1, -1, 0], [0, 0, 0, 0]]
    assert batches["fetch_start_ns"].tolist() == [5_100, 1_100]


def test_a_resume_is_of_the_process_that_lives(run):
    # GIVEN two processes of one pid, of which both first iterator events are lost, and the second
    # was resumed
    main = run.process(100)
    main.iterator(0, 7, 6_000, workers=[201], resumed=True)
    for start in (1_050, 5_050):
        worker = run.process(201, start_ns=start)
        worker.worker(0)
        made(worker, 0, start + 50)
    # WHEN batches are asked for, THEN only the second is of that loader
    batches = load(run.end()).batches
    assert batches[["epoch", "fetch_start_ns"]].to_numpy().tolist() == [[-1, 1_100], [6, 5_100]]


def test_a_process_of_the_same_pid_that_is_no_worker_of_that_loader(run):
    # GIVEN an iterator event that lists pid 201 as worker 0, and a log of a pid 201 that says it
    # is worker 3 (of another machine's or an unseen loader)
    main, worker = run.process(100), run.process(201, start_ns=1_050)
    main.iterator(0, 0, 1_000, workers=[201])
    worker.worker(3)
    made(worker, 0, 2_000)
    # WHEN batches are asked for, THEN it is nobody's
    assert load(run.end()).batches["loader"].tolist() == [-1]


def test_a_worker_whose_parent_left_nothing(run):
    # GIVEN a worker's log, while its parent was killed before it wrote
    worker = run.process(201, rank=3)
    worker.worker(1)
    worker.operations("Loader")
    worker.batch(0, start_ns=10, samples=[Sample(5, 100, [("Loader", 60)])])
    # WHEN its records are asked for
    loaded = load(run.end())
    # THEN they are there, with their own rank, and of no known loader
    assert keys(loaded.batches) == [[3, -1, -1, 0]]
    assert np.isnan(loaded.batches["wait_ns"]).all()
    assert loaded.batches["order"].isna().all()
    assert loaded.ops[["rank", "worker", "loader", "epoch", "sample"]].iloc[0].tolist() == [
        3, 1, -1, -1, 5,
    ]  # fmt: skip
    assert loaded.workers["loader"].tolist() == [-1]
    assert np.isnan(loaded.workers["startup_ns"]).all()


def test_batches_of_unknown_workers_are_not_mixed_up(run):
    # GIVEN two orphans that made a batch of the same number
    for pid in (201, 202):
        made(run.process(pid, start_ns=pid), 0, pid, worker=0, loader=-1)
    # WHEN batches are asked for, THEN there are two
    assert load(run.end()).batches["pid"].tolist() == [201, 202]


def test_halves_without_their_other_half(run):
    # GIVEN a batch that was made and never taken, and one that was taken and whose maker's log
    # is lost
    main = run.process(100)
    main.iterator(0, 0, 1_000, workers=[201, 202])
    worker = run.process(201, start_ns=1_050)
    worker.worker(0)
    made(worker, 2, 2_000)
    main.wait(0, 0, 1, start_ns=1_500, end_ns=1_700, arrival_ns=1_600)
    # WHEN batches are asked for
    taken, untaken = load(run.end()).batches.to_dict("records")
    # THEN both are rows; what is missing is NaN, and nobody's worker is -1
    assert (taken["batch"], taken["pid"], taken["worker"], taken["wait_ns"]) == (1, -1, -1, 200)
    assert np.isnan([taken["fetch_ns"], taken["ready_ns"], taken["delay_ns"], taken["size"]]).all()
    assert (untaken["batch"], untaken["pid"], untaken["fetch_ns"]) == (2, 201, 10)
    assert np.isnan([untaken["wait_ns"], untaken["taken_ns"], untaken["step_ns"]]).all()
    assert not untaken["first"]
    assert not untaken["out_of_order"]


def test_a_batch_that_was_recorded_twice_is_joined_once(run):
    # GIVEN two records of one batch's making, which no program can cause
    main, worker = run.process(100), run.process(201, start_ns=1_050)
    main.iterator(0, 0, 1_000, workers=[201])
    worker.worker(0)
    made(worker, 0, 2_000)
    made(worker, 0, 3_000)
    main.wait(0, 0, 0, start_ns=1_500, end_ns=2_100)
    # WHEN batches are asked for, THEN its wait is counted once
    assert load(run.end()).batches["wait_ns"].sum() == 600


# -- loaders and ranks -----------------------------------------------------------------------


def test_ranks_have_the_same_loader_numbers(tmp_path):
    # GIVEN two ranks in one run directory, with pids of their own
    run = RunBuilder(tmp_path / "run")
    for rank in (0, 1):
        simulate(tmp_path, builder=run, rank=rank, first_pid=100 + 100 * rank, batches=4)
    # WHEN tables are asked for
    loaded = load(run.end())
    # THEN loader 0 of each rank is loader 0, and nothing is mixed
    assert keys(loaded.batches) == [[rank, 0, 0, batch] for rank in (0, 1) for batch in range(4)]
    assert loaded.batches["wait_ns"].notna().all()
    for name in ("ops", "samples", "batches", "waits", "workers", "loaders", "epochs"):
        table = getattr(loaded, name)
        assert ((table["pid"] >= 200) == (table["rank"] == 1)).all()


def test_ranks_on_two_machines_may_share_pids(tmp_path):
    # GIVEN two machines that wrote into one folder, with the same pids on both
    run = RunBuilder(tmp_path / "run")
    for rank in (0, 1):
        before = len(run.logs)
        main = run.process(100, rank=rank, host=f"node{rank}", boot_id=f"boot{rank}")
        main.iterator(0, 0, 1_000, workers=[201])
        worker = run.process(201, rank=rank, host=f"node{rank}", boot_id=f"boot{rank}")
        worker.worker(0)
        made(worker, 0, 2_000 + rank)
        assert len(run.logs) == before + 2
    # WHEN batches are asked for, THEN each is its own machine's
    batches = load(run.end()).batches
    assert keys(batches) == [[0, 0, 0, 0], [1, 0, 0, 0]]
    assert batches["fetch_start_ns"].tolist() == [2_000, 2_001]


def test_a_worker_has_the_rank_of_its_maker(run):
    # GIVEN a job that gave its rank to torch, not to the environment: workers do not know it
    main = run.process(100, rank=None)
    main.loader(0, rank=5)
    main.iterator(0, 0, 1_000, workers=[201])
    worker = run.process(201, rank=None)
    worker.worker(0)
    made(worker, 0, 2_000)
    # WHEN tables are asked for, THEN all have the rank
    loaded = load(run.end())
    assert loaded.batches["rank"].tolist() == [5]
    assert loaded.workers["rank"].tolist() == [5]
    assert loaded.loaders["rank"].tolist() == [5]


def test_processes_without_rank_number_on(run):
    # GIVEN a script that trains and then a script that evaluates, in one run, and in a worker of
    # the first a loader of the data set's own
    second = run.process(300, start_ns=9_000)
    first = run.process(100, start_ns=500)
    for log, start in ((first, 1_000), (second, 10_000)):
        log.loader(0, call_site=f"{log.pid}")
        log.iterator(0, 0, start, workers=[log.pid + 1])
    first.loader(1, call_site="validation")
    worker = run.process(101, start_ns=1_050)
    worker.worker(0)
    worker.loader(0, call_site="nested")
    worker.iterator(0, 0, 1_200, 1_210)
    worker.batch(0, start_ns=1_300, samples=[Sample(0, 5)], loader=0, epoch=0)
    worker.wait(0, 0, 0, start_ns=1_290, end_ns=1_320)
    made(worker, 0, 1_250)
    other = run.process(301, start_ns=10_050)
    other.worker(0)
    made(other, 0, 11_000)
    # WHEN tables are asked for
    loaded = load(run.end())
    # THEN loaders of main processes come first, in order of their start, nested ones after them
    numbers = dict(zip(loaded.loaders["call_site"], loaded.loaders["loader"], strict=True))
    assert numbers == {"100": 0, "validation": 1, "300": 2, "nested": 3}
    rows = loaded.batches[["loader", "pid", "worker", "fetch_start_ns"]].to_numpy().tolist()
    assert rows == [[0, 101, 0, 1_250], [2, 301, 0, 11_000], [3, 101, 0, 1_300]]
    assert loaded.batches["wait_ns"].dropna().tolist() == [30]
    assert loaded.epochs["loader"].tolist() == [0, 2, 3]
    # AND what a worker did for its own loader is not its work for its maker
    assert loaded.workers["batches"].tolist() == [1, 1]


def test_workers_of_a_worker(run):
    # GIVEN a loader with workers inside a worker
    main, outer, inner = run.process(100), run.process(201), run.process(301)
    main.iterator(0, 0, 500, workers=[201])
    outer.worker(0)
    outer.iterator(0, 4, 700, workers=[301])
    inner.worker(0)
    made(inner, 6, 2_000)
    # WHEN batches are asked for, THEN they are of the nested loader, after the main process's
    assert keys(load(run.end()).batches) == [[0, 1, 4, 6]]


def test_processes_that_claim_each_other(run):
    # GIVEN two logs, each of which claims to have started the other
    for pid in (100, 101):
        log = run.process(pid, rank=pid - 100)
        log.iterator(0, 0, 0, workers=[201 - pid])
        made(log, 0, 2_000, worker=0, loader=-1)
    # WHEN the run is loaded, THEN it does not hang
    assert len(load(run.end()).batches) == 2


def test_a_process_that_claims_itself(run):
    # GIVEN a process that lists its own pid, as one does that lists a pid of another namespace
    main = run.process(100)
    main.iterator(0, 0, 500, workers=[100])
    made(main, 0, 2_000)
    # WHEN tables are asked for, THEN it is no worker of its own
    loaded = load(run.end())
    assert loaded.workers.empty
    assert keys(loaded.batches) == [[0, 0, 0, 0]]
