"""How often a program is looked at."""

import os

import pytest

from lotus.attach.stacks import stack_recorder
from lotus.attach.threads import thread_readings


@pytest.mark.parametrize(
    ("processes", "rate"), [(1, 50), (8, 50), (9, 44), (20, 20), (40, 10), (1000, 10)]
)
def test_stacks_of_more_processes_are_read_less_often(processes: int, rate: int) -> None:
    assert stack_recorder.rate_of(processes) == rate


@pytest.mark.parametrize(("cost_ms", "period_s"), [(0.1, 0.02), (0.4, 0.02), (2.0, 0.1)])
def test_looks_cost_a_fiftieth_of_a_core_at_most(
    cost_ms: float, period_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter((0, round(cost_ms * 1e6)))
    monkeypatch.setattr(thread_readings.time, "thread_time_ns", lambda: next(clock))
    readings = thread_readings.ThreadReadings()
    readings.look([os.getpid()])
    assert readings.period_s == pytest.approx(period_s)
