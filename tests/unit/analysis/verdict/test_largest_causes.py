"""Which causes a short table shows."""

import math

import pytest

from lotus.analysis.verdict.verdict import Cause, Verdict


def shown(shares: list[float], most: int) -> list[int]:
    causes = [
        Cause("operation", str(place), share, 0.0, 0.0, {}, "")
        for place, share in enumerate(shares)
    ]
    judged = Verdict("input-bound", "highly", "", 0.9, 0.0, 0.1, 0.0, causes)
    return [int(cause.title) for cause in judged.largest_causes(most)]


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([0.5, 0.3, 0.1], [0, 1, 2]),
        # What other programs took stands last, and may be most of the loop.
        ([0.08, 0.02, 0.004, 0.003, 0.82, 0.07], [0, 4, 5]),
        ([0.01, 0.02, math.nan, 0.03, 0.9], [0, 2, 4]),
        ([], []),
    ],
)
def test_the_largest_are_shown_in_their_order(shares: list[float], expected: list[int]) -> None:
    assert shown(shares, 3) == expected
