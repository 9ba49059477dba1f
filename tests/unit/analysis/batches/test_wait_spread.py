"""The interval of the waits' share: wide where batches differ, unknown where there are few."""

import math
from dataclasses import replace

import numpy as np
import pytest

from lotus.analysis.batches.wait_spread import wait_spread
from lotus.analysis.common.scope import scopes
from lotus.analysis.summary import summarise
from lotus.analysis.verdict.account import account
from lotus.analysis.verdict.advice.circumstances import circumstances_of
from lotus.analysis.verdict.causes import BY_KIND
from lotus.analysis.verdict.causes.cause_row import WAITS, Charge
from lotus.analysis.verdict.causes.cores.other_programs import OTHERS
from lotus.analysis.verdict.verdict import judge
from tests.unit.simulated import Plan


def spread(run: object) -> tuple[float, float]:
    return wait_spread(scopes(run)[0])


def test_equal_waits_leave_no_doubt() -> None:
    low, high = spread(Plan(own=20.0, workers=0, batches=100).run())
    assert low == pytest.approx(1.0, abs=0.02)
    assert high == pytest.approx(1.0, abs=0.02)


def test_the_interval_holds_the_true_share_about_as_often_as_it_says() -> None:
    random, run = np.random.default_rng(1), Plan(batches=200).run()
    held = 0
    for _ in range(100):
        run.waits["wait_ns"] = random.exponential(1e6, 200)
        run.waits["step_ns"] = 1e6
        share = (run.waits["wait_ns"].sum() - run.waits["wait_ns"].iloc[0]) / (
            run.waits["wait_ns"].sum() - run.waits["wait_ns"].iloc[0] + 199e6
        )
        low, high = (share * factor for factor in spread(run))
        held += low <= 0.5 <= high
    assert 88 <= held <= 100


def test_few_batches_and_waits_of_nothing_have_none() -> None:
    assert all(map(math.isnan, spread(Plan(batches=10).run())))
    run = Plan(batches=40).run()
    run.waits["wait_ns"] = 0.0
    assert all(map(math.isnan, spread(run)))


def test_the_verdict_says_it() -> None:
    run = Plan(batches=200, workers=0).run()
    run.waits["wait_ns"] = np.random.default_rng(1).exponential(4e6, 200).round()
    judged = summarise(run).loaders[0].verdict
    assert judged.input_low < judged.input_share < judged.input_high
    assert f"({judged.input_low:.0%} to {judged.input_high:.0%})" in judged.summary


@pytest.mark.parametrize(
    ("often", "kind"), [(0.1, "consumer-bound"), (0.15, "input-bound"), (0.01, "consumer-bound")]
)
def test_a_share_that_is_not_shown_to_matter_asks_for_no_change(often: float, kind: str) -> None:
    run = Plan(batches=200, workers=2).run()
    waits = np.random.default_rng(3).random(200) < often
    run.waits["wait_ns"] = np.where(waits, 20_000_000, 0)
    run.waits["step_ns"] = 20_000_000
    judged = summarise(run).loaders[0].verdict
    unclear = judged.input_low < 0.05 <= judged.input_share
    assert unclear == (often == 0.1)
    assert judged.kind == kind
    assert ("which is not significantly more than 5%" in judged.summary) == unclear


def test_what_others_kept_it_from_does_not_count() -> None:
    """Waits of 20 %, all but some 6 % of them while other programs had the cores."""
    run = Plan(batches=200, workers=2).run()
    waits = np.random.default_rng(3).random(200) < 0.25
    run.waits["wait_ns"] = np.where(waits, 20_000_000, 0)
    run.waits["step_ns"] = 20_000_000
    scope = scopes(run)[0]
    loop_account = account(scope)
    others = Charge(OTHERS.kind, OTHERS.title, 0.7 * loop_account.wait_ns)
    rest = [
        replace(each, ns=0.3 * each.ns) if BY_KIND[each.kind].part == WAITS else each
        for each in loop_account.charges
    ]
    judged = judge(
        replace(loop_account, charges=[*rest, others]), circumstances_of(scope, loop_account.use)
    )
    assert judged.input_low > 0.05
    assert judged.kind == "consumer-bound"
    assert "which is not significantly more than 5%" in judged.summary
