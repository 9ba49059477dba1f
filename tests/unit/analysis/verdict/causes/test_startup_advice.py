"""What is advised where workers that are started by spawn take long to start."""

import math
from typing import Any

import numpy as np
import pytest

from lotus.analysis.common.columns import float_column
from lotus.analysis.common.scope import scopes
from lotus.analysis.machine.core_use import core_use
from lotus.analysis.verdict.advice.circumstances import circumstances_of
from lotus.analysis.verdict.causes.cause_row import Charge
from lotus.analysis.verdict.causes.run.edges import STARTUP
from lotus.analysis.verdict.verdict import verdict
from tests.unit.simulated import Plan


def advice(importing: float, reading: float) -> str:
    run = Plan(epochs=4, batches=4, spawn=300).run()
    run.loaders["start_method"] = "spawn"
    run.workers["import_ns"], run.workers["unpickle_ns"] = importing, reading
    first = verdict(scopes(run)[0]).causes[0]
    assert first.kind == "start-up"
    return first.advice


@pytest.mark.parametrize(
    ("importing", "reading", "named"),
    [
        (250e6, 50e6, {"if __name__"}),
        (50e6, 250e6, {"memory maps"}),
        (math.nan, math.nan, {"if __name__", "memory maps"}),
    ],
)
def test_the_longer_part_of_a_spawned_workers_start_is_named(
    importing: float, reading: float, named: set[str]
) -> None:
    text = advice(importing, reading)
    assert {word for word in ("if __name__", "memory maps") if word in text} == named
    assert ("(250 ms)" in text) == math.isfinite(importing)


@pytest.mark.parametrize("what", ["partial", "kept", "sampler", "older"])
def test_no_workers_are_not_advised_for_what_is_not_known_or_comes_once(what: str) -> None:
    plan = Plan(epochs=4, batches=4, spawn=300, operations={"Cheap": 0.5}, collate=0.1)
    plan.persistent = what == "kept"
    run = plan.run()
    if what == "partial":
        run.manifest["every"] = 10
    elif what == "sampler":  # in iter(), where a part of its work was seen
        run.epochs["iter_ns"] += 600_000_000
        run.epochs["start_ns"] -= 600_000_000
        run.epochs["iter_sampler_ns"] = 300_000_000
    elif what == "older":
        del run.epochs["iter_sampler_ns"]
        run.loaders["made"] = 4
    causes = verdict(scopes(run)[0]).causes
    startup = next(cause for cause in causes if cause.kind == "start-up")
    assert ("starting the workers once" in startup.advice) == (what == "kept")
    if what == "kept":  # they start once, and each epoch has a little of its own
        assert "once (3" in startup.advice


@pytest.mark.parametrize(
    ("again", "otherwise"),
    [("made anew", "create the loader once"), ("left", "take all batches"), ("whole", "keep the")],
)
def test_batches_that_are_made_sooner_than_a_worker_starts_need_no_workers(
    again: str, otherwise: str
) -> None:
    plan = Plan(epochs=4, batches=4, spawn=300, operations={"Cheap": 0.5}, collate=0.1)
    run = plan.run()
    if again == "made anew":
        run.loaders["made"] = 4
    elif again == "left":
        run.epochs["exhausted"] = False
    first = verdict(scopes(run)[0]).causes[0]
    made_ns = float_column(run.batches, "fetch_ns").sum()
    assert first.kind == "start-up"
    assert first.evidence["making_ns"] == pytest.approx(made_ns, rel=0.01)
    assert "far less than starting the workers once" in first.advice
    assert f"For longer epochs, {otherwise}" in first.advice
    assert first.remedy.setting == {"num_workers": 0}
    # BUT keeping workers comes first where making takes longer
    plan.operations = {"Slow": 5.0}
    first = verdict(scopes(plan.run())[0]).causes[0]
    assert "persistent_workers=True" in first.advice


@pytest.mark.parametrize(
    ("kept", "epochs", "kind", "first"),
    [
        (True, 3, "consumer-bound", "consumer"),
        (False, 3, "start-up-bound", "start-up"),
        (True, 1, "start-up-bound", "start-up"),  # whether more epochs follow is not known
    ],
)
def test_a_start_of_workers_that_are_kept_is_no_finding(
    kept: bool, epochs: int, kind: str, first: str
) -> None:
    plan = Plan(epochs=epochs, batches=40, step=20.0, spawn=2500.0, persistent=kept)
    judgement = verdict(scopes(plan.run())[0])
    assert (judgement.kind, judgement.causes[0].kind) == (kind, first)
    assert judgement.startup_share > 0.2


@pytest.mark.parametrize(
    ("epochs", "importing_s", "reading_s", "kind"),
    [
        (1, 5.0, 0.3, "consumer-bound"),
        (1, 1.0, 4.3, "start-up-bound"),  # as of a large pickled data set
        (2, 5.0, 0.3, "start-up-bound"),
    ],
)
def test_imports_of_spawned_workers_that_come_once_are_no_finding(
    epochs: int, importing_s: float, reading_s: float, kind: str
) -> None:
    plan = Plan(epochs=epochs, batches=40, step=250.0, spawn=1000 * (importing_s + reading_s))
    run = plan.run()
    run.loaders["start_method"] = "spawn"
    run.workers["import_ns"] = importing_s * 1e9
    run.workers["unpickle_ns"] = reading_s * 1e9
    judgement = verdict(scopes(run)[0])
    assert judgement.kind == kind
    assert judgement.startup_share > 0.2
    assert ("Start-up and shut-down take" in judgement.summary) == (kind == "consumer-bound")


@pytest.mark.parametrize(("epochs", "first"), [(3, "operation"), (1, "start-up")])
def test_waits_of_each_epoch_come_before_a_start_that_comes_once(epochs: int, first: str) -> None:
    """GIVEN an evaluation with short epochs, whose workers took long to start and are kept."""
    plan = Plan(epochs=epochs, batches=20, step=0.5, spawn=6000.0, persistent=True)
    plan.operations = {"Slow": 30.0}
    judgement = verdict(scopes(plan.run())[0])
    assert judgement.startup_share > 0.5
    assert judgement.causes[0].kind == first


def test_an_end_of_workers_that_are_kept_is_no_finding_either() -> None:
    run = Plan(epochs=2, batches=40, step=20.0, spawn=1000.0, persistent=True).run()
    last = run.epochs.index[-1]
    run.epochs.loc[last, ["shutdown_ns", "end_ns"]] += 1e9
    assert verdict(scopes(run)[0]).kind == "consumer-bound"
    # BUT where the first epoch ended so too, each had it
    run.epochs["shutdown_ns"] = 1e9
    run.epochs.loc[0, "end_ns"] += 1e9
    run.epochs.loc[last, "start_ns"] += 1e9
    assert verdict(scopes(run)[0]).kind == "start-up-bound"


def test_loops_that_are_left_early_begin_with_nothing_made_ahead() -> None:
    plan = Plan(workers=4, batches=5, epochs=12, operations={"Slow": 80.0}, step=1.0, shutdown=200)
    run = plan.run()
    whole = verdict(scopes(run)[0])
    # The fifth batch is waited for as long as the first one, and for as much work.
    assert (whole.kind, whole.causes[0].kind) == ("input-bound", "operation")
    # AND where no loop came to its end, workers that are kept would still be left in their work
    run.epochs["exhausted"] = False
    assert scopes(run)[0].each_is_left
    run.waits.loc[run.waits["batch"] == 4, "step_ns"] = np.nan
    left = verdict(scopes(run)[0]).causes
    assert left[0].kind == "start-up"
    for cause in left:
        if cause.kind in ("start-up", "shut-down"):
            assert "iter(loader)" in cause.advice
            assert not cause.remedy.setting


def test_ranks_that_leave_their_only_loop_have_one_iterator_each() -> None:
    run = Plan(workers=1, batches=5, epochs=2, operations={"Slow": 8.0}).run()
    run.epochs["exhausted"] = False
    run.epochs["rank"] = [0, 1]
    assert not scopes(run)[0].each_is_left


@pytest.mark.parametrize(
    ("kind", "excess_ns", "kept"),
    [("iterable", 2e9, False), ("iterable", 2e8, True), ("map", 2e9, True)],
)
def test_what_an_iterable_does_before_its_first_sample_is_done_by_kept_workers_too(
    kind: str, excess_ns: float, kept: bool
) -> None:
    run = Plan(workers=1, epochs=4, batches=20).run()
    run.loaders["dataset_kind"] = kind
    scope = scopes(run)[0]
    evidence = {"iter_ns": 5e7, "workers_ns": 1e8, "first_send_ns": 3e7, "epochs": 4.0}
    evidence |= {"first_batch_ns": 1.1 * excess_ns, "first_excess_ns": excess_ns}
    charge = Charge(STARTUP.kind, STARTUP.title, sum(evidence.values()), evidence)
    advice = STARTUP.advice(charge, circumstances_of(scope, core_use(scope)))
    assert "making the first batch" in advice.text
    assert bool(advice.remedy.setting) == ("set persistent_workers=True" in advice.text) == kept
    assert ("also by workers that are kept" in advice.text) == (kind == "iterable")


@pytest.mark.parametrize(("epochs", "kept"), [(1, False), (3, True)])
def test_workers_are_to_be_kept_only_where_they_are_started_again(epochs: int, kept: bool) -> None:
    scope = scopes(Plan(workers=2, epochs=epochs, batches=20, shutdown=3000.0).run())[0]
    first = next(cause for cause in verdict(scope).causes if cause.kind == "shut-down")
    assert bool(first.remedy.setting) == kept
    assert ("persistent_workers=True" in first.advice) == kept


@pytest.mark.parametrize(
    ("slow", "words"),
    [
        ({"iter": 600.0}, "in iter() itself"),
        ({"spawn": 600.0}, "until the workers were ready"),
        ({"first_sample": 600.0}, "making that batch"),
        ({"first_pickle": 600.0}, "sending that batch"),
        ({"iter": 300.0, "first_sample": 300.0}, ""),
    ],
)
def test_the_title_says_what_takes_most_of_a_start(slow: dict[str, Any], words: str) -> None:
    title = verdict(scopes(Plan(epochs=4, batches=4, **slow).run())[0]).causes[0].title
    named = f" (most of it {words})" if words else ""
    assert title == f"start-up: from iter() to the first batch{named}"


def test_what_a_stream_does_first_is_told_also_of_loops_that_are_left() -> None:
    run = Plan(epochs=4, batches=8, first_sample=600.0).run()
    run.loaders["dataset_kind"], run.epochs["exhausted"] = "iterable", False
    advice = verdict(scopes(run)[0]).causes[0].advice
    assert advice.startswith("The program leaves each loop before its end")
    assert "before it yields its first sample" in advice


def test_workers_that_the_code_needs_are_kept_instead_of_left_out() -> None:
    plan = Plan(epochs=4, batches=4, spawn=300, operations={"Cheap": 0.5}, collate=0.1)
    for place in ("", "train.py:7"):
        run = plan.run()
        run.loaders["workers_needed_at"] = place
        first = verdict(scopes(run)[0]).causes[0]
        assert first.kind == "start-up"
        assert first.remedy.setting == (
            {"persistent_workers": True} if place else {"num_workers": 0}
        )
        assert ("num_workers=0" in first.advice) == (not place)


def test_what_torch_refuses_without_workers_is_named() -> None:
    run = Plan(epochs=4, batches=4, spawn=300, operations={"Cheap": 0.5}, collate=0.1).run()
    first = verdict(scopes(run)[0]).causes[0]
    assert "set num_workers=0, and the main process makes them itself." in first.advice
    assert "keep the workers instead" in first.advice
    for name, value in (("timeout", 30.0), ("start_method", "spawn"), ("prefetch_factor", 4)):
        run.loaders[name] = value
    first = verdict(scopes(run)[0]).causes[0]
    assert (
        "set num_workers=0, without prefetch_factor, timeout, multiprocessing_context, and"
        in first.advice
    )
