"""When batches were ready, in which order they came, and the steps between them."""

import numpy as np
import pytest

from lotus.inside.trace.log import log_format
from lotus.reading.run import load
from tests.logs import RunBuilder, made


@pytest.fixture
def run(tmp_path):
    return RunBuilder(tmp_path / "run")


# -- readiness -------------------------------------------------------------------------------


def test_when_a_batch_was_ready(run):
    # GIVEN batches that were pinned, pickled, handed to the queue (send times lost)
    main, worker = run.process(100), run.process(201)
    main.iterator(0, 0, 500, workers=[201])
    worker.worker(0)
    sends = [(0, 0, 2_010, 5, 1, 900), (0, 1, 3_010, 5, 1, 900)]
    for batch, start in enumerate((2_000, 3_000, 4_000)):
        made(worker, batch, start, sends=sends[:batch][-1:])
    # The pin thread's record of an earlier epoch's batch 0 came late.
    main.wait(0, 0, 0, start_ns=100, end_ns=2_950, pins=[(0, 20, 40), (0, 2_920, 2_940)])
    main.wait(0, 0, 1, start_ns=3_000, end_ns=3_950)
    main.wait(0, 0, 2, start_ns=4_000, end_ns=4_005)
    # WHEN batches are asked for
    loaded = load(run.end())
    # THEN ready is the end of pinning, else of pickling, else the put; delay is never negative
    assert loaded.batches["ready_ns"].tolist() == [2_940, 3_015, 4_010]
    assert loaded.batches["delay_ns"].tolist() == [10, 935, 0]
    assert loaded.batches["pin_ns"].tolist()[0] == 20
    assert loaded.batches["pin_ns"].isna().tolist() == [False, True, True]
    assert loaded.lost["what"].tolist() == ["send times of a batch"]


def test_a_send_of_the_epoch_before_is_not_this_batch(run):
    # GIVEN a persistent worker whose feeder finished an old batch after the resume, so that its
    # record carries the new epoch and the number of a batch that is made later
    main, worker = run.process(100), run.process(201)
    main.iterator(0, 0, 500, workers=[201])
    main.iterator(0, 1, 3_000, workers=[201], resumed=True)
    worker.worker(0)
    worker.resume()
    made(worker, 0, 4_000, sends=[(1, 0, 2_500, 1, 1, 700)])
    made(worker, 1, 5_000)
    made(worker, 2, 6_000, sends=[(1, 1, 2_600, 1, 1, 700), (1, 1, 5_020, 2, 1, 1)])
    # WHEN batches are asked for, THEN a send before the batch was there is not taken for its own
    loaded = load(run.end())
    assert loaded.batches["ready_ns"].tolist() == [4_010, 5_022, 6_010]
    assert loaded.batches["send_ns"].isna().tolist() == [True, False, True]
    assert loaded.lost["count"].tolist() == [2]


def test_a_loader_that_was_not_seen_loses_no_send_times(run):
    # GIVEN what a worker fetched for a loader of another library's
    run.process(100)
    worker = run.process(201)
    worker.worker(0)
    made(worker, 0, 4_000)
    # THEN nobody misses how it was sent
    loaded = load(run.end())
    assert loaded.batches["loader"].tolist() == [-1]
    assert loaded.lost.empty


def test_without_workers(run):
    # GIVEN a loader that makes its batches in the main process
    main = run.process(100)
    main.iterator(0, 0, 500)
    made(main, 0, 2_000, put_ns=2_030)
    main.wait(0, 0, 0, start_ns=1_990, end_ns=2_030)
    # WHEN batches are asked for
    loaded = load(run.end())
    row = loaded.batches.iloc[0]
    # THEN a batch is ready when it is fetched; nothing was sent, nobody idle, nothing is lost
    assert (row["pid"], row["worker"], row["ready_ns"], row["delay_ns"]) == (100, -1, 2_010, 20)
    assert np.isnan([row["send_ns"], row["idle_ns"], row["arrival_ns"]]).all()
    assert row["order"] == "in turn"
    assert row["first"]
    assert loaded.lost.empty
    assert loaded.workers.empty


# -- order, steps ----------------------------------------------------------------------------


def order_of(run, taken, **loader):
    """`order` by batch of `next` calls (batch, start, end, arrival)."""
    main = run.process(100)
    main.loader(0, **loader)
    main.iterator(0, 0, 0, workers=[201])
    for batch, start, end, arrival in taken:
        main.wait(0, 0, batch, start_ns=start, end_ns=end, arrival_ns=arrival)
    batches = load(run.end()).batches
    assert batches["out_of_order"].tolist() == [order == "early" for order in batches["order"]]
    return batches["order"].tolist()


def test_batches_that_overtake_each_other(run):
    # GIVEN batch 1 that came while 0 was awaited, 2 in turn, 4 before 3
    taken = [
        (0, 100, 200, 190),
        (1, 300, 301, 150),
        (2, 400, 500, 490),
        (3, 600, 700, 690),
        (4, 800, 801, 610),
    ]
    # WHEN their order is asked for, THEN the overtaken are late and the others early
    assert order_of(run, taken) == ["late", "early", "in turn", "late", "early"]


def test_loaders_that_are_iterated_together_do_not_mix(run):
    # GIVEN two loaders of which the first's batch arrives while the second's is awaited
    main = run.process(100)
    for loader in (0, 1):
        main.iterator(loader, 0, 0, workers=[201 + loader])
    main.wait(0, 0, 0, start_ns=100, end_ns=200, arrival_ns=190)
    main.wait(1, 0, 0, start_ns=150, end_ns=260, arrival_ns=250)
    # WHEN their order is asked for, THEN neither overtook the other, and steps are each loader's
    batches = load(run.end()).batches
    assert batches["order"].tolist() == ["in turn", "in turn"]
    assert batches["step_ns"].isna().all()
    assert batches["first"].all()


def test_without_in_order_the_order_of_taking_tells(run):
    # GIVEN in_order=False, where 2 was taken before 1
    taken = [(0, 100, 200, 190), (2, 300, 400, 390), (1, 500, 600, 590), (3, 700, 800, 790)]
    # WHEN their order is asked for, THEN 2 was early and 1 late
    assert order_of(run, taken, in_order=False) == ["in turn", "late", "early", "in turn"]


def test_a_batch_that_overtook_and_was_overtaken_is_late(run):
    # GIVEN in_order=False, where the batches were taken the other way round
    taken = [(2, 100, 200, 190), (1, 300, 400, 390), (0, 500, 600, 590)]
    # WHEN their order is asked for, THEN only the first taken was early
    assert order_of(run, taken, in_order=False) == ["late", "late", "early"]


def test_epochs_do_not_mix_in_the_order(run):
    # GIVEN epochs whose batch numbers start again
    main = run.process(100)
    for epoch in range(3):
        for batch in range(2):
            start = 1_000 * epoch + 100 * batch
            main.wait(0, epoch, batch, start_ns=start, end_ns=start + 50, arrival_ns=start + 40)
    # WHEN their order is asked for, THEN all came in turn, and each epoch has one first
    batches = load(run.end()).batches
    assert set(batches["order"]) == {"in turn"}
    assert batches["first"].tolist() == [True, False] * 3
    assert batches["step_ns"].dropna().tolist() == [50, 50, 50]


def test_the_last_step_ends_with_the_next_that_found_nothing(run):
    # GIVEN an epoch that was exhausted, and one that the program left by `break`
    main = run.process(100)
    main.wait(0, 0, 0, start_ns=100, end_ns=200)
    main.epoch_end(0, 0, 400, batches=1, exhausted=True, last_next_ns=350)
    main.wait(0, 1, 0, start_ns=500, end_ns=600, flags=log_format.FAILED)
    main.epoch_end(0, 1, 900, batches=1, exhausted=False, last_next_ns=0)
    # WHEN waits are asked for
    waits = load(run.end()).waits
    # THEN the first has a step and the other none, and a failure is told
    assert waits["step_ns"].tolist()[0] == 150
    assert np.isnan(waits["step_ns"].tolist()[1])
    assert waits["failed"].tolist() == [False, True]


def test_a_lost_next_is_no_long_step(run):
    # GIVEN a main process's log in which the records of the first and a later `next` are damaged
    main = run.process(100)
    damaged = []
    for batch in range(5):
        if batch in (0, 2):
            damaged.append(len(main.data))
        main.wait(0, 0, batch, start_ns=1_000 * batch, end_ns=1_000 * batch + 300)
    main.epoch_end(0, 0, 5_100, batches=5, last_next_ns=5_000)
    for at in damaged:
        main.data[at + 30] ^= 1
    # WHEN batches are asked for
    loaded = load(run.end())
    # THEN the step that would span the gap is not known, nor which batch was the first
    assert loaded.batches["batch"].tolist() == [1, 3, 4]
    assert loaded.batches["step_ns"].isna().tolist() == [True, False, False]
    assert loaded.batches["step_ns"].tolist()[1:] == [700, 700]
    assert not loaded.batches["first"].any()
    assert loaded.lost["count"].sum() == 2


def test_a_lost_last_next_is_no_long_step(run):
    # GIVEN the same with the last `next` that returned a batch, and with batch 0 recorded as made
    main = run.process(100)
    main.iterator(0, 0, 0, workers=[201])
    worker = run.process(201)
    worker.worker(0)
    made(worker, 0, 10)
    damaged = []
    for batch in range(3):
        if batch in (0, 2):
            damaged.append(len(main.data))
        main.wait(0, 0, batch, start_ns=1_000 * batch, end_ns=1_000 * batch + 300)
    main.epoch_end(0, 0, 3_100, batches=3, last_next_ns=3_000)
    for at in damaged:
        main.data[at + 30] ^= 1
    # WHEN batches are asked for, THEN neither step nor first batch is made up
    loaded = load(run.end())
    assert loaded.batches["batch"].tolist() == [0, 1]
    assert loaded.batches["step_ns"].isna().all()
    assert not loaded.batches["first"].any()
    assert np.isnan(loaded.epochs["startup_ns"]).all()


def test_a_batch_that_an_iterable_data_set_did_not_have(run):
    # GIVEN a worker whose data set ended, and another fetch that failed
    main, worker = run.process(100), run.process(201)
    main.iterator(0, 0, 500, workers=[201])
    worker.worker(0)
    worker.batch(0, start_ns=2_000, flags=log_format.FAILED)
    worker.batch(1, start_ns=3_000, flags=log_format.STOPPED)
    worker.sends((0, 0, 2_010, 1, 1, 1))
    main.wait(0, 0, 0, start_ns=1_000, end_ns=2_100, flags=log_format.FAILED)
    # WHEN batches are asked for
    batches = load(run.end()).batches
    # THEN both are rows that say so, and the frame that only carries send times is none
    assert batches["flags"].tolist() == [log_format.FAILED, log_format.STOPPED]
    assert batches["send_ns"].notna().tolist() == [True, False]
