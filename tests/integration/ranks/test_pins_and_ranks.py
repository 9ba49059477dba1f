"""The pin-memory thread, and jobs of several ranks."""

import socket


def test_pinning_is_timed_and_a_batch_is_ready_when_pinned(pair, torch):
    # GIVEN a program with a (made-up) accelerator, so that the pin thread runs
    plain, traced = pair("pinned.py")
    assert (plain.code, plain.out) == (0, b"780\n780\n")
    assert (traced.code, traced.out, traced.err) == (0, plain.out, plain.err)
    # THEN each batch of both epochs was pinned for at least what it took
    batches = traced.run.batches
    assert len(batches) == 20
    assert (batches["pin_ns"] >= 5_000_000).all()
    # AND was pickled before, ready at its end, and taken after
    end = batches["pin_start_ns"] + batches["pin_ns"]
    assert (batches["send_start_ns"] + batches["pickle_ns"] <= batches["pin_start_ns"]).all()
    assert (batches["ready_ns"] == end).all()
    assert (end <= batches["taken_ns"]).all()


def test_two_ranks(two_ranks):
    # WHEN a job of two ranks is traced through its launcher
    got = two_ranks
    assert (got.code, got.out) == (0, b"496\n"), got.err
    # THEN rank, local rank, world size and host stand in every row
    run = got.run
    host = socket.gethostname()
    for table in (run.ops, run.samples, run.batches, run.waits, run.workers, run.loaders):
        if len(table):
            assert set(table["rank"]) == {0, 1}
            assert (table["local_rank"] == table["rank"]).all()
            assert set(table["world_size"]) == {2}
            assert set(table["host"].astype(str)) == {host}
    # AND what memory each came to hold, in which torch alone takes this much
    assert set(run.epochs["rank"]) == {0, 1}
    assert (run.epochs["peak_rss"] > 50 << 20).all()
    # AND in the manifest, with each rank's own share of the samples
    assert [rank["rank"] for rank in run.manifest["ranks"]] == [0, 1]
    for rank in (0, 1):
        mine = run.samples[run.samples["rank"] == rank]
        assert mine["sample"].tolist() == list(range(rank, 32, 2))
