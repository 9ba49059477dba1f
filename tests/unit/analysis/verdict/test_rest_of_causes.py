"""What a list of causes leaves, of the loop and of its waits."""

import math

import pytest

from lotus.analysis.verdict.causes.memory import MEMORY
from lotus.analysis.verdict.causes.run.outside import OUTSIDE
from lotus.analysis.verdict.rest_of_causes import rest_of
from lotus.analysis.verdict.verdict import Cause


def cause(share: float, wait_share: float = math.nan, kind: str = "operation") -> Cause:
    return Cause(kind, kind, share, wait_share, share * 2e9, {}, "")


def test_it_is_what_a_list_lacks() -> None:
    rest = rest_of([cause(0.6, 0.75), cause(0.1, 0.2), cause(0.2, kind="consumer")])
    assert rest is not None
    assert (rest.share, rest.wait_share) == (pytest.approx(0.1), pytest.approx(0.05))
    assert rest.ns == pytest.approx(0.2e9)


def test_waits_that_the_list_lacks_are_said_where_they_are_little_of_the_loop() -> None:
    rest = rest_of([cause(0.966, kind="consumer"), cause(0.03, 0.88)])
    assert rest is not None
    assert rest.wait_share == pytest.approx(0.12)


def test_without_waits_it_has_none() -> None:
    rest = rest_of([cause(0.5, kind="consumer"), cause(0.1, 0.0)])
    assert rest is not None
    assert math.isnan(rest.wait_share)


def test_shares_of_another_whole_do_not_count() -> None:
    silent = cause(math.nan, math.nan, MEMORY.kind)
    rest = rest_of([cause(0.8, kind=OUTSIDE.kind), silent, cause(0.7, 0.7)])
    assert rest is not None
    assert rest.share == pytest.approx(0.3)


@pytest.mark.parametrize("shares", [[], [1.0], [0.9, 0.098], [1.2]])
def test_what_is_rounded_off_is_no_row(shares: list[float]) -> None:
    assert rest_of([cause(share, share) for share in shares]) is None
