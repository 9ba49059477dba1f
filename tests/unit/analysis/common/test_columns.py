"""Joins and overlaps against their plain definitions."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lotus.analysis.common.columns import (
    batch_rows,
    busy_within,
    covered,
    distribution,
    flag,
    float_column,
    int_column,
    plain_value,
    process_rows,
    rows_by,
)

keys = st.tuples(st.integers(0, 1), st.integers(-1, 2), st.integers(0, 3), st.integers(0, 9))
# As damaged logs may have them.
far = st.sampled_from((-(1 << 63), -1, 0, 1 << 40, (1 << 63) - 1))
far_keys = st.tuples(far, far, far, far)
COLUMNS = ["rank", "loader", "epoch", "batch"]


@given(
    st.lists(keys, unique=True, max_size=30) | st.lists(far_keys, unique=True, max_size=30),
    st.lists(keys | far_keys, max_size=30),
)
def test_batch_rows_is_a_left_join(batches: list[tuple[int, ...]], rows: list[tuple[int, ...]]):
    places = {key: place for place, key in enumerate(batches)}
    row_numbers = batch_rows(
        pd.DataFrame(batches, columns=COLUMNS), pd.DataFrame(rows, columns=COLUMNS)
    )
    assert row_numbers.tolist() == [places.get(key, -1) for key in rows]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_busy_within_is_the_length_of_the_overlap(
    gaps: list[tuple[int, int]], start: int, length: int
):
    starts, lengths, now = [], [], 0
    for gap, busy in gaps:
        starts.append(now + gap)
        lengths.append(busy)
        now += gap + busy
    wanted = sum(
        max(0, min(start + length, begin + busy) - max(start, begin))
        for begin, busy in zip(starts, lengths, strict=True)
    )
    # A second group must not be seen.
    busy_ns = busy_within(
        np.array([1]),
        np.array([float(start)]),
        np.array([float(start + length)]),
        np.array([1] * len(starts) + [2], np.int64),
        np.array([*starts, 0], np.float64),
        np.array([*lengths, 1000], np.float64),
    )
    assert busy_ns.tolist() == [wanted]


def test_a_reused_pid_is_the_latest_process_that_had_begun() -> None:
    workers = pd.DataFrame(
        {"rank": [0, 0, 1], "pid": [5, 5, 5], "loop_ns": [100, 900, 0], "ready_ns": [110, 910, 1]}
    )
    batches = pd.DataFrame(
        {"rank": [0, 0, 0, 0], "pid": [5, 5, 6, 5], "worker": [0, 0, 0, -1],
         "fetch_start_ns": [500, 950, 500, 500]}
    )  # fmt: skip
    assert process_rows(workers, batches).tolist() == [0, 1, -1, -1]


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30))
def test_the_chosen_rows_of_each_group(rows: list[tuple[int, bool]]):
    groups = np.array([group for group, _ in rows], np.int64)
    chosen = np.array([is_chosen for _, is_chosen in rows], np.bool_)
    wanted: dict[int, list[int]] = {}
    for row, (group, is_chosen) in enumerate(rows):
        if is_chosen:
            wanted.setdefault(group, []).append(row)
    found = {group: mine.tolist() for group, mine in rows_by(groups, chosen).items()}
    assert found == wanted


@pytest.mark.filterwarnings("error")
def test_columns_that_are_missing_or_hold_nothing() -> None:
    frame = pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [True, None]})
    assert np.isnan(float_column(frame, "a")).tolist() == [False, True]
    assert int_column(frame, "a").tolist() == [1, -1]
    assert flag(frame, "b").tolist() == [True, False]
    assert flag(frame.astype({"b": "boolean"}), "b").tolist() == [True, False]
    assert flag(frame, "a").tolist() == [True, False]
    assert np.isnan(float_column(frame, "c")).all()
    assert int_column(frame, "c").tolist() == [-1, -1]
    assert not flag(frame, "c").any()


def test_a_column_as_numbers_is_a_copy() -> None:
    frame = pd.DataFrame({"a": [1.0, np.nan], "b": [1, 2], "c": [True, False]})
    frame["d"] = pd.array([1, None], dtype="Int64")
    for name in frame.columns:
        float_column(frame, name)[0] = 9.0
    assert frame.iloc[0].tolist() == [1.0, 1, True, 1]
    assert float_column(frame, "c").tolist() == [1.0, 0.0]
    assert np.isnan([float_column(frame, "a")[1], float_column(frame, "d")[1]]).all()


def test_a_distribution_leaves_out_what_was_not_measured() -> None:
    summary = distribution(np.array([1.0, np.nan, 3.0]))
    assert summary["count"] == 2
    assert summary["mean"] == 2
    assert summary["std"] == pytest.approx(1)
    assert distribution(np.array([np.nan]))["count"] == 0


@pytest.mark.parametrize("value", [np.nan, pd.NA, pd.NaT, None, np.inf, np.float64("nan")])
def test_nothing_is_none(value: object) -> None:
    assert plain_value(value) is None


def test_numpy_scalars_become_python_values() -> None:
    assert type(plain_value(np.int64(3))) is int
    assert type(plain_value(np.bool_(True))) is bool


def test_covered_time_counts_once_where_intervals_overlap() -> None:
    start = np.array([5.0, 0.0, 1.0, np.nan, 9.0])
    end = np.array([7.0, 4.0, 2.0, 3.0, 8.0])
    assert covered(start, end) == 6.0
    assert covered(np.zeros(0), np.zeros(0)) == 0.0
