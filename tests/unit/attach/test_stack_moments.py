"""Times of stack samples: a change of one thread's stack is a sample of all the others."""

import pandas as pd

from lotus.attach.stacks.stack_moments import moments

MS = 1_000_000


def samples(*rows: tuple[int, int, bool, int, int]) -> pd.DataFrame:
    """(milliseconds, how long, whether that is exact, thread, label) of one process."""
    return pd.DataFrame(
        [(time * MS, span * MS, exact, 1, tid, label) for time, span, exact, tid, label in rows],
        columns=["time_ns", "weight_ns", "exact", "pid", "tid", "label"],
    )


def test_a_thread_that_does_not_change_is_known_where_another_does() -> None:
    table = moments(
        samples(
            (0, 20, True, 1, 5), (20, 20, False, 1, 5), (40, 20, False, 1, 5),
            (0, 33, True, 2, 6), (33, 27, True, 2, 7),
        )
    )  # fmt: skip
    of_first = table[table["tid"] == 1]
    assert of_first["time_ns"].tolist() == [0, 33 * MS]
    assert of_first["label"].tolist() == [5, 5]
    assert table.loc[table["tid"] == 2, "label"].tolist() == [6, 7]


def test_a_thread_has_its_own_time_in_a_round_and_none_before_its_start_or_after_its_end() -> None:
    table = moments(
        samples((0, 100, True, 1, 5), (30, 30, True, 2, 6), (100, 10, True, 1, 4)).assign(
            time_ns=lambda rows: rows["time_ns"] + (rows["tid"] == 2) * 1000
        )
    )
    assert table.loc[table["tid"] == 2, "time_ns"].tolist() == [30 * MS + 1000]
    assert table.loc[table["tid"] == 1, "time_ns"].tolist() == [0, 30 * MS + 1000, 100 * MS]


def test_what_could_not_be_labelled_is_no_moment() -> None:
    assert not len(moments(samples((0, 20, True, 1, -1))))
    assert not len(moments(samples()))
