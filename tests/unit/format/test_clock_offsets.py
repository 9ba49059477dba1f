"""Offsets between clocks, from made-up round trips of which the truth is known."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lotus.format.clock_offsets import Clock, estimate

S = 10**9


def worst(clock, truth, begin, end):
    """The largest error of the estimate over the time."""
    at = np.linspace(begin, end, 101).astype(np.int64)
    return int(np.abs(clock.shift(at) - truth(at)).max())


def measured(truth, times, there, back):
    """(times, offsets, trips) as measured, where the two ways take `there` and `back` ns."""
    measurements = []
    for start, out, home in zip(times, there, back, strict=True):
        middle = start + (out + home) // 2
        answer = start + out + int(truth(np.array([start + out]))[0])
        measurements.append((middle, answer - middle, out + home))
    return [list(column) for column in zip(*measurements, strict=True)]


@given(data=st.data())
def test_the_truth_lies_within_the_stated_bound(data):
    # GIVEN a clock that drifts, and round trips whose ways take anything, some very long
    offset = data.draw(st.integers(-(10**15), 10**15))
    drift = data.draw(st.floats(-100e-6, 100e-6))
    truth = lambda t: offset + np.rint((t - S) * drift).astype(np.int64)  # noqa: E731
    count = data.draw(st.integers(1, 12))
    delay = st.integers(5_000, 400_000) | st.integers(10**7, 10**9)
    times = sorted(data.draw(st.lists(st.integers(2 * S, 90 * S), min_size=count, max_size=count)))
    there, back = (data.draw(st.lists(delay, min_size=count, max_size=count)) for _ in range(2))
    # WHEN the offset is estimated for a time from before the first to after the last
    clock = estimate(*measured(truth, times, there, back), S, 100 * S)
    # THEN it is right at all these times, give or take its bound (and rounding)
    assert worst(clock, truth, S, 100 * S) <= clock.error_ns + 5


def test_a_short_trip_tells_more_than_long_ones():
    # GIVEN an asymmetric network, and one quick round trip at the start and at the end of an hour
    truth = lambda t: 7200 * S + np.rint(t * 20e-6).astype(np.int64)  # noqa: E731
    times = [t * S for t in (1, 2, 3, 1800, 3598, 3599)]
    there, back = [900_000, 50_000, 900_000] * 2, [20_000, 30_000, 20_000] * 2
    # WHEN it is estimated, THEN the drift is found, and the bound is about half the quick trips
    clock = estimate(*measured(truth, times, there, back), 0, 3600 * S)
    assert abs(clock.drift_ppb - 20_000) < 20
    assert clock.error_ns < 45_000
    assert worst(clock, truth, 0, 3600 * S) <= clock.error_ns


def test_one_meeting_leaves_the_drift_open():
    # GIVEN one round trip of 100 us
    clock = estimate([10 * S], [500], [100_000], 10 * S, 11 * S)
    # WHEN it is used a second later, THEN the bound grows by what clocks may drift in that time
    assert (clock.offset_ns, clock.drift_ppb) == (500, 0)
    assert clock.error_ns == pytest.approx(50_000 + 200_000, abs=30)


def test_a_drift_that_changes_widens_the_bound():
    # GIVEN a clock whose drift turned round, measured to 2 us
    times = [1 * S, 2 * S, 3 * S, 4 * S, 5 * S]
    clock = estimate(times, [0, 50_000, 100_000, 50_000, 0], [2_000] * 5, S, 5 * S)
    # WHEN it is estimated, THEN the method says so, and the bound holds all of it
    assert "widened" in clock.method
    assert worst(clock, lambda t: 50_000 - np.abs(t - 3 * S) // 20_000 + 50_000, S, 5 * S) <= (
        clock.error_ns
    )


def test_the_same_clock_needs_no_estimate():
    times = np.array([0, 10**18], np.int64)
    assert Clock().shift(times).tolist() == [0, 0]
    assert (Clock().error_ns, Clock().method) == (0, "same clock")
    with pytest.raises(ValueError, match="no measurements"):
        estimate([], [], [], 0, 1)
