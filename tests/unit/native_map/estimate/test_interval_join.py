"""The join against a plain loop, on proper, crossing and hostile intervals; the books balance."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from native_map.estimate import interval_join


def intervals_of(rows):
    """(pid, tid, start, end, kind, operation) tuples as a table."""
    names = ["pid", "tid", "start_ns", "end_ns", "kind", "operation"]
    table = pd.DataFrame(rows, columns=names)
    types = {"pid": np.int32, "tid": np.int32, "start_ns": np.int64, "end_ns": np.int64}
    return table.astype({**types, "kind": "category", "operation": "category"})


def samples_of(rows):
    """(pid, tid, time) tuples as a table."""
    table = pd.DataFrame(rows, columns=["pid", "tid", "time_ns"])
    return table.astype({"pid": np.int32, "tid": np.int32, "time_ns": np.int64})


def innermost(samples, intervals):
    """The definition, as a loop."""
    answer = []
    for sample in samples.itertuples():
        best = (-1, 0, 0)
        row = -1
        for at, bounds in enumerate(intervals.itertuples()):
            same = bounds.pid == sample.pid and bounds.tid == sample.tid
            if same and bounds.start_ns <= sample.time_ns < bounds.end_ns:
                rank = (bounds.start_ns, -bounds.end_ns, at)
                if row < 0 or rank > best:
                    best, row = rank, at
        answer.append(row)
    return answer


interval = st.tuples(
    st.sampled_from([1, 2]),
    st.sampled_from([1, 2]),
    st.integers(0, 30),
    st.integers(0, 30),
    st.sampled_from(["operation", "collate", "idle"]),
    st.sampled_from(["", "Loader"]),
)
sample = st.tuples(st.sampled_from([1, 2, 3]), st.sampled_from([1, 2, 3]), st.integers(-2, 32))


@settings(max_examples=200)
@given(st.lists(interval, max_size=25), st.lists(sample, max_size=25), st.integers(1, 9))
def test_any_intervals_join_as_the_definition_says(rows, times, chunk):
    # GIVEN intervals that nest, cross, touch, repeat, or end before they start
    intervals, samples = intervals_of(rows), samples_of(times)
    # WHEN samples are joined, in chunks
    joined = interval_join.join(samples, intervals, chunk=chunk)
    # THEN each gets the interval that started last of those open then
    assert joined.tolist() == innermost(samples, intervals)


def nested(rng, low, high, depth):
    """Random properly nested intervals within [low, high)."""
    made = []
    at = low
    while depth and at < high - 2:
        start = int(rng.integers(at, high))
        end = int(rng.integers(start, high)) + 1
        made.append((start, end))
        made += nested(rng, start, end, depth - 1)
        at = end
    return made


def test_deep_nesting_in_many_threads_in_any_order():
    rng = np.random.default_rng(3)
    rows = []
    for pid, tid in [(5, 5), (5, 6), (7, 7), (7, 5)]:
        spans = nested(rng, 0, 400, 4)
        rows += [(pid, tid, start, end, "operation", "") for start, end in spans]
    rng.shuffle(rows)
    intervals = intervals_of(rows)
    keys = [(pid, tid) for pid in (5, 7) for tid in (5, 6, 7)]
    samples = samples_of([(*keys[rng.integers(6)], rng.integers(-5, 405)) for _ in range(800)])
    index = interval_join.index(intervals)
    assert interval_join.join(samples, index).tolist() == innermost(samples, intervals)
    assert index.crossing == 0


def test_crossing_and_reversed_intervals_are_counted():
    index = interval_join.index(
        intervals_of(
            [
                (1, 1, 0, 10, "operation", "a"),
                (1, 1, 5, 15, "operation", "b"),
                (1, 1, 30, 20, "operation", "c"),
                (1, 1, 40, 40, "operation", "d"),
                (1, 1, 50, 60, "operation", "e"),
                (1, 1, 50, 55, "operation", "f"),
            ]
        )
    )
    assert (index.crossing, index.reversed) == (1, 1)


def test_a_tid_used_by_two_processes_is_two_threads():
    intervals = intervals_of([(1, 9, 0, 10, "operation", "a"), (2, 9, 0, 10, "operation", "b")])
    samples = samples_of([(2, 9, 5), (1, 9, 5), (3, 9, 5)])
    assert interval_join.join(samples, intervals).tolist() == [1, 0, -1]


def test_an_interval_may_have_a_kind_of_those_outside_or_none():
    intervals = intervals_of([(1, 1, 5, 9, "startup", ""), (1, 1, 9, 12, None, "")])
    attributed = interval_join.index(intervals).attribute(
        samples_of([(1, 1, 2), (1, 1, 6), (1, 1, 10)])
    )
    assert attributed["kind"].tolist() == ["startup", "startup", "other"]
    assert attributed["interval"].tolist() == [-1, 0, 1]


@pytest.mark.parametrize("rows", [[], [(1, 1, 5, 5, "operation", "a")]])
def test_nothing_to_join_to(rows):
    samples = samples_of([(1, 1, 5), (2, 2, 5)])
    assert interval_join.join(samples, intervals_of(rows)).tolist() == [-1, -1]
    assert interval_join.join(samples.iloc[:0], intervals_of(rows)).tolist() == []


def test_samples_outside_are_told_by_what_is_known():
    # GIVEN a worker 10 with its feeder thread 11, and a main process 1 that runs a step
    intervals = intervals_of(
        [
            (10, 10, 100, 200, "operation", "Loader"),
            (10, 10, 200, 210, "idle", ""),
            (10, 10, 230, 300, "operation", "Flip"),
            (10, 11, 250, 260, "send", ""),
            (1, 1, 0, 500, "step", ""),
        ]
    )
    samples = samples_of(
        [
            (10, 10, 50),  # before its first interval
            (10, 10, 220),  # between
            (10, 10, 301),  # after
            (10, 11, 255),  # the feeder at work
            (10, 12, 150),  # a pool's thread while the worker decodes
            (10, 12, 205),  # and while it idles
            (10, 12, 255),  # while it flips; its feeder sends, which pools do not help
            (1, 2, 40),  # a pool's thread of the model
            (99, 99, 40),  # somebody else
        ]
    )
    # WHEN they are attributed
    attributed = interval_join.index(intervals).attribute(samples)
    # THEN each is kept, under a name
    assert attributed["kind"].tolist() == [
        interval_join.STARTUP,
        interval_join.OTHER,
        interval_join.OTHER,
        "send",
        interval_join.HELPER,
        interval_join.HELPER,
        interval_join.HELPER,
        interval_join.HELPER,
        interval_join.ELSEWHERE,
    ]
    assert attributed["interval"].tolist() == [-1, -1, -1, 3, -1, -1, -1, -1, -1]
    assert attributed["helper_of"].tolist() == [-1, -1, -1, -1, 0, -1, 2, 4, -1]


def test_a_helper_of_two_threads_at_once_is_nobodys():
    intervals = intervals_of(
        [(1, 1, 0, 10, "operation", "a"), (1, 2, 5, 15, "operation", "b")],
    )
    attributed = interval_join.index(intervals).attribute(
        samples_of([(1, 3, 2), (1, 3, 7), (1, 3, 12)])
    )
    assert attributed["helper_of"].tolist() == [0, -1, 1]


def test_the_interpreter_and_its_collector_are_told_by_function():
    kind = pd.Categorical(
        [
            interval_join.OTHER,
            interval_join.OTHER,
            interval_join.OTHER,
            interval_join.STARTUP,
            "operation",
        ],
        categories=["operation", *interval_join.OUTSIDE],
    )
    functions = pd.DataFrame(
        {
            "library": ["libpython3.11.so.1.0", "python3.11", "libc.so.6", "python3", "python3"],
            "function": [
                "gc_collect_main",
                "_PyEval_EvalFrameDefault",
                "gc_collect_main",
                "list_append",
                "gc_collect_main",
            ],
        }
    ).astype("category")
    refined = interval_join.classify(pd.DataFrame({"kind": kind}), functions)
    assert refined.tolist() == ["gc", "interpreter", "other", "startup", "operation"]


@given(
    st.lists(interval, max_size=10),
    st.lists(st.tuples(sample, st.sampled_from(["cycles", "cpu-clock"])), max_size=40),
    st.dictionaries(st.sampled_from(["cycles", "page-faults"]), st.integers(0, 1000)),
)
def test_the_books_balance(rows, drawn, lost):
    # GIVEN samples of two events, counted as they were made
    samples = samples_of([event for event, _ in drawn])
    events = [event for _, event in drawn]
    in_file = {name: events.count(name) for name in set(events)}
    # WHEN they are attributed
    attributed = interval_join.index(intervals_of(rows)).attribute(samples)
    tally = pd.DataFrame({"event": events, "attributed": attributed["interval"] >= 0, "samples": 1})
    table = interval_join.sample_reconciliation(tally, in_file, lost)
    # THEN every sample is in one column, and none is missing
    assert (table["missing"] == 0).all()
    total = table["attributed"] + table["unattributed"] + table["lost"]
    assert total.tolist() == table["recorded"].tolist()
    assert table["recorded"].sum() == len(samples) + sum(lost.values())


def test_a_sample_that_vanished_shows_in_the_books():
    tally = pd.DataFrame({"event": ["cycles"], "attributed": [True], "samples": [9]})
    table = interval_join.sample_reconciliation(tally, {"cycles": 10}, {"cycles": 3})
    assert table.iloc[0].tolist() == ["cycles", 9, 0, 3, 13, 1]
