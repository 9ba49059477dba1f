"""tools/bench/all.py: each published figure is found where it is recorded, and can be repeated."""

import shlex
from pathlib import Path

import pytest

from tests.unit.benches import bench

everything = bench("all")
ROOT = Path(__file__).parents[4]
RECORDED = [claim for claim in everything.CLAIMS if claim.record]


@pytest.mark.parametrize("claim", RECORDED, ids=lambda claim: claim.name)
def test_the_figure_stands_in_its_record(claim) -> None:
    found, line = everything.read(claim, (ROOT / claim.record).read_text())
    assert everything.number(found.figure) is not None
    assert line > 0


def test_what_measures_a_claim_is_there() -> None:
    for claim in everything.CLAIMS:
        words = shlex.split(claim.command)
        assert not words or words[0] == "make" or (ROOT / words[0]).is_file(), claim.name
        assert all((ROOT / path).exists() for path in claim.measures.split()), claim.name


@pytest.mark.parametrize(
    ("figure", "value"),
    [("59 of 63", 59 / 63), ("15 min 56 s", 956), ("-1.2 %", -1.2), ("4,500", 4500), ("", None)],
)
def test_figures_are_compared_as_numbers(figure: str, value: float | None) -> None:
    assert everything.number(figure) == value


def test_only_a_figure_that_went_the_wrong_way_is_worse() -> None:
    less = everything.Claim("a", "less", "", "lotus")
    more = everything.Claim("b", "more", "", "lotus", more_is_better=True)
    was, now = everything.Found("5 s"), everything.Found("6 s")
    none = everything.Found()
    assert everything.is_worse(less, now, was)
    assert not everything.is_worse(less, was, now)
    assert everything.is_worse(more, was, now)
    assert not everything.is_worse(less, now, none)
