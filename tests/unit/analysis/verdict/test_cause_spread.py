"""The intervals of the causes: what each batch owes to each, drawn again and again together."""

import dataclasses
import math

import numpy as np
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.summary import summarise
from lotus.analysis.verdict.account import account
from lotus.analysis.verdict.cause_spread import CauseSpread
from lotus.analysis.verdict.causes import BY_KIND
from lotus.analysis.verdict.causes.cause_row import STEP, WAITS
from lotus.analysis.verdict.verdict import Verdict
from tests.unit.simulated import Plan


def varied(seed: int, decode: float = 2.0, crop: float = 2.0, batches: int = 120) -> Plan:
    """A loop without workers whose two operations take an exponential time each."""
    random = np.random.default_rng(seed)
    return Plan(
        workers=0,
        batches=batches,
        operations={
            "Decode": lambda *_: float(random.exponential(decode)),
            "Crop": lambda *_: float(random.exponential(crop)),
        },
    )


def judged(plan: Plan) -> Verdict:
    return summarise(plan.run()).loaders[0].verdict


def test_each_batch_of_each_cause_adds_up_to_its_time() -> None:
    loop_account = account(scopes(varied(1).run())[0])
    for charge in loop_account.charges:
        assert charge.by_batch is not None
        if BY_KIND[charge.kind].part in (WAITS, STEP):
            assert charge.by_batch.sum() == pytest.approx(charge.ns, rel=1e-6), charge.kind


def test_the_interval_holds_the_true_share_about_as_often_as_it_says() -> None:
    held = 0
    true = judged(varied(0, batches=4000))
    share = next(cause.share for cause in true.causes if cause.title == "Decode")
    for seed in range(1, 41):
        cause = next(each for each in judged(varied(seed)).causes if each.title == "Decode")
        held += cause.low <= share <= cause.high
    assert 33 <= held <= 40


def test_causes_that_these_batches_cannot_tell_apart_are_both_named() -> None:
    verdict = judged(varied(3))
    assert {verdict.causes[0].title, verdict.as_large} == {"Decode", "Crop"}
    assert judged(varied(3, decode=4.0)).as_large == ""


def test_a_cause_at_the_start_of_an_epoch_and_few_batches_have_no_interval() -> None:
    verdict = judged(Plan(spawn=400.0, batches=60))
    startup = next(cause for cause in verdict.causes if cause.kind == "start-up")
    assert math.isnan(startup.low)
    assert math.isnan(startup.high)
    few = judged(Plan(batches=12, operations={"Decode": 9.0}))
    assert all(math.isnan(cause.low) for cause in few.causes)


def test_the_training_step_has_one() -> None:
    step = next(cause for cause in judged(varied(5)).causes if cause.part == STEP)
    assert step.low <= step.share <= step.high


@pytest.mark.parametrize("looks", [20, 2000])
def test_what_was_inferred_from_few_observations_is_as_unsure_as_they_are(looks: int) -> None:
    loop_account = account(scopes(varied(5).run())[0])
    measured = next(charge for charge in loop_account.charges if charge.name == "Decode")
    inferred = dataclasses.replace(measured, looks=(0.3, looks))
    low, high = CauseSpread((), np.empty((1, 0))).interval(inferred)
    about = 1.96 * math.sqrt(0.3 * 0.7 / looks) / 0.3  # relative to the share
    assert 1 - low / measured.ns == pytest.approx(about, rel=0.25)
    assert high / measured.ns - 1 == pytest.approx(about, rel=0.25)
    # Beside the spread of batches, the wider interval counts.
    spread = CauseSpread([inferred], np.array([[0.5], [1.5]]))
    assert spread.interval(inferred)[0] <= 0.55 * measured.ns
    assert math.isnan(CauseSpread((), np.empty((1, 0))).interval(measured)[0])
