"""Samples that take the time of a delayed acknowledgement, and what is then advised."""

import math

import numpy as np
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.samples.delayed_acks import delayed_share
from tests.unit.analysis.observations.test_looks import judged, with_looks
from tests.unit.simulated import Plan


@pytest.mark.parametrize(("low", "high", "share"), [(41, 49, 1.0), (25, 35, 0.0), (55, 90, 0.0)])
def test_samples_of_forty_milliseconds_are_counted(low: float, high: float, share: float) -> None:
    random = np.random.default_rng(1)
    run = Plan(operations={"Get": lambda *_: random.uniform(low, high)}, cpu=0.05).run()
    assert delayed_share(scopes(run)[0]) == share


def test_few_samples_do_not_tell() -> None:
    run = Plan(operations={"Get": 44.0}, batches=5).run()
    assert math.isnan(delayed_share(scopes(run)[0]))


@pytest.mark.parametrize(
    ("took", "reason", "told"),
    [
        (44.0, "socket", True),
        (44.0, "events", True),
        (44.0, "sleep", False),
        (70.0, "socket", False),
    ],
)
def test_no_delay_is_advised_where_samples_wait_for_the_network_so_long(
    took: float, reason: str, told: bool
) -> None:
    run = Plan(operations={"Slow": took}, cpu=0.05, cores=8).run()
    first = judged(with_looks(run, **{reason: 95, "computing": 5})).causes[0]
    assert first.title.startswith("Slow")
    assert ("set TCP_NODELAY there" in first.advice) == told
    assert "more workers overlap these waits" in first.advice
