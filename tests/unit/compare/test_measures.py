"""The measures of two sides, in the order in which they are shown."""

import math

from lotus.compare.measures import MeasureLine, by_weight
from lotus.compare.uncertainty import Difference


def line(name: str, a: float, b: float, different: bool) -> MeasureLine:
    difference = Difference(True, b / a - 1, math.nan, math.nan, math.nan)
    return MeasureLine(
        name, "operations", name, "ns", "sample", -1, a, b, difference, different=different
    )


def test_lines_that_differ_come_first_and_then_the_largest_change():
    lines = [
        line("same, large", 100, 300, different=False),
        line("differs, small", 10, 12, different=True),
        line("same, small", 10, 11, different=False),
        line("differs, large", 50, 20, different=True),
    ]
    assert [each.id for each in by_weight(lines)] == [
        "differs, large",
        "differs, small",
        "same, large",
        "same, small",
    ]
