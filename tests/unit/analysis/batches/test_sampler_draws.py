"""What the sampler does in `iter()` is told from the start of workers, where these are kept."""

from types import SimpleNamespace

import pytest

from lotus.analysis.batches.sampler_draws import drawn_ns
from lotus.analysis.batches.waits import loop_times
from lotus.analysis.common.scope import scopes
from lotus.analysis.summary import summarise
from lotus.analysis.verdict.verdict import verdict
from tests.unit.analysis.common.test_remade_loaders import remade
from tests.unit.simulated import Plan


def loop(**settings: object) -> SimpleNamespace:
    """Four epochs, each of which begins with 500 ms in `iter()`."""
    run = Plan(epochs=4, batches=8, iter=500).run()
    run.loaders["num_workers"], run.loaders["dataset_kind"] = 2, "map"
    run.loaders["persistent_workers"] = True
    run.workers = run.workers.head(2)  # which are kept
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
    assert drawn(run) == pytest.approx(4 * 500e6)


def test_loaders_that_are_made_anew_start_workers_that_were_to_be_kept() -> None:
    run = remade(3)
    run.loaders["persistent_workers"], run.loaders["dataset_kind"] = True, "map"
    run.epochs["iter_ns"] += 500_000_000
    first = summarise(run).verdict.causes[0]
    assert first.kind == "start-up"
    assert "creates this loader 3 times" in first.advice


@pytest.mark.parametrize(
    "settings", [{"persistent_workers": False}, {"dataset_kind": "iterable"}, {"num_workers": 0}]
)
def test_elsewhere_it_is_not_known(settings: dict[str, object]) -> None:
    run = loop(**settings)
    assert drawn(run) == 0.0
    if settings.get("num_workers") != 0:
        assert verdict(scopes(run)[0]).causes[0].kind == "start-up"


def test_what_is_left_of_an_epoch_that_was_broken_off_is_not_the_samplers() -> None:
    run = loop()
    whole = drawn(run)
    run.epochs["exhausted"] = False  # the next `iter()` waits for what is still being made
    longest = run.batches["fetch_ns"].max()
    assert whole - drawn(run) == pytest.approx(4 * 2 * (longest + 2 * 5e6))
    run.batches.loc[5, "fetch_ns"] = 250e6
    assert drawn(run) == 0.0


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
