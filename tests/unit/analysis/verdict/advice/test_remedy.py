"""What an advice changes, in data, beside its words."""

import pytest

from lotus.analysis.verdict.advice.remedy import (
    CODE,
    CODE_NOT_WORKERS,
    NOTHING,
    Direction,
    Part,
    Remedy,
)


@pytest.mark.parametrize(
    ("part", "mine", "theirs", "contradict"),
    [
        ("num_workers", "more", "fewer", True),
        ("num_workers", "more", "not more", True),
        ("num_workers", "fewer", "not more", False),
        ("persistent_workers", "on", "off", True),
        ("prefetch_factor", "more", "more", False),
        ("code", "other", "other", False),
    ],
)
def test_opposite_directions_contradict_each_other(
    part: Part, mine: Direction, theirs: Direction, contradict: bool
) -> None:
    one, other = (Remedy(changes={part: direction}) for direction in (mine, theirs))
    assert one.contradicts(other) == other.contradicts(one) == contradict
    elsewhere = Remedy(changes={"threads": "fewer"})
    assert not one.contradicts(elsewhere)


def test_different_values_of_a_setting_contradict_each_other() -> None:
    four, eight = (Remedy({"prefetch_factor": value}) for value in (4, 8))
    assert four.contradicts(eight)
    assert not four.contradicts(four)
    assert not four.contradicts(NOTHING)


def test_code_is_added_to_what_else_is_changed() -> None:
    more = Remedy({"num_workers": 2}, changes={"num_workers": "more"})
    either = more.or_code("read (train.py:9)")
    assert either.changes == {"num_workers": "more", "code": "other"}
    assert either.setting == more.setting
    assert either.place == "read (train.py:9)"
    assert CODE.changes == {"code": "other"}
    assert CODE_NOT_WORKERS.contradicts(more)
