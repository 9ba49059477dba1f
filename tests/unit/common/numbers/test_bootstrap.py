"""Blocks follow the memory of a series, and replicates have the spread of its sums and means."""

import math

import numpy as np
import pytest

from lotus.common.numbers import bootstrap


def autoregressive(generator: np.random.Generator, count: int, phi: float) -> np.ndarray:
    noise = generator.standard_normal(count + 60)
    for place in range(1, len(noise)):
        noise[place] = phi * noise[place - 1] + math.sqrt(1 - phi**2) * noise[place]
    return noise[60:]


def test_longer_memory_makes_longer_blocks() -> None:
    generator = np.random.default_rng(5)
    lengths = [
        bootstrap.block_length(autoregressive(generator, 1000, phi)[:, None])
        for phi in (0.0, 0.5, 0.9)
    ]
    assert lengths == sorted(lengths)
    assert lengths[2] >= 2 * lengths[0]
    assert bootstrap.block_length(np.zeros((3, 1))) == 1
    assert bootstrap.block_length(np.ones((500, 2))) >= 1


def test_replicates_have_the_spread_of_the_sum() -> None:
    generator = np.random.default_rng(2)
    rows = generator.normal(10, 2, (300, 1))
    replicates = bootstrap.replicated(rows, 5, bootstrap.draw(300, 5, generator))
    assert replicates.shape == (bootstrap.REPLICATES, 1)
    assert replicates.mean() == pytest.approx(rows.sum(), rel=0.002)
    assert replicates.std() == pytest.approx(2 * math.sqrt(300), rel=0.25)


def test_mean_deviations_are_those_of_the_replicated_sums() -> None:
    series = autoregressive(np.random.default_rng(4), 400, 0.5) + 10
    length = bootstrap.block_length((series - series.mean())[:, None])
    drawn = bootstrap.draw(400, length, np.random.default_rng(9))
    sums = bootstrap.replicated(series[:, None], length, drawn)[:, 0]
    deviations = bootstrap.mean_deviations(series, bootstrap.REPLICATES, np.random.default_rng(9))
    assert deviations == pytest.approx(sums / series.sum() - 1)


@pytest.mark.parametrize("series", [np.full(3, 2.0), np.zeros(100)])
def test_a_mean_of_which_no_variation_is_known_does_not_deviate(series: np.ndarray) -> None:
    assert not bootstrap.mean_deviations(series, 5, np.random.default_rng(1)).any()


def test_the_rows_of_a_replicate_are_blocks_that_wrap_around() -> None:
    rows = bootstrap.draw_rows(10, 4, np.random.default_rng(0))
    assert len(rows) == 10
    steps = np.diff(rows) % 10
    assert (np.delete(steps, [3, 7]) == 1).all()
