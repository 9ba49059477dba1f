"""What the sampler does in `iter()` is told from the start of workers."""

from types import SimpleNamespace

import numpy as np
import pytest

from lotus.analysis.batches.sampler_draws import drawn_ns
from lotus.analysis.batches.waits import loop_times
from lotus.analysis.common.scope import scopes
from lotus.analysis.summary import summarise
from lotus.analysis.verdict.verdict import verdict
from tests.unit.analysis.common.test_remade_loaders import remade
from tests.unit.simulated import Plan

BEGUN_NS = 50_000_000  # between the begin of a process and the time from which its parent draws


def loop(**settings: object) -> SimpleNamespace:
    """Four epochs, each of which begins with 500 ms in `iter()`."""
    run = Plan(epochs=4, batches=8, iter=500).run()
    run.loaders["num_workers"], run.loaders["dataset_kind"] = 2, "map"
    run.loaders["persistent_workers"] = True
    run.workers = run.workers.head(2)  # which are kept
    run.workers["start_ns"] = run.epochs["start_ns"].iloc[0] - BEGUN_NS  # when `iter()` began
    for name, value in settings.items():
        run.loaders[name] = value
    return run


def drawn(run: SimpleNamespace) -> float:
    scope = scopes(run)[0]
    return drawn_ns(scope, loop_times(scope.epochs, scope.waits))


def test_of_workers_that_are_kept_it_is_the_sampler() -> None:
    run = loop()
    assert drawn(run) == pytest.approx(4 * 500e6)
    first = verdict(scopes(run)[0]).causes[0]
    assert first.kind == "main-process"
    assert "before the first batch of each epoch" in first.title
    assert "__iter__" in first.advice
    assert "2.00 s before the first batches" in first.reason


def test_the_start_of_the_workers_is_not() -> None:
    run = loop()
    run.epochs.loc[run.epochs["epoch"] == 0, "iter_ns"] += 3_000_000_000
    run.workers["start_ns"] += 3_000_000_000
    assert drawn(run) == pytest.approx(4 * 500e6)


def test_loaders_that_are_made_anew_start_workers_that_were_to_be_kept() -> None:
    run = remade(3)
    run.loaders["persistent_workers"], run.loaders["dataset_kind"] = True, "map"
    run.epochs["iter_ns"] += 500_000_000
    run.workers["start_ns"] += 500_000_000
    first = summarise(run).verdict.causes[0]
    assert first.kind == "start-up"
    assert "creates this loader 3 times" in first.advice


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_that_are_started_anew_had_begun_before_it_drew(method: str) -> None:
    """GIVEN epochs of 500 ms in `iter()`, in which workers began after 100 ms."""
    run = Plan(epochs=4, batches=8, iter=500).run()
    run.loaders["dataset_kind"], run.loaders["start_method"] = "map", method
    run.workers["start_ns"] -= 400_000_000 + BEGUN_NS
    run.workers["import_ns"] = run.workers["unpickle_ns"] = np.nan
    if method == "spawn":
        assert drawn(run) == 0.0  # not known
        run.workers["import_ns"], run.workers["unpickle_ns"] = 90_000_000, 10_000_000
    taken = 4 * (400e6 if method == "fork" else 300e6)
    assert drawn(run) == pytest.approx(taken)
    assert verdict(scopes(run)[0]).causes[0].kind == "main-process"
    # THEN it is not the sampler's where it had no core, or where that is not known
    run.epochs["iter_run_delay_ns"] = 150_000_000
    assert drawn(run) == pytest.approx(taken - 4 * 150e6)
    run.loaders["pin_memory"] = True
    assert drawn(run) == 0.0
    # NOR what starting a later worker took
    run.loaders["pin_memory"] = False
    late = run.workers["worker"] == 1
    run.workers.loc[late, "start_ns"] += 400_000_000
    assert drawn(run) == 0.0


@pytest.mark.parametrize(
    "settings", [{"persistent_workers": False}, {"dataset_kind": "iterable"}, {"num_workers": 0}]
)
def test_elsewhere_it_is_not_known(settings: dict[str, object]) -> None:
    run = loop(**settings)
    run.workers["start_ns"] += 500_000_000
    assert drawn(run) == 0.0
    if settings.get("num_workers") != 0:
        assert verdict(scopes(run)[0]).causes[0].kind == "start-up"


def test_what_is_left_of_an_epoch_that_was_broken_off_is_not_the_samplers() -> None:
    run = loop()
    whole = drawn(run)
    run.epochs["exhausted"] = False  # the next `iter()` waits for what is still being made
    longest = run.batches["fetch_ns"].max()
    assert whole - drawn(run) == pytest.approx(3 * 2 * (longest + 2 * 5e6))
    run.batches.loc[5, "fetch_ns"] = 250e6
    assert drawn(run) == pytest.approx(500e6)  # the first one waits for nothing


def test_what_passes_after_a_first_batch_is_made_is_not_the_samplers() -> None:
    """As the first copy to pinned memory, which starts CUDA."""
    run = Plan(workers=0, epochs=4, batches=8, iter=1).run()
    for rows in (run.waits, run.batches):
        rows["wait_ns"] += 300_000_000 * (rows["batch"] == 0)
    assert verdict(scopes(run)[0]).causes[0].kind != "main-process"


def test_without_workers_it_is_what_passes_before_a_first_batch_is_made() -> None:
    run = Plan(workers=0, epochs=4, batches=8, iter=1).run()
    for rows, start in ((run.waits, "start_ns"), (run.batches, "wait_start_ns")):
        late = 300_000_000 * (rows["batch"] == 0)
        rows[start] -= late
        rows["wait_ns"] += late
    run.epochs["start_ns"] -= 300_000_000
    first = verdict(scopes(run)[0]).causes[0]
    assert first.kind == "main-process"
    assert "before the first batch of each epoch" in first.title
    assert "1.20 s before the first batches" in first.reason
