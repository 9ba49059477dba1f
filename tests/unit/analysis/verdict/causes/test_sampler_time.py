"""What the sampler takes in the main process is told apart from its other work in `next`."""

from types import SimpleNamespace

import numpy as np
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.verdict.verdict import Cause, verdict
from tests.unit.simulated import MS, Plan


def first_of(run: SimpleNamespace) -> Cause:
    return verdict(scopes(run)[0]).causes[0]


@pytest.mark.parametrize("persistent", [False, True])
def test_what_it_draws_in_iter_is_no_start_of_workers(persistent: bool) -> None:
    run = Plan(epochs=4, batches=8, first_draws=500, persistent=persistent).run()
    run.loaders["sampler"] = "Balanced"
    first = first_of(run)
    assert first.kind == "main-process"
    assert first.title.endswith("before the first batch of each epoch: Balanced")
    assert "__iter__" in first.advice
    assert first.reason == "The sampler took 2.00 s, 2.00 s of it before the first batches."
    # GIVEN the same time in iter(), which is not the sampler's, THEN it is start-up
    run = Plan(epochs=4, batches=8, iter=500, persistent=persistent).run()
    assert first_of(run).kind == "start-up"


def test_advice_on_a_sampler_of_torch_depends_on_how_many_indices_it_draws() -> None:
    # GIVEN a data set of a few samples, THEN drawing them is not what takes the time
    run = Plan(epochs=4, batches=8, first_draws=500).run()
    assert "its __len__" in first_of(run).advice
    # GIVEN millions
    run.loaders["dataset_length"] = 3_000_000
    assert "draws each block when it is needed" in first_of(run).advice
    # GIVEN weights, which may be drawn from more often than there are samples
    run.loaders["sampler"], run.loaders["dataset_length"] = "WeightedRandomSampler", 64
    assert "lower its num_samples, or write" in first_of(run).advice
    # GIVEN that each loop is left before its end
    run.epochs["exhausted"] = False
    advice = first_of(run).advice
    assert "`next(batches)` in them, or lower its num_samples." in advice


def test_without_workers_it_draws_in_the_next_of_an_epochs_first_batch() -> None:
    run = Plan(workers=0, epochs=4, batches=8).run()
    for rows, start in ((run.waits, "start_ns"), (run.batches, "wait_start_ns")):
        late = 300 * MS * (rows["batch"] == 0)
        rows[start] -= late
        for name in ("wait_ns", "sampler_ns"):
            rows[name] += late
    run.epochs["start_ns"] -= 300 * MS
    first = first_of(run)
    assert "before the first batch of each epoch" in first.title
    assert "1.20 s of it before the first batches" in first.reason
    # GIVEN other work of the same time, THEN it is not the sampler's
    for rows in (run.waits, run.batches):
        rows["sampler_ns"] = 0
    assert "before the first batch of each epoch" not in first_of(run).title


def test_in_next_it_is_named_by_the_measured_time() -> None:
    run = Plan(sampler=20).run()
    run.loaders["batch_sampler"] = "Buckets"
    first = first_of(run)
    assert (first.kind, first.title) == (
        "main-process",
        "the sampler, in the main process: Buckets",
    )
    assert first.evidence["sampler_ns"] == pytest.approx(40 * 20 * MS, rel=0.03)
    assert "slow sampler" in first.advice
    # GIVEN the same time in next(), of which the sampler took little
    run.waits["sampler_ns"] = MS
    first = first_of(run)
    assert first.title == "work of the main process in next(), other than the sampler"
    assert "slow sampler" not in first.advice
    # GIVEN a run of an older version, which did not measure it
    run.waits["sampler_ns"] = np.nan
    first = first_of(run)
    assert first.title == "the sampler and other work of the main process in next()"
    assert first.reason == ""
