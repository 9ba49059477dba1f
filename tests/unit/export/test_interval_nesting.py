"""Nesting intervals as viewers do, against the plainest way to do it."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lotus.export import interval_nesting
from lotus.export.interval_nesting import nest

intervals = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 20), st.integers(0, 12)), max_size=30
)


def ints(values):
    return np.array(list(values), np.int64)


def nested(rows, rank=None):
    track, start, took = (ints(column) for column in zip(*rows, strict=True)) if rows else ([],) * 3
    track, start, took = ints(track), ints(start), ints(took)
    return track, start, start + took, nest(track, start, start + took, ints(rank or track * 0))


def replayed(track, start, nesting):
    """(depth, end) of each interval as a viewer makes them of beginnings and ends in our order."""
    size = len(start)
    events = [None] * (2 * size)
    for at in range(size):
        events[2 * at - nesting.depth[at]] = ("begin", at)
        events[2 * nesting.last[at] + 1 - nesting.depth[at]] = ("end", at)
    assert None not in events  # every place is taken once
    open_, seen, now = [], {}, {}
    for what, at in events:
        own = track[nesting.order][at]
        time = start[nesting.order][at] if what == "begin" else nesting.end[at]
        assert now.get(own, 0) <= time  # the events of a track are in order
        now[own] = time
        if what == "begin":
            seen[at] = (len(open_), open_[-1] if open_ else -1)
            open_.append(at)
        else:
            assert open_.pop() == at  # an end closes what was begun last
    assert not open_
    return seen


@given(intervals)
def test_beginnings_and_ends_pair_whatever_overlaps(rows):
    track, start, end, nesting = nested(rows)
    seen = replayed(track, start, nesting)
    assert [seen[at] for at in range(len(rows))] == list(
        zip(nesting.depth.tolist(), nesting.parent.tolist(), strict=True)
    )
    wanted = end[nesting.order]
    assert (nesting.end <= wanted).all()
    assert nesting.clipped == int((nesting.end < wanted).sum())


@given(st.recursive(st.just([]), lambda inner: st.lists(inner, max_size=4), max_leaves=30))
def test_what_nests_is_left_as_it_is(tree):
    rows, depths = [], []

    def lay(node, at, depth):
        place = len(rows)
        rows.append(None)
        depths.append(depth)
        end = at + 1
        for child in node:
            end = lay(child, end, depth + 1) + 1
        rows[place] = (0, at, end - at)
        return end

    lay(tree, 0, 0)
    _, _, end, nesting = nested(rows)
    assert nesting.clipped == 0
    assert nesting.depth.tolist() == depths
    assert nesting.order.tolist() == list(range(len(rows)))
    assert nesting.end.tolist() == end.tolist()


def test_the_slow_way_and_the_quick_one_agree(monkeypatch):
    rng = np.random.default_rng(0)
    start = np.sort(rng.integers(0, 10_000, 300)) * 10
    rows = [(int(n % 3), int(at), int(took)) for n, (at, took) in enumerate(
        zip(start, rng.integers(0, 9, 300), strict=True)
    )]  # fmt: skip
    rows += [(track, 0, 200_000) for track in range(3)]
    *_, quick = nested(rows)
    monkeypatch.setattr(interval_nesting, "_LEVELS", 0)
    *_, slow = nested(rows)
    assert quick.clipped == 0
    for mine, its in zip(quick, slow, strict=True):
        assert np.array_equal(mine, its)


def test_deeper_than_levels_are_looked_for():
    rows = [(0, at, 1000 - 2 * at) for at in range(300)]
    *_, nesting = nested(rows)
    assert nesting.depth.tolist() == list(range(300))
    assert nesting.last.tolist() == [299] * 300


def test_of_equal_intervals_the_lower_rank_is_outside():
    *_, nesting = nested([(0, 5, 10), (0, 5, 10)], rank=[4, 2])
    assert nesting.order.tolist() == [1, 0]
    assert nesting.parent.tolist() == [-1, 0]


def test_times_far_apart_do_not_run_over():
    far = 1 << 61
    *_, nesting = nested([(0, 0, 10), (1, far, 10), (2, 0, far), (0, 2, 3)])
    assert nesting.clipped == 0
    assert sorted(nesting.depth.tolist()) == [0, 0, 0, 1]
