"""Costly batches in bursts, which a larger prefetch factor hides, and waits that none does."""

from types import SimpleNamespace

import numpy as np
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.replay.prefetch_replay import NOTHING, enough_prefetch
from lotus.analysis.verdict.verdict import Verdict, verdict
from tests.unit.simulated import Plan


def bursts(sample: int, worker: int) -> float:
    """Milliseconds of a sample: 8 of 48 batches of 4 are costly, one after the other."""
    return 40.0 if (sample // 4) % 48 >= 40 else 0.5


def loop(**plan: object) -> SimpleNamespace:
    usual = {"operations": {"Read": bursts}, "step": 20.0, "batches": 192, "prefetch": 1}
    return Plan(**(usual | plan)).run()  # type: ignore[arg-type]


def judged(run: SimpleNamespace) -> Verdict:
    return verdict(scopes(run)[0])


def test_the_replay_predicts_what_a_larger_prefetch_factor_does() -> None:
    found = enough_prefetch(scopes(loop())[0])
    assert found.prefetch_factor > 1
    assert found.saved_share > 0.5
    # The same loop with that prefetch factor waits as long as was predicted.
    waits = loop(prefetch=found.prefetch_factor).waits["wait_ns"].iloc[1:].sum()
    predicted = found.wait_ns - found.saved_ns
    assert waits == pytest.approx(predicted, abs=0.05 * found.wait_ns)


def test_bursts_are_the_cause_and_the_advice_has_the_prefetch_factor() -> None:
    run = loop()
    first = judged(run).causes[0]
    assert first.kind == "prefetch"
    factor = enough_prefetch(scopes(run)[0]).prefetch_factor
    assert f"Raise prefetch_factor from 1 to {factor}" in first.advice
    assert "save" in first.reason
    assert judged(loop(prefetch=factor)).causes[0].kind != "prefetch"


def test_of_torchs_own_prefetch_factor_the_costly_batches_are_the_cause() -> None:
    first = judged(loop(prefetch=2)).causes[0]
    factor = enough_prefetch(scopes(loop(prefetch=2))[0]).prefetch_factor
    assert first.kind == "slow-batches"
    assert first.remedy.setting == {"prefetch_factor": factor}
    assert f"Raise prefetch_factor from 2 to {factor}, which hides them" in first.advice
    assert f"a prefetch factor of {factor} would save" in first.reason


def test_a_larger_prefetch_factor_fills_long_training_steps() -> None:
    """One step in 16 takes nearly all of the time of all, as where gradients are gathered."""
    plan = {"operations": {"Read": 3.0}, "step": lambda batch: 300.0 if batch % 16 == 15 else 1.0}
    run = loop(workers=2, **plan)
    first = judged(run).causes[0]
    assert first.kind == "prefetch"
    assert first.title.startswith("12 training steps are far longer")
    assert "during the long steps" in first.reason
    factor = enough_prefetch(scopes(run)[0]).prefetch_factor
    assert judged(loop(workers=2, prefetch=factor, **plan)).causes[0].kind != "prefetch"
    # Workers that never have time to get ahead gain nothing from it.
    slow = {"operations": {"Read": 60.0}, "step": plan["step"]}
    assert enough_prefetch(scopes(loop(workers=2, **slow))[0]).saved_share < 0.5


@pytest.mark.parametrize(
    "plan",
    [
        {"operations": {"Read": 40.0}},  # all are costly: workers are never idle
        {"operations": {"Read": lambda sample, _: 2000.0 if sample == 53 else 0.5}},  # a stall
        {"workers": 0},
        {"batches": 8},
    ],
)
def test_other_waits_are_not_hidden_by_prefetch(plan: dict[str, object]) -> None:
    assert enough_prefetch(scopes(loop(**plan))[0]) == NOTHING


def test_a_loop_that_the_replay_does_not_follow_is_not_judged_by_it() -> None:
    run = loop()
    run.waits["wait_ns"] *= 3
    assert enough_prefetch(scopes(run)[0]) == NOTHING
    run = loop()
    run.batches = run.batches.drop(index=5)  # a batch without a record
    assert enough_prefetch(scopes(run)[0]) == NOTHING


def test_no_prefetch_is_advised_that_shared_memory_cannot_hold() -> None:
    run = loop()
    run.batches["bytes"] = 10_000_000
    free = enough_prefetch(scopes(run)[0]).prefetch_factor
    run.manifest["shm_bytes"] = 2 * 2 * 10_000_000 * (free - 1)
    limited = enough_prefetch(scopes(run)[0]).prefetch_factor
    assert limited < free


def test_only_what_is_taken_in_order_can_be_shuffled() -> None:
    run = loop()
    run.loaders["sampler"] = "SequentialSampler"
    assert "shuffle=True" in judged(run).causes[0].advice
    run.loaders["sampler"] = "RandomSampler"
    assert "shuffle" not in judged(run).causes[0].advice


@pytest.mark.parametrize(("even", "found"), [(True, True), (False, False)])
def test_few_costly_batches_are_bursts_where_they_come_evenly(even: bool, found: bool) -> None:
    # GIVEN 16 costly batches of 320
    places = range(7, 320, 20) if even else np.random.default_rng(3).choice(320, 16, replace=False)
    costly = {int(place) for place in places}

    def read(sample: int, worker: int) -> float:
        return 30.0 if sample // 4 in costly else 0.5

    run = loop(batches=320, workers=2, prefetch=1, step=9.0, operations={"Read": read})
    # THEN a prefetch factor is proposed only for those that come again
    assert (enough_prefetch(scopes(run)[0]).prefetch_factor > 1) == found
