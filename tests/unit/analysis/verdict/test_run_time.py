"""The wall time of a run, divided: every nanosecond once, also where loops overlap."""

from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from lotus.analysis.observations.own_code import HotFunction
from lotus.analysis.summary import summarise
from lotus.analysis.verdict import run_time
from lotus.analysis.verdict.run_time import RunTime
from lotus.analysis.verdict.time_outside import with_outside
from tests.unit.simulated import Plan


def bounded(run: SimpleNamespace, before: float = 2.0, after: float = 1.0) -> SimpleNamespace:
    """Give a run a start and an end, so many seconds before its first and after its last loop."""
    run.manifest["start_ns"] = int(run.epochs["start_ns"].min() - before * 1e9)
    run.manifest["end_ns"] = int(run.epochs["end_ns"].max() + after * 1e9)
    return run


def together(*runs: SimpleNamespace) -> SimpleNamespace:
    """One run with the loaders of several."""
    both = SimpleNamespace(**vars(runs[0]))
    for name in ("ops", "samples", "batches", "waits", "workers", "epochs", "loaders"):
        parts = [getattr(run, name) for run in runs]
        setattr(both, name, pd.concat(parts, ignore_index=True))
    return both


def shift(run: SimpleNamespace, ns: float) -> SimpleNamespace:
    """The run, so much later."""
    for name, columns in (
        ("epochs", ["start_ns", "end_ns"]),
        ("waits", ["start_ns"]),
        ("workers", ["start_ns", "loop_ns", "ready_ns"]),
    ):
        table = getattr(run, name)
        table[columns] += ns
    return run


def divided(run: SimpleNamespace) -> RunTime:
    time = run_time.run_time(run)
    assert time is not None
    assert sum(part.ns for part in time.parts) == pytest.approx(time.wall_ns, rel=1e-9)
    assert all(part.ns > 0 for part in time.parts)
    return time


def test_a_callback_of_lotus_is_no_time_of_the_program() -> None:
    run = Plan(epochs=3, operations={"Slow": 20.0}, step=5.0).run()
    run.epochs[["start_ns", "end_ns"]] += run.epochs[["epoch"]].to_numpy() * 2e9
    run.waits["start_ns"] += run.waits["epoch"] * 2e9
    without = divided(bounded(run))
    run.epochs["callback_ns"] = [1e9, 5e8, 25e7]
    time = divided(run)
    assert time.of(run_time.CALLBACK) == pytest.approx(1.75e9)
    assert without.of(run_time.BETWEEN) - time.of(run_time.BETWEEN) == pytest.approx(1.5e9)
    assert without.of(run_time.AFTER) - time.of(run_time.AFTER) == pytest.approx(25e7)


def test_the_parts_add_up_to_the_wall_time() -> None:
    run = bounded(Plan(epochs=3, operations={"Slow": 20.0}, step=5.0).run())
    time = divided(run)
    assert time.of(run_time.SETUP) == pytest.approx(2e9)
    assert time.of(run_time.AFTER) == pytest.approx(1e9)
    assert time.of(run_time.STEP) == pytest.approx(run.waits["step_ns"].sum(), rel=0.02)
    loop = time.of("start-up", "wait", "step", "shut-down", "between")
    assert loop == pytest.approx(time.wall_ns - 3e9)


def test_imports_end_where_torch_was_imported() -> None:
    run = bounded(Plan().run())
    imported = run.manifest["start_ns"] + 500_000_000
    pid = int(run.epochs["pid"].iloc[0])
    run.processes = pd.DataFrame({"pid": [pid], "torch_ns": [imported]})
    assert divided(run).of(run_time.IMPORTS) == pytest.approx(0.5e9)


def test_a_loop_inside_a_step_is_taken_out_of_that_step() -> None:
    training = Plan(batches=40, step=50.0).run()
    whole = divided(bounded(Plan(batches=40, step=50.0).run())).of(run_time.STEP)
    inner = Plan(batches=4, operations={"Slow": 5.0}, loader=1, step=1.0).run()
    within = training.waits["start_ns"].iloc[20] + training.waits["wait_ns"].iloc[20]
    shift(inner, within - inner.epochs["start_ns"].min() + 1e6)
    time = divided(bounded(together(training, inner)))
    of_inner = sum(part.ns for part in time.parts if part.loader == 1)
    steps = sum(part.ns for part in time.parts if part.loader == 0 and part.kind == "step")
    assert of_inner > 0
    assert steps == pytest.approx(whole - of_inner, rel=0.01)


def test_two_loaders_side_by_side_are_charged_once() -> None:
    first, second = (Plan(batches=40, loader=number, step=5.0).run() for number in (0, 1))
    shift(second, 1e6)
    divided(bounded(together(first, second)))


def test_waits_of_two_threads_at_a_time_are_charged_once() -> None:
    loops = [Plan(batches=40, loader=number, own=20.0, step=0.1).run() for number in (0, 1)]
    shift(loops[1], 1e6)
    time = divided(bounded(together(*loops)))
    assert time.of(run_time.WAIT) > 0.9 * (time.wall_ns - 3e9)


def test_time_between_loops_is_the_first_cause_where_it_is_most() -> None:
    first, second = (Plan(batches=10, loader=number, step=20.0).run() for number in (0, 1))
    later = first.epochs["end_ns"].max() - second.epochs["start_ns"].min() + 5e9
    run = bounded(together(first, shift(second, later)))
    judged = summarise(run).verdict
    assert judged is not None
    assert judged.kind == "outside"
    assert judged.causes[0].kind == "outside"
    assert judged.causes[0].ns == pytest.approx(5e9)
    assert "No loader setting" in judged.causes[0].advice
    assert summarise(run).loaders[0].verdict.kind != "outside"
    # With the lines that were seen there.
    line = HotFunction("keep", "/train.py", 7, 0.9, "table.to_csv(path)")
    cause = replace(summarise(run), hot_in_pauses=[line]).verdict.causes[0]
    assert cause.title == "the time between the loops, most of it at keep (train.py:7)"
    assert "of it: 90% at keep (train.py:7: `table.to_csv(path)`)" in cause.advice


@pytest.mark.parametrize("held", [0.0, 4.0], ids=["at once", "later"])
def test_the_shut_down_of_a_loop_that_was_left_is_no_time_between_loops(held: float) -> None:
    # GIVEN loops that are left before their end, whose iterators are let go of some seconds later
    runs = [Plan(batches=10, loader=number, step=20.0, shutdown=3000).run() for number in (0, 1)]
    for run in runs:
        run.epochs["exhausted"] = False
        run.epochs["end_ns"] += int(held * 1e9)
    later = runs[0].epochs["end_ns"].max() - runs[1].epochs["start_ns"].min() + 1e9
    time = divided(bounded(together(runs[0], shift(runs[1], later))))
    # THEN the seconds in between are the program's, and those of the shut-down the workers'
    assert time.of(run_time.SHUTDOWN) == pytest.approx(6e9)
    assert time.of(run_time.BETWEEN) == pytest.approx((1 + 2 * held) * 1e9)
    assert time.pauses == 1
    assert time.of(run_time.STEP) == pytest.approx(2 * 10 * 20e6, rel=0.02)


def test_a_loop_that_is_left_when_the_next_one_has_begun_is_charged_once() -> None:
    run = Plan(batches=10, epochs=2, step=20.0, shutdown=1000).run()
    first, second = run.epochs["start_ns"].tolist()
    earlier = run.epochs["end_ns"].iloc[0] - 1e9  # as if the second one began where it was left
    run.epochs["exhausted"] = [False, True]
    run.epochs["end_ns"] = [earlier, run.epochs["end_ns"].iloc[1]]
    assert first < earlier < second
    time = divided(bounded(run))
    assert time.of(run_time.SHUTDOWN) == pytest.approx(2e9)
    assert time.of(run_time.BETWEEN) <= 20e6  # the step after the last batch is not known


def test_a_long_set_up_is_a_cause_and_a_usual_one_is_not() -> None:
    run = bounded(Plan(batches=10, step=20.0).run(), before=2.0)
    run.processes = pd.DataFrame(
        {
            "pid": [int(run.epochs["pid"].iloc[0])],
            "torch_ns": [run.manifest["start_ns"] + 1_000_000_000],
        }
    )
    summary = summarise(run).verdict
    assert summary is not None
    assert summary.kind != "outside"
    run.manifest["start_ns"] -= 30_000_000_000
    run.processes["torch_ns"] -= 30_000_000_000
    summary = summarise(run).verdict
    assert summary is not None
    assert summary.causes[0].title == "the set-up before the first loop"
    assert summary.causes[0].advice.endswith("py-spy record -o profile.svg -- train.py")
    # Lines that were seen in a pause say nothing of it.
    line = HotFunction("keep", "/train.py", 7, 0.9)
    told = replace(summarise(run), hot_in_pauses=[line]).verdict
    assert told is not None
    assert told.causes[0].title == summary.causes[0].title
    # On cores that other programs have, a set-up must be longer.
    loop = summarise(run).loaders[0].verdict
    busy = replace(loop, doubt="The machine was busy.")
    assert with_outside(busy, divided(run), "").kind == "outside"
    # What it had no core for counts there, and only there.
    row = {"pid": int(run.epochs["pid"].iloc[0]), "worker": -1, "delay_before_ns": 29e9}
    run.children = pd.DataFrame([row, row | {"worker": 0, "delay_before_ns": 1e12}])
    assert divided(run).delay_before_ns == 29e9
    assert with_outside(busy, divided(run), "") == busy
    assert with_outside(loop, divided(run), "").kind == "outside"
    run.children = run.children.iloc[:0]
    run.manifest["start_ns"] += 27_000_000_000
    run.processes["torch_ns"] = run.manifest["start_ns"] + 100_000_000
    assert with_outside(loop, divided(run), "").kind == "outside"
    assert with_outside(busy, divided(run), "") == busy


@pytest.mark.parametrize(("times", "first"), [(3, "operation"), (6, "outside")])
def test_a_set_up_is_compared_with_waits_that_come_in_each_epoch(times: int, first: str) -> None:
    run = bounded(Plan(batches=100, step=20.0, operations={"Slow": 100.0}).run(), before=0.0)
    time = divided(run)
    waits = time.of(run_time.STARTUP, run_time.WAIT, run_time.SHUTDOWN)
    # GIVEN a set-up that takes so many times as long as all waits of one epoch
    imported = run.manifest["start_ns"] - round(times * waits)
    run.processes = pd.DataFrame(
        {"pid": [int(run.epochs["pid"].iloc[0])], "torch_ns": [imported]},
    )
    run.manifest["start_ns"] = imported - 1_000_000
    judged = summarise(run).verdict
    assert judged is not None
    assert judged.causes[0].kind == first


def test_a_set_up_is_compared_with_what_slows_the_steps_as_well() -> None:
    run = bounded(Plan(batches=100, step=40.0).run(), before=0.0)
    imported = run.manifest["start_ns"] - 10_000_000_000
    run.processes = pd.DataFrame(
        {"pid": [int(run.epochs["pid"].iloc[0])], "torch_ns": [imported]},
    )
    run.manifest["start_ns"] = imported - 1_000_000
    loop = summarise(run).loaders[0].verdict
    assert with_outside(loop, divided(run), "").kind == "outside"
    step = loop.causes[0]
    assert step.kind == "consumer"
    slowed = replace(loop, causes=[replace(step, kind="step-threads", ns=3e9), step])
    assert with_outside(slowed, divided(run), "") == slowed
    little = replace(loop, causes=[replace(step, kind="step-threads", ns=1e9), step])
    assert with_outside(little, divided(run), "").kind == "outside"


def test_a_run_without_an_end_has_no_division() -> None:
    run = Plan().run()
    run.manifest.pop("end_ns", None)
    assert run_time.run_time(run) is None


def test_the_short_chart_adds_up_too() -> None:
    run = bounded(Plan(epochs=2, operations={"Slow": 20.0}).run())
    time = divided(run)
    for most in (2, 4, 8):
        parts = run_time.condensed(time, most)
        assert len(parts) <= most
        assert sum(part.ns for part in parts) == pytest.approx(time.wall_ns, rel=1e-9)


def test_the_part_that_the_verdict_is_about_is_never_folded_into_the_rest() -> None:
    time = divided(bounded(Plan(epochs=2, operations={"Slow": 20.0}).run(), before=900.0))
    (wait,) = (part for part in time.parts if part.kind == run_time.WAIT)
    assert wait.ns < 0.01 * time.wall_ns
    assert run_time.WAIT not in {part.kind for part in run_time.condensed(time, 2)}
    kept = run_time.condensed(time, 2, (wait.kind, wait.loader))
    assert [part.kind for part in kept] == [run_time.WAIT, run_time.REST]
    assert sum(part.ns for part in kept) == pytest.approx(time.wall_ns, rel=1e-9)


@pytest.mark.parametrize(("rest_s", "kind"), [(0.1, "input-bound"), (30.0, "unknown")])
def test_loops_that_are_next_to_nothing_of_a_run_are_not_judged(rest_s: float, kind: str) -> None:
    run = Plan(workers=0, batches=6, operations={"Slow": 2.0}, step=0.1).run()
    run = bounded(run, before=rest_s, after=0.1)
    judged = summarise(run).verdict
    assert judged is not None
    assert judged.kind == kind
    assert bool(judged.causes) == (kind != "unknown")
    assert ("too short to judge" in judged.summary) == (kind == "unknown")
