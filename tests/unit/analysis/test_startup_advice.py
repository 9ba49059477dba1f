"""What is advised where workers that are started by spawn take long to start."""

import math

import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.verdict.verdict import verdict
from tests.unit.simulated import Plan


def advice(importing: float, reading: float) -> str:
    run = Plan(epochs=4, batches=4, spawn=300).run()
    run.loaders["start_method"] = "spawn"
    run.workers["import_ns"], run.workers["unpickle_ns"] = importing, reading
    first = verdict(scopes(run)[0]).causes[0]
    assert first.kind == "start-up"
    return first.advice


@pytest.mark.parametrize(
    ("importing", "reading", "named"),
    [
        (250e6, 50e6, {"if __name__"}),
        (50e6, 250e6, {"memory maps"}),
        (math.nan, math.nan, {"if __name__", "memory maps"}),
    ],
)
def test_the_longer_part_of_a_spawned_workers_start_is_named(
    importing: float, reading: float, named: set[str]
) -> None:
    text = advice(importing, reading)
    assert {word for word in ("if __name__", "memory maps") if word in text} == named
    assert ("(250 ms)" in text) == math.isfinite(importing)
