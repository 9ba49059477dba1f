"""Clocks related through events that both sides saw: right within the bound, or refused."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native_map.errors import UnusableError
from native_map.recording.clock_align import OPEN_AFTER, OPEN_BEFORE, align, events_of
from native_map.recording.perf_data import read

TRACES = Path(__file__).parents[4] / "traces" / "perf"
SECOND = 1_000_000_000


def simulated(
    seed: int, processes: int, offset: int, drift: float, late_ns: int, seconds: int = 600
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What a run knows of its workers (fork seen late, exit seen early), and what perf saw."""
    rng = np.random.default_rng(seed)
    start = rng.integers(0, seconds * SECOND // 2, processes) + 10**13
    end = start + rng.integers(SECOND, seconds * SECOND // 2, processes)
    true = np.concatenate([start, end])
    pid = np.tile(np.arange(processes) + 100, 2)
    kind = ["fork"] * processes + ["exit"] * processes
    theirs = true - offset - np.rint((true - true.min()) * drift).astype(np.int64)
    late = rng.integers(0, late_ns, 2 * processes)
    seen = np.where(np.arange(2 * processes) < processes, true + late, true - late)
    ours = pd.DataFrame({"pid": pid, "tid": pid, "kind": kind, "time_ns": seen, "true_ns": true})
    other = pd.DataFrame({"pid": pid, "tid": pid, "kind": kind, "time_ns": theirs})
    return ours, other.sample(frac=1, random_state=seed)


def errors(alignment: object, ours: pd.DataFrame, theirs: pd.DataFrame) -> np.ndarray:
    both = ours.merge(theirs, on=["pid", "tid", "kind"], suffixes=("", "_theirs"))
    return np.abs(alignment.apply(both["time_ns_theirs"].to_numpy()) - both["true_ns"].to_numpy())


@settings(deadline=None, max_examples=80)
@given(
    seed=st.integers(0, 2**32 - 1),
    processes=st.integers(2, 40),
    offset=st.integers(-(10**18), 10**13),
    drift=st.floats(-4e-4, 4e-4),
    late=st.sampled_from([1, 10_000, 3_000_000]),
)
def test_no_time_is_off_by_more_than_the_bound(
    seed: int, processes: int, offset: int, drift: float, late: int
) -> None:
    ours, theirs = simulated(seed, processes, offset, drift, late)
    alignment = align(ours, theirs, most_error_ns=SECOND)
    assert alignment.matched == 2 * processes
    assert errors(alignment, ours, theirs).max() <= alignment.error_ns


def test_many_events_give_a_sharp_answer() -> None:
    ours, theirs = simulated(1, 200, 5 * SECOND, 2e-5, 2_000_000)
    alignment = align(ours, theirs)
    assert alignment.error_ns < 200_000
    assert alignment.drift == pytest.approx(2e-5, abs=1e-6)
    assert str(alignment).startswith("clocks aligned through 400 events: ")
    assert alignment.rejected == 0
    assert "left out" not in str(alignment)


def test_a_real_recording_on_the_kernels_clock_is_aligned() -> None:
    """One run recorded on both clocks at once; what the run itself would know is made coarser."""
    truth, other = (read(TRACES / f"paired_{clock}.data") for clock in ("monotonic", "default"))
    assert (truth.clock, other.clock) == ("monotonic", "default")
    exact, theirs = events_of(truth), events_of(other)
    late = np.random.default_rng(0).integers(0, 20_000, len(exact))
    sign = np.where(exact["kind"] == "exit", -1, 1)
    ours = exact.assign(time_ns=exact["time_ns"] + sign * late)
    key = ["pid", "tid", "kind"]
    both = exact.drop_duplicates(key, keep=False).merge(
        theirs.drop_duplicates(key, keep=False), on=key, suffixes=("", "_theirs")
    )
    times = both["time_ns_theirs"].to_numpy()
    alignment = align(ours, theirs, (int(times.min()), int(times.max())))
    assert alignment.matched >= 4
    assert np.abs(alignment.apply(times) - both["time_ns"].to_numpy()).max() <= alignment.error_ns
    # The clocks do differ: without the alignment this test could not pass.
    assert np.abs(times - both["time_ns"].to_numpy()).min() > 3 * alignment.error_ns


def test_brackets_of_both_sides_are_used() -> None:
    ours, theirs = simulated(3, 5, SECOND, 0.0, 1)
    ours["earliest_ns"], ours["latest_ns"] = ours["true_ns"] - 500, ours["true_ns"] + 500
    alignment = align(ours[ours["kind"] == "fork"], theirs)  # forks alone are enough then
    assert alignment.error_ns < 2_000_000
    assert errors(alignment, ours, theirs).max() <= alignment.error_ns


def test_the_bound_grows_away_from_the_events() -> None:
    ours, theirs = simulated(4, 5, SECOND, 0.0, 100_000, seconds=10)
    near = align(ours, theirs)
    last = int(theirs["time_ns"].max())
    far = align(ours, theirs, (last - SECOND, last + 3600 * SECOND), most_error_ns=10 * SECOND)
    assert far.error_ns > 100 * near.error_ns


def test_a_number_used_again_misleads_nobody() -> None:
    ours, theirs = simulated(5, 30, SECOND, 1e-5, 50_000)
    again = theirs[theirs["pid"] == 110].assign(time_ns=lambda t: t["time_ns"] + 40 * SECOND)
    alignment = align(ours, pd.concat([theirs, again]))
    assert alignment.matched == 58
    assert errors(alignment, ours, theirs).max() <= alignment.error_ns
    wrong = theirs.copy()
    wrong.loc[wrong["pid"] == 111, "time_ns"] += 40 * SECOND
    alignment = align(ours, wrong)
    assert (alignment.matched, alignment.rejected) == (
        59,
        1,
    )  # an exit that late bounds nothing: no harm
    assert str(alignment).endswith("; left out as contradicting them: 1")
    assert errors(alignment, ours, theirs).max() <= alignment.error_ns


def test_what_cannot_be_aligned_is_refused_with_the_command() -> None:
    ours, theirs = simulated(6, 10, SECOND, 0.0, 100_000)
    cases = {
        "only 0 of its process events": (ours.assign(pid=ours["pid"] + 10**6), theirs),
        "only 2 of its process events": (ours[ours["pid"] == 100], theirs),
        "no events that bound": (ours[ours["kind"] == "fork"], theirs),
        "could only be aligned within": (
            ours.assign(
                time_ns=ours["time_ns"] + np.where(ours["kind"] == "exit", -SECOND, SECOND)
            ),
            theirs,
        ),
        "contradict": (
            ours,
            theirs.assign(time_ns=theirs["time_ns"] + (theirs["pid"] % 2) * 1000 * SECOND),
        ),
    }
    for message, (mine, other) in cases.items():
        with pytest.raises(UnusableError, match=message) as caught:
            align(mine, other)
        assert "perf record -k CLOCK_MONOTONIC" in str(caught.value)


def test_unknown_sides_of_a_bracket_do_not_overflow() -> None:
    ours, theirs = simulated(7, 4, 10**18, 0.0, 1000)
    ours["earliest_ns"] = np.where(ours["kind"] == "exit", ours["time_ns"], OPEN_BEFORE)
    ours["latest_ns"] = np.where(ours["kind"] == "exit", OPEN_AFTER, ours["time_ns"])
    given_both = align(ours, theirs)
    assert given_both == align(ours.drop(columns=["earliest_ns", "latest_ns"]), theirs)
    assert errors(given_both, ours, theirs).max() <= given_both.error_ns


def test_what_perf_made_up_at_its_start_is_no_event() -> None:
    events = events_of(read(TRACES / "two_events.data"))
    assert events["time_ns"].min() > 0
    assert set(events["kind"]) == {"fork", "exit", "comm"}
