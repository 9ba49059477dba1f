"""Intervals hold the truth as often as they say, also where batches are not independent."""

import math
from dataclasses import replace

import numpy as np
import pytest

from lotus.common.numbers import bootstrap
from lotus.compare.uncertainty import ReplicatedValue, adjusted, difference

CASES = 300


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "REPLICATES", 300)


def autoregressive(
    generator: np.random.Generator, count: int, phi: float, skewed: bool
) -> np.ndarray:
    """Times of batches whose mean is 10, or, skewed, that of a lognormal distribution."""
    noise = generator.standard_normal(count + 60)
    for place in range(1, len(noise)):
        noise[place] = phi * noise[place - 1] + math.sqrt(1 - phi**2) * noise[place]
    noise = noise[60:]
    return np.exp(0.5 * noise) if skewed else 10 + 2 * noise


def measured(times: np.ndarray, generator: np.random.Generator) -> ReplicatedValue:
    rows = np.column_stack((times, np.ones(len(times))))
    length = bootstrap.block_length((times - times.mean())[:, None])
    drawn = bootstrap.draw(len(times), length, generator)
    replicates = bootstrap.replicated(rows, length, drawn)
    return ReplicatedValue(
        float(times.mean()),
        replicates[:, 0] / replicates[:, 1],
        bootstrap.blocks(len(times), length),
        np.array([times.mean()]),
    )


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize(("count", "phi"), [(40, 0.0), (100, 0.5), (400, 0.8)])
def test_an_interval_of_95_per_cent_holds_the_truth_in_90_to_98(
    count: int, phi: float, skewed: bool
) -> None:
    generator = np.random.default_rng(7)
    held = 0
    for _ in range(CASES):
        a, b = (
            measured(autoregressive(generator, count, phi, skewed), generator) for _ in range(2)
        )
        estimate = difference(a, b)
        held += estimate.low <= 0 <= estimate.high
        assert (estimate.p < 0.05) == (not estimate.low <= 0 <= estimate.high)
    assert 0.90 <= held / CASES <= 0.98


def test_blocks_are_what_makes_them_hold() -> None:
    """Single batches drawn, as if they were independent, miss the truth of such series often."""
    generator = np.random.default_rng(7)
    held = 0
    for _ in range(CASES):
        sides = []
        for _ in range(2):
            times = autoregressive(generator, 200, 0.8, False)
            drawn = bootstrap.draw(200, 1, generator)
            replicates = bootstrap.replicated(times[:, None], 1, drawn)[:, 0] / 200
            sides.append(
                ReplicatedValue(float(times.mean()), replicates, 200, np.array([times.mean()]))
            )
        estimate = difference(*sides)
        held += estimate.low <= 0 <= estimate.high
    assert held / CASES < 0.7


def test_runs_that_differ_from_each_other_are_told_by_repeats_only() -> None:
    """Each run has a pace of its own: two single runs look different, three a side do not."""
    generator = np.random.default_rng(3)
    wrong = {1: 0, 3: 0}
    cases = 100
    for _ in range(cases):
        for runs in wrong:
            sides = []
            for _ in range(2):
                each = [
                    measured(10 * math.exp(0.05 * generator.standard_normal())
                             + generator.standard_normal(200), generator)
                    for _ in range(runs)
                ]  # fmt: skip
                values = np.array([value.value for value in each])
                replicates = np.mean([value.replicates for value in each], axis=0)
                blocks = sum(value.blocks for value in each)
                sides.append(ReplicatedValue(float(values.mean()), replicates, blocks, values))
            estimate = difference(*sides)
            wrong[runs] += not estimate.low <= 0 <= estimate.high
    assert wrong[1] / cases > 0.4
    assert wrong[3] / cases < 0.1


def test_a_run_without_repeats_varies_as_those_of_the_other_side() -> None:
    calm = np.full(300, 10.0) + np.random.default_rng(1).standard_normal(300) / 100
    single = ReplicatedValue(10.0, calm, 50, np.array([10.0]))
    several = ReplicatedValue(11.0, calm + 1, 150, np.array([9.9, 11.1, 12.0]))
    assert difference(single, several).low < 0 < difference(single, several).high
    alone = ReplicatedValue(11.0, calm + 1, 50, np.array([11.0]))
    assert difference(single, alone).low > 0.09


def test_single_runs_vary_as_much_as_is_said_of_them() -> None:
    """Each run has a pace of its own: told of it, intervals hold the truth as often as they say."""
    generator = np.random.default_rng(5)
    held = 0
    for _ in range(CASES):
        paces = 10 * np.exp([0.05, 0.2] * generator.standard_normal(2))
        sides = [
            replace(measured(pace + generator.standard_normal(200), generator), spread=spread)
            for pace, spread in zip(paces, (0.05, 0.2), strict=True)
        ]
        estimate = difference(*sides)
        held += estimate.low <= 0 <= estimate.high
    assert 0.90 <= held / CASES <= 0.98


def test_the_spread_of_single_runs_is_relative_in_any_unit() -> None:
    values = [np.random.default_rng(seed).normal(10.0, 0.1, 300) for seed in (1, 2)]
    sides = [ReplicatedValue(10.0, each, 50, np.array([10.0]), 0.1) for each in values]
    shares, absolute = difference(*sides), difference(*sides, relative=False)
    assert shares.high == pytest.approx(math.exp(absolute.high / 10.0) - 1, rel=0.01)


def test_nothing_known_of_the_variation_gives_no_interval() -> None:
    lone = ReplicatedValue(10.0, np.full(300, 10.0), 1, np.array([10.0]))
    known = ReplicatedValue(20.0, np.random.default_rng(1).normal(20, 1, 300), 50, np.array([20.0]))
    estimate = difference(lone, known)
    assert estimate.difference == pytest.approx(1.0)
    assert not estimate.has_interval
    assert math.isnan(estimate.p)


def test_zero_has_no_ratio_and_is_told_in_its_own_unit() -> None:
    generator = np.random.default_rng(1)
    nothing = ReplicatedValue(0.0, np.zeros(300), 50, np.array([0.0]))
    some = ReplicatedValue(5.0, generator.normal(5, 1, 300), 50, np.array([5.0]))
    estimate = difference(nothing, some)
    assert (estimate.relative, estimate.difference) == (False, 5.0)
    assert estimate.low > 0
    estimate = difference(some, nothing)
    assert estimate.relative
    assert (estimate.difference, estimate.low) == (-1.0, -1.0)


def test_no_variation_at_all_makes_a_difference_certain() -> None:
    a, b = (
        ReplicatedValue(value, np.full(300, value), 9, np.array([value])) for value in (2.0, 3.0)
    )
    assert (difference(a, b).low, difference(a, b).p) == (pytest.approx(0.5), 0.0)
    assert difference(a, a).p == 1.0


def test_benjamini_and_hochberg() -> None:
    """The example of their paper (1995), section 3.2: four of fifteen are found at 5 %."""
    p_values = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240]
    p_values += [0.4262, 0.5719, 0.6528, 0.7590, 1.0000]
    adjusted_values = adjusted(p_values)
    assert (adjusted_values < 0.05).sum() == 4
    shuffled = adjusted([p_values[9], math.nan, p_values[0]])
    assert shuffled[0] == pytest.approx(0.3240)
    assert math.isnan(shuffled[1])
    assert shuffled[2] == pytest.approx(0.0002)
