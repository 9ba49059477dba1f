"""What is lost by taking batches in turn."""

import itertools

import numpy as np
import pytest

from lotus.settings.space import Setting
from lotus.tune.simulation.loader_simulation import simulate
from lotus.tune.simulation.simulation_types import Machine, Work
from lotus.tune.simulation.turn_taking import kept


def test_nothing_is_lost_where_all_batches_take_as_long() -> None:
    assert kept(8, 2, 0.0, 0.5) == 1.0
    assert kept(0, 1, 1.0, 0.5) == 1.0


def test_more_is_lost_the_more_they_differ_and_less_the_more_lie_ready() -> None:
    lost = [kept(8, 2, variation, 0.5) for variation in (0.1, 0.3, 0.7, 1.5, 3.0)]
    assert lost == sorted(lost, reverse=True)
    deep = [kept(8, prefetch, 0.7, 0.5) for prefetch in (1, 2, 3, 4, 8, 16)]
    assert deep == sorted(deep)
    rates = [count * kept(count, 2, 0.7, 0.0) for count in (1, 2, 3, 4, 6, 8, 16, 64)]
    assert rates == sorted(rates)  # another worker never makes it slower
    assert kept(8, 2, 0.7, 8.0) > 0.99  # the consumer has time enough


@pytest.mark.parametrize(
    ("workers", "prefetch", "variation"), [(4, 2, 0.3), (6, 1, 0.3), (16, 4, 1.0), (3, 3, 0.6)]
)
def test_it_is_what_the_simulator_loses(workers: int, prefetch: int, variation: float) -> None:
    chance, count = np.random.default_rng(2), 2000
    sigma = np.sqrt(np.log1p(variation**2))
    times = chance.lognormal(0.0, sigma, count)
    times *= 1e8 / times.mean()
    none = np.zeros(count)
    for ratio in (0.0, 1.1):
        steps = np.full(1, ratio * 1e8 / workers)
        work = Work(np.ones(count), times, none, steps, none, none, step_cores=0.0)
        out = simulate(work, Setting(workers, prefetch), Machine(1000), batches=count)
        taken = out.timeline.taken_ns
        each = (taken[-1] - taken[workers * prefetch]) / (count - 1 - workers * prefetch)
        true = max(1e8 / workers, steps[0]) / each
        assert kept(workers, prefetch, variation, ratio) == pytest.approx(true, rel=0.12)


def test_between_points_of_the_grid_it_is_between_them() -> None:
    for workers, prefetch in itertools.product((5, 24), (3, 6)):
        between = kept(workers, prefetch, 0.6, 0.9)
        assert kept(64, 1, 1.2, 0.9) < between < kept(1, 16, 0.3, 0.9)
