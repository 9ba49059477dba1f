"""The interval of rates, against the spread of made-up batches."""

import numpy as np
import pytest

from lotus.analysis.batches.rate_spread import rate_spread
from lotus.analysis.common.scope import scopes
from tests.unit.simulated import Plan


def test_the_interval_of_independent_steps_is_that_of_their_mean() -> None:
    run = Plan(batches=400).run()
    steps = np.random.default_rng(3).normal(100.0, 20.0, len(run.waits))
    run.waits["step_ns"] = steps * 1e6
    low, high = rate_spread(scopes(run)[0], "waits", "step_ns")
    of_mean = 1.96 * steps.std() / steps.mean() / np.sqrt(len(steps))
    assert high - 1.0 == pytest.approx(of_mean, rel=0.4)
    assert 1.0 - low == pytest.approx(of_mean, rel=0.4)


def test_steps_that_come_in_long_runs_are_less_sure() -> None:
    run = Plan(batches=400).run()
    widths = []
    for block in (1, 40):
        steps = np.where((np.arange(len(run.waits)) // block) % 2, 80.0, 120.0)
        run.waits["step_ns"] = np.random.default_rng(5).permutation(steps) if block == 1 else steps
        low, high = rate_spread(scopes(run)[0], "waits", "step_ns")
        widths.append(high - low)
    assert widths[1] > 2 * widths[0]


def test_few_batches_do_not_tell() -> None:
    run = Plan(batches=6).run()
    assert rate_spread(scopes(run)[0], "batches", "fetch_ns") == (1.0, 1.0)


def test_a_slow_rank_makes_nothing_less_sure() -> None:
    run = Plan(batches=200).run()
    steps = np.random.default_rng(3).normal(100.0, 10.0, len(run.waits))
    half = np.arange(len(steps)) >= len(steps) // 2
    run.waits["step_ns"] = steps
    alike = rate_spread(scopes(run)[0], "waits", "step_ns")
    run.waits.loc[half, "step_ns"] *= 100
    run.waits.loc[half, "rank"] = 1
    low, high = rate_spread(scopes(run)[0], "waits", "step_ns")
    assert high - low == pytest.approx(alike[1] - alike[0], rel=0.3)
