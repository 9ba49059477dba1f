"""Estimates against simulated threads whose counts are known: errors, coverage, calibration."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from native_map.estimate import count_estimates, interval_join, validation
from tests.perf_simulation import EVENT, simulate


def estimated(made, use_counts=True, calibrate=True, samples=None, systematic=0.0):
    """The tables of one simulated run: joined and its validation."""
    index = interval_join.index(made.intervals)
    drawn = made.samples if samples is None else samples
    counted = count_estimates.counted_rows(made.intervals, made.exact, (0, 1 << 62), [EVENT])
    tally = count_estimates.Tally(index, made.intervals, [EVENT], counted)
    for low in range(0, len(drawn), 5_000):
        part = drawn.iloc[low : low + 5_000]
        tally.add(part, index.attribute(part))
    table = tally.table()
    own = {EVENT: count_estimates.own_counts(index, made.exact, EVENT, len(made.intervals))}
    groups = count_estimates.Groups.of(index, made.intervals)
    scans = {EVENT: count_estimates.scan(index, groups, table, own[EVENT] if use_counts else None)}
    factors = count_estimates.calibration(table, index, own, counted, scans) if calibrate else None
    joined = count_estimates.operations(table, scans, factors, systematic)
    truth = validation.exact_totals(index, made.intervals, own, counted)
    return table, joined, validation.validate(truth, joined), factors


def coverage(tables):
    """How often the intervals held the exact count, per way of counting, over several runs."""
    judged = pd.concat([table[table["judged"]] for table in tables], ignore_index=True)
    calibrated = judged[judged["joined_calibrated"].notna() & ~judged["fitted"]]
    ways = {
        "joined": (judged["within_ci"], judged["width"]),
        "calibrated": (calibrated["calibrated_within_ci"], calibrated["width_calibrated"]),
    }
    return pd.DataFrame(
        {
            way: {
                "judged": len(held),
                "share": held.mean(),
                "wide": (width > validation.WIDE).sum(),
            }
            for way, (held, width) in ways.items()
        }
    ).T


@pytest.mark.parametrize(
    ("use_counts", "jitter"), [(True, 0.05), (False, 0.05), (False, 0.0), (True, 0.3)]
)
def test_intervals_hold_the_exact_count_as_often_as_they_say(use_counts, jitter):
    # GIVEN forty runs of operations from a hundredth of a period to several
    runs = [
        estimated(simulate(seed, cycles=250, jitter=jitter), use_counts)[2] for seed in range(40)
    ]
    # WHEN those with enough samples are counted
    table = coverage(runs)
    # THEN the intervals are neither too narrow nor so wide that they say nothing
    assert (table["judged"] >= 40).all()
    assert table["share"].between(0.90, 0.995).all(), table
    assert (table["wide"] == 0).all()
    # AND that holds for rare operations too, which are not judged
    every = pd.concat(runs)
    assert every[every["operation"] == "Flip"]["within_ci"].mean() > 0.85


def test_a_poisson_interval_would_be_far_too_wide_for_long_operations():
    _, joined, table, _ = estimated(simulate(1))
    loader = table.set_index("operation").loc["Loader"]
    poisson = 1.96 / np.sqrt(loader["samples"])
    assert loader["width"] < 0.6 * poisson
    assert joined["samples"].sum() > 3000


def test_faults_that_no_spread_shows_widen_the_intervals_of_many_samples():
    # GIVEN so many samples that their spread is below a percent
    made = simulate(1, cycles=2000)
    narrow = estimated(made)[2].set_index("operation").loc["Loader", "width"]
    wide = estimated(made, systematic=0.005)[2].set_index("operation").loc["Loader", "width"]
    assert narrow < 0.004
    assert wide == pytest.approx(np.hypot(narrow, 1.96 * 0.005), rel=0.01)


def test_calibration_gives_back_what_throttling_took():
    # GIVEN runs of which the kernel dropped one sample in seven
    runs = [estimated(simulate(seed, cycles=800, throttled=0.14)) for seed in range(5)]
    table = pd.concat(run[2] for run in runs).query("judged")
    # THEN the samples alone are as far off, and calibrated they are not
    assert table["err_joined"].median() == pytest.approx(-0.14, abs=0.03)
    assert table["err_calibrated"].abs().max() < 0.05
    factors = pd.concat(run[3] for run in runs)
    assert factors["factor"].mean() == pytest.approx(1 / 0.86, rel=0.03)
    assert len(factors) == 10  # a thread each


def test_calibration_knows_nothing_of_the_operations_own_count():
    # GIVEN one operation whose samples were lost, as only calibration per operation could mend
    made = simulate(2, cycles=300)
    rows = interval_join.join(made.samples, made.intervals)
    loader = np.where(rows >= 0, made.intervals["operation"].cat.codes.to_numpy()[rows], -1) == 0
    rng = np.random.default_rng(0)
    damaged = made.samples[~loader | (rng.random(len(rows)) < 0.5)]
    # THEN its error is still to be seen
    table = estimated(made, samples=damaged)[2].set_index("operation")
    assert table.loc["Loader", "err_joined"] == pytest.approx(-0.5, abs=0.05)
    assert table.loc["Loader", "err_calibrated"] < -0.1


def test_throttled_time_is_told_per_thread():
    # GIVEN a thread throttled twice, the second time for ever, and one that was told only the end
    rows = [
        (100, 1, 1, 0, True),
        (150, 1, 1, 0, False),
        (120, 2, 2, 0, False),
        (900, 1, 1, 0, True),
        (130, 1, 1, 1, True),
        (140, 1, 1, 1, True),
        (160, 1, 1, 1, False),
    ]
    names = ["time_ns", "pid", "tid", "event", "throttle"]
    throttles = pd.DataFrame(rows, columns=names)
    table = count_estimates.throttled_times(throttles, [EVENT, "other"], 1000)
    assert table["throttled_ns"].tolist() == [150, 30, 0]
    assert table["event"].tolist() == [EVENT, "other", EVENT]
    assert len(count_estimates.throttled_times(throttles.iloc[:0], [EVENT], 1000)) == 0


def test_a_thread_without_exact_counts_takes_the_factor_of_the_others():
    made = simulate(3, cycles=300, throttled=0.14)
    made.exact = made.exact[made.intervals["tid"].to_numpy() == 100]
    table, joined, _, factors = estimated(made)
    assert factors["tid"].tolist() == [100]
    whole = table[table["attributed"]]["count"].sum() * factors["factor"][0]
    assert joined[joined["kind"] == "operation"]["calibrated"].sum() == pytest.approx(whole)


def test_what_ran_before_and_after_the_sampling_is_not_compared():
    made = simulate(4, cycles=20)
    made.exact.loc[0, EVENT] = np.nan
    begins = int(made.intervals["start_ns"].iloc[10])
    counted = count_estimates.counted_rows(made.intervals, made.exact, (0, begins), [EVENT])
    tid = made.intervals["tid"].to_numpy()
    assert not counted[0]
    assert counted[1:10].all()
    assert not counted[10 : int((tid == 100).sum())].any()


def test_own_counts_leave_out_what_lies_within():
    intervals = pd.DataFrame(
        {
            "pid": 1,
            "tid": 1,
            "start_ns": [0, 10, 20, 60, 100, 110],
            "end_ns": [90, 50, 30, 80, 200, 120],
            "kind": ["fetch", "operation", "operation", "collate", "fetch", "span"],
            "operation": ["", "a", "b", "", "", ""],
        }
    )
    exact = pd.DataFrame({"row": [0, 1, 2, 3, 4], "cycles": [1000.0, 500.0, 100.0, 300.0, 50.0]})
    own = count_estimates.own_counts(interval_join.index(intervals), exact, "cycles", 6)
    assert own[:4].tolist() == [200, 400, 100, 300]
    assert np.isnan(own[4:]).all()  # one holds a span whose count nobody knows


def test_no_sample_and_no_interval_give_empty_tables():
    made = simulate(5, cycles=1)
    table, joined, checked, _ = estimated(made, samples=made.samples.iloc[:0])
    assert len(table) == 0
    assert len(joined) == 0
    assert (checked["samples"] == 0).all()
    assert checked["err_joined"].isna().all()
    assert not checked["good"].any()
    made = simulate(5, cycles=1)
    made.intervals, made.exact = made.intervals.iloc[:0], made.exact.iloc[:0]
    table, joined, checked, _ = estimated(made)
    assert table["samples"].sum() == len(made.samples)
    assert joined["kind"].tolist() == [interval_join.ELSEWHERE]
    assert len(checked) == 0


def test_functions_share_out_their_operation_and_keep_every_sample():
    # GIVEN samples of two functions in each operation, and some outside
    made = simulate(6, cycles=200)
    index = interval_join.index(made.intervals)
    names = np.where(np.arange(len(made.samples)) % 4 == 0, "rare", "often")
    functions = pd.DataFrame({"library": "libx.so", "function": names}).astype("category")
    tally = count_estimates.Tally(index, made.intervals, [EVENT])
    for low in range(0, len(names), 700):
        part = made.samples.iloc[low : low + 700]
        tally.add(part, index.attribute(part), functions.iloc[low : low + 700])
    table = tally.table()
    scans = {
        EVENT: count_estimates.scan(index, count_estimates.Groups.of(index, made.intervals), table)
    }
    totals = count_estimates.operations(table, scans)
    # WHEN they are shared out
    shared = count_estimates.functions(table, totals)
    # THEN no sample is lost, shares add up, and the interval holds the count
    assert shared["samples"].sum() == len(made.samples)
    keys = ["kind", "operation", "helper_of", "event"]
    assert shared.groupby(keys)["share"].sum().to_numpy() == pytest.approx(1)
    assert shared["count"].sum() == pytest.approx(made.samples["period"].sum())
    assert (shared["low"] < shared["count"]).all()
    assert (shared["high"] > shared["count"]).all()
    loader = shared[(shared["operation"] == "Loader") & (shared["function"] == "rare")].iloc[0]
    assert loader["share"] == pytest.approx(0.25, abs=0.05)
    # AND where the operation's count is known exactly, that is what is shared out
    exact = pd.DataFrame(
        {"kind": ["operation"], "operation": ["Loader"], "event": [EVENT], "exact": [1e9]}
    )
    known = count_estimates.functions(table, totals, exact)
    assert known[known["operation"] == "Loader"]["count"].sum() == pytest.approx(1e9)


def test_helpers_are_counted_by_the_operation_they_helped():
    made = simulate(7, cycles=50)
    index = interval_join.index(made.intervals)
    middle = (made.intervals["start_ns"] + made.intervals["end_ns"]).to_numpy() // 2
    pool = pd.DataFrame({"pid": 100, "tid": 555, "time_ns": middle[:100], "event": 0, "period": 7})
    tally = count_estimates.Tally(index, made.intervals, [EVENT])
    tally.add(pool, index.attribute(pool))
    table = tally.table().set_index("helper_of")
    assert set(table["kind"]) == {interval_join.HELPER}
    assert set(table["operation"]) == {""}
    expected = made.intervals["operation"].iloc[:100].value_counts()
    assert table["samples"].to_dict() == expected.to_dict()
    assert table["count"].sum() == 700


@given(st.integers(0, 10**7), st.floats(0, 2))
def test_score_intervals_hold_what_was_seen(samples, phi):
    low, high = count_estimates.score_interval(np.array([float(samples)]), np.array([phi]))
    assert 0 <= low[0] <= samples + 1e-6
    assert high[0] >= samples - 1e-6


@example(0, 203)
@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_shares_stay_between_nothing_and_all(hits, others):
    low, high = count_estimates.wilson(np.array([float(hits)]), np.array([float(hits + others)]))
    assert 0 <= low[0] <= hits / (hits + others) <= high[0] <= 1


def test_wilson_and_poisson_as_in_the_books():
    # Wilson 1927: 10 of 100 is 5.52 % to 17.44 %; the score interval of 10 events is 5.43 to 18.40.
    low, high = count_estimates.wilson(np.array([10.0]), np.array([100.0]))
    assert (low[0], high[0]) == pytest.approx((0.0552, 0.1744), abs=1e-4)
    low, high = count_estimates.score_interval(np.array([10.0]), np.array([1.0]))
    assert (low[0], high[0]) == pytest.approx((5.43, 18.41), abs=0.02)
