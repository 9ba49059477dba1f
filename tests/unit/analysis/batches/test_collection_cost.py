"""The cost of full collections of garbage, from fetches with and without one."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.batches.collection_cost import fetch_collections, of_fetches
from lotus.analysis.common.columns import float_column, total
from lotus.analysis.common.scope import scopes
from lotus.analysis.verdict.verdict import Cause, verdict
from lotus.inside.trace.full_collections import FETCH, MOST
from tests.unit.simulated import Plan

TOOK = 40.0  # of a collection, ms


def collected(every: int = 4, epochs: int = 1, took: float = TOOK) -> SimpleNamespace:
    """A run where a full collection makes every so many samples of the main process slow."""
    calls = []

    def own(sample: int, worker: int) -> float:
        calls.append(sample)
        return 1.0 + took * (len(calls) % (4 * every) == 0)

    run = Plan(workers=0, batches=60, epochs=epochs, own=own, operations={}).run()
    number = np.arange(1, len(run.batches) + 1)
    return with_collections(run, (number % every == 0).astype(int))


def with_collections(run: SimpleNamespace, counts: np.ndarray) -> SimpleNamespace:
    """Record that the batches had so many."""
    rows = run.batches[counts > 0]
    times = {"during": FETCH, "time_ns": rows["fetch_start_ns"], "count": counts[counts > 0]}
    run.full_collections = rows[["pid"]].assign(**times)
    return run


def first(run: SimpleNamespace) -> Cause:
    return verdict(scopes(run)[0]).causes[0]


def test_it_is_what_fetches_with_one_take_beyond_others() -> None:
    run = collected()
    cost = of_fetches(scopes(run)[0])
    assert cost is not None
    assert cost.each_ns == pytest.approx(TOOK * 1e6, rel=0.01)
    assert cost.count == pytest.approx(0.25)
    spent = TOOK * 1e6 * len(run.full_collections)
    assert cost.share == pytest.approx(
        spent / total(float_column(run.batches, "fetch_ns")), rel=0.01
    )


@pytest.mark.parametrize("run", [collected(took=0.0), collected(every=1), collected(every=30)])
def test_a_cost_that_does_not_show_is_not_told(run: SimpleNamespace) -> None:
    """The collections take nothing, or too few fetches had one or none."""
    assert of_fetches(scopes(run)[0]) is None
    assert "collector" not in first(run).reason + first(run).advice


def test_what_a_process_no_longer_recorded_is_not_known() -> None:
    run = collected()
    times = np.sort(float_column(run.full_collections, "time_ns"))
    pid = int(run.batches["pid"].iloc[0])
    run.full_collections = pd.DataFrame(
        {"pid": pid, "during": FETCH, "time_ns": np.repeat(times[:2], MOST), "count": 1}
    )
    counts, known = fetch_collections(scopes(run)[0])
    assert sorted(counts)[-3:] == [0, MOST, MOST]
    assert known.sum() == 8
    assert known[counts > 0].all()


def test_a_run_that_did_not_record_them_had_none_that_are_known() -> None:
    run = collected()
    del run.full_collections
    assert not fetch_collections(scopes(run)[0])[0].any()


@pytest.mark.parametrize("noise", [0.5, 300.0])
def test_where_all_have_some_it_is_what_one_more_takes(noise: float) -> None:
    """With noise as large as a collection, it is not told."""
    generator = np.random.default_rng(2)
    counts, rest = generator.integers(2, 5, 60), noise * generator.standard_normal(60)
    made = iter(np.maximum(30.0 + 40.0 * counts + rest, 1.0).repeat(4) / 4)
    run = Plan(workers=0, batches=60, own=lambda *_: next(made), operations={}).run()
    cost = of_fetches(scopes(with_collections(run, counts))[0])
    assert (cost is None) == (noise > 1)
    if cost is not None:
        assert cost.each_ns == pytest.approx(40e6, rel=0.02)
        assert cost.count == counts.mean()
        whole = total(float_column(run.batches, "fetch_ns"))
        assert cost.share == pytest.approx(40e6 * counts.sum() / whole, rel=0.02)


@pytest.mark.parametrize("epochs", [1, 3])
def test_the_code_that_they_run_in_is_the_cause_and_no_sample_or_stall(epochs: int) -> None:
    cause = first(collected(epochs=epochs))
    assert cause.kind == "dataset"
    assert "Python's garbage collector looked at all objects 0.25 times a batch" in cause.reason
    assert "call gc.disable() before the loop" in cause.advice
