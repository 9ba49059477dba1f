"""Settings compared by their stretches of training."""

from __future__ import annotations

import pytest

from lotus.inside.tune.candidates.trial_requests import TrainedBatches
from lotus.settings.space import Setting
from lotus.tune.search.check.round_timings import LEAST_BATCHES, Timings, speedup

OWN, NEW = Setting(0), Setting(2, 2, True)


def trained(batch_s: float, count: int, long_step_s: float = 0.0) -> TrainedBatches:
    """Batches that are all alike; the last one has another step if `long_step_s` is given."""
    steps = (batch_s / 2,) * count
    if long_step_s:
        steps = (*steps[:-1], long_step_s)
    waits = (batch_s / 2,) * count
    return TrainedBatches(waits, steps, (4,) * count, startup_s=None, passed=count, over=False)


def timings(*stretches: TrainedBatches) -> Timings:
    made = Timings()
    for number, stretch in enumerate(stretches):
        made.add(number, stretch)
    return made


def test_rounds_of_both_settings_are_compared() -> None:
    sides = (
        (NEW, timings(trained(0.1, 20), trained(0.1, 20))),
        (
            OWN,
            timings(trained(0.2, 20), trained(0.2, 20)),
        ),
    )
    shown = speedup(*sides, None)
    assert shown is not None
    assert shown[0].mean == pytest.approx(2.0)
    assert shown[1] == [0, 1]


def test_a_side_whose_stretches_were_all_too_short_is_not_compared() -> None:
    """Though the other side has a step that is rare and long, and would be distributed."""
    long = trained(0.1, 100, long_step_s=1.0)
    short = trained(0.1, LEAST_BATCHES - 1)
    assert speedup((NEW, timings(short)), (OWN, timings(long)), None) is None
    assert speedup((NEW, timings(long)), (OWN, timings(short)), None) is None
    assert speedup((NEW, timings()), (OWN, timings()), None) is None
