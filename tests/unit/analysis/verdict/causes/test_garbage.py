"""Full collections of garbage in training steps and in `next`, and what is said of them."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.batches.collection_cost import of_receiving, of_steps
from lotus.analysis.common.scope import scopes
from lotus.analysis.verdict.verdict import Cause, verdict
from lotus.inside.trace.full_collections import NEXT, STEP
from tests.unit.simulated import MS, Plan

TOOK = 60.0  # of a collection, ms


def slow_steps(every: int) -> SimpleNamespace:
    """A run where each so many steps take far longer."""
    return Plan(
        workers=2, batches=60, step=lambda number: 20.0 + TOOK * (number % every == 0)
    ).run()


def collected(run: SimpleNamespace, during: str, every: int, first: int = 0) -> SimpleNamespace:
    """Record that each so many steps, or calls of `next`, had a full collection."""
    rows = run.waits[np.arange(len(run.waits)) % every == first]
    begin = rows["start_ns"] + (rows["wait_ns"] if during == STEP else 0)
    run.full_collections = pd.DataFrame(
        {"pid": rows["pid"], "during": during, "time_ns": begin, "count": 1}
    )
    return run


def causes(run: SimpleNamespace) -> dict[str, Cause]:
    return {cause.kind: cause for cause in verdict(scopes(run)[0]).causes}


@pytest.mark.parametrize("every", [2, 6])
def test_steps_with_one_are_held_against_others(every: int) -> None:
    cost = of_steps(scopes(collected(slow_steps(every), STEP, every))[0])
    assert cost is not None
    assert cost.each_ns == pytest.approx(TOOK * MS, rel=0.02)
    assert cost.share == pytest.approx(TOOK / (TOOK + 20.0 * every), rel=0.02)
    assert cost.count == pytest.approx(1 / every, rel=0.02)


def test_a_step_of_which_half_is_collections_says_so() -> None:
    step = causes(collected(slow_steps(2), STEP, 2))["consumer"]
    assert step.title == "the training step, most of it Python's garbage collector"
    assert "looked at all objects 0.50 times a step, for about 60.0 ms each time" in step.reason
    assert "60% of the time of training steps: call gc.disable() before the loop" in step.advice


def test_long_steps_that_had_one_say_so() -> None:
    long = causes(collected(slow_steps(6), STEP, 6))["long-steps"]
    assert long.title.endswith("in which Python's garbage collector looks at all objects")
    assert "100% of them had a full collection of garbage, and hardly any other" in long.reason
    assert long.advice.startswith("Python's garbage collector")


def test_they_come_before_waits_that_cost_less_and_before_the_step_itself() -> None:
    """A change of one line ends them."""
    slow = Plan(workers=1, batches=60, step=lambda number: 5.0 + 120.0 * (number % 6 == 0))
    assert verdict(scopes(slow.run())[0]).causes[0].kind != "long-steps"
    judgement = verdict(scopes(collected(slow.run(), STEP, 6))[0])
    assert judgement.causes[0].kind == "long-steps"
    half = verdict(scopes(collected(slow_steps(2), STEP, 2))[0])
    assert half.causes[0].title == "the training step, most of it Python's garbage collector"


def test_steps_that_take_longer_than_a_collection_does_are_not_its() -> None:
    long = Plan(workers=2, batches=60, step=lambda number: 20.0 + 900.0 * (number % 6 == 0)).run()
    assert "garbage" not in causes(collected(long, STEP, 6))["long-steps"].title


def test_long_steps_beside_those_that_had_one_do_not() -> None:
    long = causes(collected(slow_steps(6), STEP, 6, first=3))["long-steps"]
    assert "garbage" not in long.title + long.reason + long.advice


def test_receiving_is_held_against_others_by_its_cpu_time() -> None:
    """The wait says nothing: the main process also waits for the workers."""
    run = Plan(workers=2, batches=60, unpickle=30.0, write=5.0).run()
    cpu = 10.0 + 40.0 * (np.arange(len(run.waits)) % 3 == 0)
    run.waits = run.waits.assign(wait_cpu_ns=cpu * MS)
    run = collected(run, NEXT, 3)
    cost = of_receiving(scopes(run)[0])
    assert cost is not None
    assert cost.each_ns == pytest.approx(40 * MS)
    assert cost.share == pytest.approx(40 / 70)
    sending = causes(run)["send"]
    assert "looked at all objects 0.33 times a batch" in sending.reason
    assert "57% of the time that the main process computes in next()" in sending.advice
