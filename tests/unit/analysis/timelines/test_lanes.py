"""Shares of time in bins: held against counting every nanosecond."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lotus.analysis.common.run_contents import RunContents, TwoTables
from lotus.analysis.timelines.lanes import OTHER_OPERATIONS, REST, Lanes, _Filled, lanes
from native_map.estimate import interval_join

WORKERS = pd.DataFrame({"pid": [20, 21, 22], "rank": 0, "loader": 0, "worker": [0, 1, 0]})
RANKS = pd.DataFrame({"rank": [0], "pid": [10]})


def table(rows: list[tuple[int, int, int, str, str]]) -> pd.DataFrame:
    """Rows of pid, start, end, kind, operation; the thread is the process's first."""
    frame = pd.DataFrame(rows, columns=["pid", "start_ns", "end_ns", "kind", "operation"])
    frame["tid"] = frame["pid"]
    return frame.assign(
        kind=frame["kind"].astype("category"), operation=frame["operation"].astype("category")
    )


class Parts(list):
    """Operations of some rows as parts of a table."""

    def __getitem__(self, place: int) -> TwoTables:
        frame = super().__getitem__(place)
        took = frame["end_ns"] - frame["start_ns"]
        return TwoTables(pd.DataFrame(), frame.assign(loader=0, duration_ns=took))


def filled(rows: list[tuple[int, int, int, str, str]], parts: int = 1, **more: int) -> Lanes:
    """The operations of a fetch are in one part, as those of a batch are."""
    frame = table(rows)
    operation = (frame["kind"] == "operation").to_numpy()
    fetch = np.sort(frame["start_ns"][frame["kind"] == "fetch"])
    part = np.searchsorted(fetch, frame["start_ns"], side="right") % parts
    contents = RunContents(Parts(frame[operation & (part == each)] for each in range(parts)))
    return lanes(frame[~operation], contents, WORKERS, RANKS, **more)


def brute(rows: list[tuple[int, int, int, str, str]], edges: np.ndarray) -> dict[str, np.ndarray]:
    """Seconds of each kind of one process, in bins: by the innermost interval of each moment."""
    frame = table(rows)
    begin, last = int(frame["start_ns"].min()), int(frame["end_ns"].max())
    times = np.arange(begin, last)
    pid = np.full(len(times), rows[0][0], np.int64)
    samples = pd.DataFrame({"pid": pid, "tid": pid, "time_ns": times})
    row = interval_join.join(samples, frame)
    by_name: dict[str, np.ndarray] = {}
    for time, at in zip(times, row, strict=True):
        if at >= 0:
            kind, operation = rows[at][3:]
            name = operation or {"fetch": REST}.get(kind, kind)
            into = by_name.setdefault(name, np.zeros(len(edges) - 1))
            # A nanosecond may lie in two bins: shared out.
            low, high = time - begin, time - begin + 1
            into += np.clip(np.minimum(edges[1:], high) - np.maximum(edges[:-1], low), 0, None)
    return by_name


@st.composite
def nested(draw: st.DrawFn) -> list[tuple[int, int, int, str, str]]:
    """Fetches, each with operations in it, one of which may hold another; idle between."""
    rows, now = [], draw(st.integers(1, 50))
    for _ in range(draw(st.integers(1, 4))):
        rows.append((20, now, (idle := now + draw(st.integers(0, 20))), "idle", ""))
        inner = idle + draw(st.integers(0, 5))
        operations = []
        for _ in range(draw(st.integers(0, 3))):
            length = draw(st.integers(0, 20))
            operations.append((20, inner, inner + length, "operation", draw(st.sampled_from("AB"))))
            if length > 2 and draw(st.booleans()):
                operations.append((20, inner + 1, inner + length - 1, "operation", "C"))
            inner += length + draw(st.integers(0, 3))
        rows.append((20, idle, inner + 2, "fetch", ""))
        rows += operations
        now = inner + 2
    return rows


@given(nested(), st.integers(1, 40), st.integers(1, 3))
@settings(max_examples=150)
def test_a_bin_holds_the_time_of_the_innermost_interval_of_each_moment(
    rows: list[tuple[int, int, int, str, str]], bins: int, parts: int
) -> None:
    made = filled(rows, parts, bins=bins)
    assert made.lanes[["rank", "loader", "worker"]].to_numpy().tolist() == [[0, 0, 0]]
    wanted = brute(rows, made.edges_ns)
    width = np.diff(made.edges_ns)
    for place, name in enumerate(made.kinds):
        expected = wanted.get(name, np.zeros(len(width)))
        np.testing.assert_allclose(made.share[0, place] * width, expected, atol=1e-6)
    assert set(wanted) <= set(made.kinds)


def test_workers_of_one_number_share_a_lane_and_the_rest_of_the_operations_a_kind() -> None:
    operations = [(20, 10 * n, 10 * n + 9 - n, "operation", f"op{n}") for n in range(8)]
    rows = [*operations, (22, 200, 260, "operation", "op0"), (21, 0, 300, "idle", "")]
    rows += [(10, 0, 100, "wait", ""), (10, 100, 300, "step", "")]
    made = filled(rows, bins=3, most_kinds=2)
    assert made.kinds == ["op0", "op1", OTHER_OPERATIONS, "idle", "wait", "step"]
    assert made.lanes["worker"].tolist() == [-1, 0, 1]
    seconds = made.seconds().set_index("worker") * 1e9
    assert seconds.loc[0, "op0"] == 69
    assert seconds.loc[0, OTHER_OPERATIONS] == 7 + 6 + 5 + 4 + 3 + 2
    assert seconds.loc[-1, ["wait", "step"]].tolist() == [100, 200]
    assert made.share[2, made.kinds.index("idle")].tolist() == [1, 1, 1]
    assert made.share[0, made.kinds.index("wait")].tolist() == [1, 0, 0]


def test_the_idlest_lanes_are_left_out_and_counted() -> None:
    rows = [(20, 0, 10, "idle", ""), (21, 0, 90, "idle", ""), (10, 0, 100, "step", "")]
    made = filled(rows, most_lanes=2)
    assert made.lanes["worker"].tolist() == [-1, 1]
    assert made.left_out == 1


def test_a_wait_inside_an_operation_takes_its_time_from_that_alone() -> None:
    """As where the data set itself iterates a loader."""
    rows = [(20, 0, 100, "fetch", ""), (20, 10, 90, "operation", "A"), (20, 20, 60, "wait", "")]
    rows += [(20, 30, 50, "operation", "B")]
    made = filled(rows, bins=1)
    share = dict(zip(made.kinds, made.share[0, :, 0], strict=True))
    assert share == pytest.approx({"A": 0.4, "B": 0.2, REST: 0.2, "wait": 0.2})


def test_intervals_that_end_before_they_begin_take_no_time() -> None:
    rows = [(20, 50, 20, "idle", ""), (20, 0, 100, "fetch", ""), (20, 60, 80, "operation", "A")]
    made = filled(rows, bins=1)
    share = dict(zip(made.kinds, made.share[0, :, 0], strict=True))
    assert share["A"] == 0.2
    assert 0.79 <= share[REST] <= 0.8


def test_nothing_recorded_makes_no_lane() -> None:
    made = filled([(20, 0, 5, "send", "")])
    assert not len(made.lanes)
    assert made.share.size == 0


def test_of_thousands_of_threads_the_busiest_alone_are_filled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # GIVEN a thread for each wait, those at the end with the longest
    count, shown, at_once = 3000, 10, []
    begin = 1000 * np.arange(count)
    frame = table([(10, at, at + 1 + place, "wait", "") for place, at in enumerate(begin)])
    frame["tid"] = 5000 + np.arange(count)
    binned = _Filled._binned

    def counting(self, code, sign, times, many):
        at_once.append(many)
        return binned(self, code, sign, times, many)

    monkeypatch.setattr(_Filled, "_binned", counting)
    # WHEN lanes are filled, THEN bins are kept for little more than what is shown
    found = lanes(frame, RunContents(Parts([frame[:0]])), WORKERS, RANKS, most_lanes=shown)
    assert max(at_once) <= 2 * shown
    assert found.lanes["pid"].tolist() == [5000 + count - shown + place for place in range(shown)]
    assert found.left_out == count - shown
