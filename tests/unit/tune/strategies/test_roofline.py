"""The roofline's expectations, against a simulation of the loader."""

import math

import numpy as np
import pytest

from lotus.settings.space import Observed, Setting, Space
from lotus.tune.simulation.loader_simulation import simulate
from lotus.tune.simulation.simulation_types import Machine, Work
from lotus.tune.strategies.known_rate import KnownRate
from lotus.tune.strategies.problem import Problem
from lotus.tune.strategies.roofline import Roofline

MS = 1e6
STEP_S, PERIOD, WAIT_S = 0.010, 32, 0.3
OWN = Setting(1, 2)


def simulated(setting: Setting) -> float:
    """Batches per second where each 32nd batch waits for 0.3 s, as for a cold shard."""
    count = 40 * PERIOD
    waits = np.where(np.arange(count) % PERIOD == 0, WAIT_S * 1e9, 0.0)
    none = np.zeros(count)
    steps = np.full(count, STEP_S * 1e9)
    work = Work(np.ones(count), np.full(count, 0.1 * MS), waits, steps, none, none)
    taken = simulate(work, setting, Machine(4, 0.0), batches=count).timeline.taken_ns
    return 1e9 / float(np.diff(taken[8 * PERIOD : -8 * PERIOD]).mean())


def expected(setting: Setting, variation: float) -> float:
    mean_s = 0.0001 + WAIT_S / PERIOD
    seen = Observed(mean_s, 0.0001, 0.0, 0.0, variation, 0.01, 0.001, 0.001, 1.0)
    space = Space((1, 2, 4, 8, 16), (2, 4, 8, 16))
    problem = Problem(space, OWN, 4, samples=1.0, step_s=STEP_S, step_cores=0.0)
    roofline = Roofline(problem, [KnownRate(OWN, 1.0, 0.01, seen)])
    return math.exp(roofline.log_rate(setting))


@pytest.mark.parametrize(
    ("workers", "prefetch"), [(1, 2), (1, 16), (2, 2), (2, 8), (2, 16), (4, 4), (8, 2), (16, 2)]
)
def test_workers_and_prefetching_bridge_a_slow_batch_alike(workers: int, prefetch: int) -> None:
    setting = Setting(workers, prefetch)
    shares = np.where(np.arange(PERIOD) == 0, 0.0001 + WAIT_S, 0.0001)
    variation = float(shares.std() / shares.mean())
    assert expected(setting, variation) == pytest.approx(simulated(setting), rel=0.1)


def test_even_batches_do_not_stall_the_loop() -> None:
    few, many = (expected(Setting(2, prefetch), 0.1) for prefetch in (2, 16))
    assert few == pytest.approx(many)
    assert few == pytest.approx(1 / STEP_S, rel=0.01)
