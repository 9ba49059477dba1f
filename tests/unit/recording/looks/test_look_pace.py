"""How often the launcher looks at the program."""

import pytest

from lotus.recording.looks.look_pace import LookPace

COST_NS = 1_000_000.0


def looked(pace: LookPace, seconds: float, cost_ns: float = COST_NS) -> tuple[int, float]:
    """The number of looks in this time, and their cost as a share of it."""
    looks, passed = 0, 0.0
    while passed < seconds:
        looks, passed = looks + 1, passed + pace.until_next(cost_ns, 0.02)
    return looks, looks * cost_ns / 1e9 / passed


def waited(pace: LookPace, seconds: float) -> None:
    """A program without a loop, at which looks cost next to nothing."""
    for _ in range(int(seconds / 0.1)):
        assert pace.until_next(0.0, 0.1) == 0.1


@pytest.mark.parametrize("cost_ns", [0.2e6, 1e6, 3e6, 50e6])
def test_looks_cost_a_fixed_share_of_a_core(cost_ns: float) -> None:
    pace = LookPace()
    looked(pace, 100.0, cost_ns)  # what it had at first is used up
    assert looked(pace, 1000.0, cost_ns)[1] == pytest.approx(0.007, rel=0.02)


def test_what_was_not_used_before_a_loop_is_used_at_its_begin() -> None:
    pace = LookPace()
    looked(pace, 100.0)
    usual = looked(pace, 2.0)[0]
    waited(pace, 10.0)
    assert looked(pace, 2.0)[0] > 2.5 * usual
    assert looked(pace, 2.0)[0] == pytest.approx(usual, abs=3)


def test_no_more_is_saved_than_in_some_seconds() -> None:
    short, long = LookPace(), LookPace()
    waited(short, 10.0)
    waited(long, 500.0)
    assert looked(long, 10.0) == pytest.approx(looked(short, 10.0), abs=1)


def test_a_look_that_costs_much_delays_the_next_one_only_a_little() -> None:
    pace = LookPace()
    looked(pace, 100.0)
    assert pace.until_next(8e6, 0.02) == 0.2  # not more than a second
    assert looked(pace, 20.0)[1] < 0.0075


def test_looks_that_cost_little_come_no_more_often_than_they_may() -> None:
    pace = LookPace()
    waited(pace, 5.0)
    assert pace.until_next(1000.0, 0.02) == 0.02
