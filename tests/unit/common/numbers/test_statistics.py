"""Student's t and Wilson's interval agree with scipy and with printed tables."""

import math

import pytest

from lotus.common.numbers import statistics

FREEDOMS = [
    0.3,
    0.5,
    1,
    1.5,
    2,
    2.7,
    3,
    4,
    5,
    7,
    10,
    20,
    49.9,
    60,
    99,
    101,
    500,
    999,
    1001,
    1e4,
    1e7,
]
LEVELS = [0.999, 0.9, 0.5, 0.3, 0.1, 0.05, 0.01, 0.05 / 64, 1e-6, 1e-12, 1e-30]


@pytest.mark.parametrize(
    ("freedom", "level", "value"),
    [
        (1, 0.05, 12.7062),
        (2, 0.05, 4.3027),
        (3, 0.05, 3.1824),
        (9, 0.05, 2.2622),
        (10, 0.05, 2.2281),
        (60, 0.05, 2.0003),
        (math.inf, 0.05, 1.96),
        (1, 0.5, 1.0),
        (5, 0.01, 4.0321),
    ],
)
def test_t_is_that_of_the_tables(freedom: float, level: float, value: float) -> None:
    assert statistics.t_quantile(freedom, level) == pytest.approx(value, rel=3e-5)
    assert statistics.t_p_value(value, freedom) == pytest.approx(level, rel=1e-3)


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_t_agrees_with_scipy(freedom: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    for level in LEVELS:
        value = float(stats.t.isf(level / 2, freedom))
        assert statistics.t_quantile(freedom, level) == pytest.approx(value, rel=1e-9)
        assert statistics.t_p_value(value, freedom) == pytest.approx(level, rel=1e-8)
        assert statistics.t_p_value(-value, freedom) == statistics.t_p_value(value, freedom)


def test_t_without_a_degree_of_freedom_or_with_endless_ones() -> None:
    assert statistics.t_quantile(0) == math.inf
    assert statistics.t_quantile(-1.0) == math.inf
    assert math.isnan(statistics.t_quantile(math.nan))
    assert statistics.t_quantile(math.inf) == pytest.approx(statistics.Z95)
    assert statistics.t_quantile(1e12) == pytest.approx(statistics.Z95)
    assert statistics.t_quantile(0.01, 1e-12) == math.inf  # it exceeds what a float holds
    assert (statistics.t_p_value(0.0, 3), statistics.t_p_value(math.inf, 3)) == (1.0, 0.0)
    assert statistics.t_p_value(5.0, 0) == 1.0
    assert math.isnan(statistics.t_p_value(math.nan, 3))
    assert statistics.t_p_value(1e200, 2) == 0.0


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 2.0, math.nan])
def test_a_level_lies_between_0_and_1(level: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        statistics.t_quantile(3, level)


@pytest.mark.parametrize("trials", [1, 2, 7, 40, 1000, 1_000_000])
@pytest.mark.parametrize("level", [0.3, 0.05, 0.001])
def test_wilson_agrees_with_scipy(trials: int, level: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    for hits in sorted({0, 1, trials // 3, trials - 1, trials}):
        interval = stats.binomtest(hits, trials).proportion_ci(1 - level, "wilson")
        expected = pytest.approx((interval.low, interval.high), abs=1e-12)
        assert statistics.wilson(hits / trials, trials, level) == expected


def test_wilson_holds_the_share_and_needs_trials() -> None:
    assert statistics.wilson(0.5, 0) == (0.0, 1.0)
    assert statistics.wilson(0.0, 10)[0] == 0.0
    assert statistics.wilson(1.0, 10)[1] == 1.0
    low, high = statistics.wilson(0.3, 4.5)  # what correlated trials amount to
    assert 0 < low < 0.3 < high < 1
