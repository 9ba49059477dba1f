"""Delays of threads that are told only when they are over."""

import pandas as pd

from lotus.analysis.attached.evidence.ready_times import spread_back


def delays(*rows: tuple[int, int, int]) -> list[float]:
    """Spread delays of (pid, time on a core, delay told), each of a look of 10 ns."""
    looks = pd.DataFrame(rows, columns=["pid", "cpu_ns", "delay_ns"])
    looks = looks.assign(wall_ns=10, time_ns=range(len(rows)))
    return list(spread_back(looks)["delay_ns"])


def test_a_delay_that_is_longer_than_its_look_passed_before_it() -> None:
    assert delays((1, 4, 0), (1, 0, 0), (1, 3, 22)) == [5.0, 10.0, 7.0]
    assert delays((1, 4, 2), (1, 3, 7), (1, 10, 0)) == [2.0, 7.0, 0.0]


def test_what_passed_before_the_first_look_is_left_out() -> None:
    assert delays((1, 4, 0), (1, 3, 90)) == [6.0, 7.0]


def test_threads_have_delays_of_their_own() -> None:
    assert delays((1, 0, 0), (2, 5, 12), (1, 0, 15), (2, 0, 0)) == [5.0, 5.0, 10.0, 0.0]
    assert delays() == []
