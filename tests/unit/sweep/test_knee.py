"""Where the knee is, and how sure that is."""

import numpy as np
import pytest

from lotus.sweep.knee import NEAR, knee


def noisy(means: dict[int, float], repeats: int, spread: float, seed: int = 0):
    dice = np.random.default_rng(seed)
    return {
        workers: (mean * np.exp(dice.normal(0, spread, repeats))).tolist()
        for workers, mean in means.items()
    }


def test_the_fewest_workers_near_the_best_are_the_knee():
    bend = knee({1: [100.0], 2: [200.0], 4: [391.0], 8: [400.0]})
    assert bend is not None
    assert (bend.workers, bend.best_workers, bend.last) == (4, 8, False)
    assert bend.of_best == pytest.approx(391 / 400)


def test_just_below_what_is_near_is_not_enough():
    best, less = 400.0, 400.0 * (1 - NEAR)
    assert knee({4: [less * 0.999], 8: [best]}).workers == 8
    assert knee({4: [less * 1.001], 8: [best]}).workers == 4


def test_a_rate_that_still_grows_has_its_knee_at_the_end():
    bend = knee({1: [100.0], 2: [190.0], 4: [370.0]})
    assert (bend.workers, bend.last) == (4, True)


def test_a_rate_that_falls_again_has_its_knee_before():
    bend = knee({1: [100.0], 2: [200.0], 4: [150.0]})
    assert (bend.workers, bend.best_workers, bend.last) == (2, 2, False)


def test_the_order_in_which_settings_were_run_does_not_matter():
    assert knee({8: [400.0], 1: [100.0], 4: [398.0]}) == knee({1: [100.0], 4: [398.0], 8: [400.0]})


def test_one_repeat_gives_no_interval():
    bend = knee({1: [100.0], 2: [200.0]})
    assert (bend.low, bend.high, bend.shares) == (None, None, {})


def test_repeats_that_agree_leave_no_doubt():
    bend = knee(noisy({1: 100, 2: 200, 4: 400, 8: 404}, 3, 1e-4))
    assert (bend.low, bend.workers, bend.high) == (4, 4, 4)
    assert bend.shares == {4: 1.0}


def test_repeats_that_differ_more_than_settings_leave_doubt():
    rates = {1: [99, 100, 101], 2: [196, 200, 204], 4: [370, 384, 396], 8: [388, 400, 413]}
    bend = knee(rates)
    assert (bend.low, bend.high, bend.undecided) == (4, 8, False)
    assert sum(bend.shares.values()) == pytest.approx(1)


def test_repeats_that_differ_more_than_all_settings_decide_nothing():
    bend = knee({1: [50, 100, 400], 2: [300, 60, 120], 4: [90, 350, 70]})
    assert (bend.low, bend.high, bend.undecided) == (1, 4, True)


def test_the_mean_that_is_shown_is_the_one_that_is_judged():
    """Two settings whose means of logarithms stand the other way round."""
    rates = {0: [201.0, 60.0, 60.0], 2: [98.0, 98.0, 98.0]}
    bend = knee(rates)
    assert np.log(rates[0]).mean() < np.log(rates[2]).mean() + np.log1p(-NEAR)
    assert (bend.workers, bend.best_workers, bend.of_best) == (0, 0, 1.0)


def test_what_was_not_measured_is_left_out():
    assert knee({1: [100.0], 2: [float("nan")], 4: [0.0]}) is None
    assert knee({1: [100.0, float("nan")], 2: [200.0]}).workers == 2


def test_the_interval_holds_the_true_knee_about_as_often_as_it_says():
    """Three repeats of 5 % noise, a knee that is clear of the threshold on both sides."""
    means = {1: 100.0, 2: 195.0, 4: 360.0, 8: 400.0, 16: 404.0}
    held = 0
    for seed in range(100):
        bend = knee(noisy(means, 3, 0.03, seed))
        held += bend.low <= 8 <= bend.high
    assert held >= 88
