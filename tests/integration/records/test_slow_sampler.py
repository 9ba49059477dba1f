"""The time of the sampler, in `iter()` and in each `next`, beside what the sampler itself took."""

import json
import math

MS = 1_000_000


def test_its_time_is_measured_where_it_draws(pair):
    plain, traced = pair("waits/slow_sampler.py")
    # THEN the batches are the same, and so is the traceback of an error in the sampler
    assert (traced.code, traced.out, traced.err) == (1, plain.out, plain.err)
    assert b"no more indices" in plain.err
    run = traced.run
    known = json.loads(traced.truth.read_text())
    sums = run.waits.groupby(["loader", "epoch"])["sampler_ns"].sum()
    for loader, epochs in enumerate(known):
        rows = run.epochs[run.epochs["loader"] == loader].sort_values("epoch")
        assert len(rows) == len(epochs) == 2
        for (before, whole), epoch in zip(epochs, rows.itertuples(), strict=True):
            in_next = sums[loader, epoch.epoch]
            measured = epoch.iter_sampler_ns + in_next if loader else in_next
            # What the `next` that finds no more indices draws is in no record
            assert whole - 2 * MS < measured < 2 * whole
            # Before the first index: in `iter()` with workers, else in the first `next`
            where = epoch.iter_sampler_ns if loader else in_next
            assert where >= before
            # Without workers, nothing is drawn in `iter()`
            assert not epoch.iter_sampler_ns > epoch.iter_ns
            assert math.isnan(epoch.iter_sampler_ns) == (loader == 0)
    waits = run.waits
    assert (waits["sampler_ns"] <= waits["wait_ns"]).all()
    # THEN batches have it from the `next` that took them
    taken = run.batches[run.batches["wait_ns"].notna()]
    assert sorted(taken["sampler_ns"]) == sorted(waits["sampler_ns"])
