"""The simulator of ranks: against closed forms, and against the simulator of one loader."""

import math
from typing import Any

import numpy as np
import pytest

from lotus.settings.space import Setting
from lotus.tune.simulation.job_simulation import Collective, Member, Stragglers, simulate
from lotus.tune.simulation.loader_simulation import simulate as simulate_loader
from lotus.tune.simulation.simulation_types import Machine, Work

MS = 1e6


def member(step: Any = 10 * MS, fetch: Any = 1 * MS, **fields: Any) -> Member:
    fields = {"samples": 8.0, "workers": 2, "prefetch": 2} | fields
    return Member(np.atleast_1d(step), np.atleast_1d(fetch), **fields)


def test_alike_ranks_that_never_vary_lose_nothing_but_the_collective() -> None:
    simulated = simulate([member()] * 16, steps=50, collective_ns=2 * MS)
    assert simulated.step_s == pytest.approx(12e-3)
    assert simulated.samples_per_s == pytest.approx(16 * 8 / 12e-3)
    assert simulated.efficiency == pytest.approx(10 / 12)
    assert simulated.waiting_s == 0
    assert simulated.input_s == pytest.approx(0)


def test_the_slowest_sets_the_pace() -> None:
    simulated = simulate([member(), member(), member(30 * MS), member()], steps=50)
    assert simulated.step_s == pytest.approx(30e-3)
    assert simulated.last.tolist() == [0, 0, 1, 0]
    assert simulated.straggler_share == pytest.approx(3 / 4 * 20 / 30)
    assert simulated.efficiency == pytest.approx(4 / 30 / (3 / 10 + 1 / 30))


def test_an_input_that_is_too_slow_sets_the_pace() -> None:
    # Two workers, 30 ms a batch: one every 15 ms.
    simulated = simulate([member(), member(fetch=30 * MS)], steps=60)
    assert simulated.step_s == pytest.approx(15e-3)
    # Without workers one follows the other.
    alone = simulate([member(), member(fetch=30 * MS, workers=0)], steps=60)
    assert alone.step_s == pytest.approx(40e-3)


@pytest.mark.parametrize("ranks", [4, 64])
def test_the_slowest_of_exponential_steps_takes_a_harmonic_number_of_means(ranks: int) -> None:
    drawn = np.random.default_rng(1).exponential(MS, 200_000)
    simulated = simulate([member(drawn, 0.0)] * ranks, steps=8_000, seed=2)
    expected = sum(1 / place for place in range(1, ranks + 1))
    # The maximum of n has variance sum 1/k^2 < 1.65 in units of the mean: 5 standard errors, and
    # those of the drawn values themselves.
    assert simulated.step_s * 1e3 == pytest.approx(expected, abs=5 * math.sqrt(1.65 / 8_000) + 0.02)
    assert simulated.efficiency == pytest.approx(1 / expected, rel=0.03)
    assert simulated.last.sum() == pytest.approx(1)
    assert simulated.last.max() < 3 / ranks


def test_the_input_runs_ahead_while_a_rank_waits_for_the_others() -> None:
    # Rank 0 is now and then given a batch that takes 40 ms; its queue of 8 bridges that, as it
    # waits 5 ms for rank 1 in each step. With one batch ahead it cannot.
    fetch = np.array([1.0] * 19 + [40.0]) * MS
    slow = member(15 * MS)
    ahead = simulate([member(10 * MS, fetch, workers=1, prefetch=8), slow], steps=2_000)
    bare = simulate([member(10 * MS, fetch, workers=1, prefetch=1), slow], steps=2_000)
    assert ahead.step_s == pytest.approx(15e-3, rel=0.01)
    assert bare.step_s > 15.8e-3


@pytest.mark.parametrize(
    ("workers", "prefetch", "fetch", "step"),
    [(0, 2, 6.0, 4.0), (1, 2, 6.0, 4.0), (2, 2, 9.0, 4.0), (3, 4, 6.0, 4.0), (4, 1, 20.0, 4.0)],
)
@pytest.mark.parametrize("varies", [False, True])
def test_one_rank_is_what_the_simulator_of_loaders_says(
    workers: int, prefetch: int, fetch: float, step: float, varies: bool
) -> None:
    random = np.random.default_rng(3)
    shape = random.gamma(4.0, 0.25, (2, 3_000)) if varies else np.ones((2, 3_000))
    shape /= shape.mean(axis=1, keepdims=True)
    fetches, steps = fetch * MS * shape[0], step * MS * shape[1]
    rank = Member(steps, fetches, 8.0, workers, prefetch)
    simulated = simulate([rank], steps=6_000, seed=4)
    nothing = np.zeros(3_000)
    work = Work(np.full(3_000, 8.0), fetches, nothing, steps, nothing, nothing, step_cores=0.0)
    setting = Setting(num_workers=workers, prefetch_factor=prefetch if workers else None)
    other = simulate_loader(work, setting, Machine(64.0))
    assert simulated.samples_per_s == pytest.approx(other.steady_samples_per_s, rel=0.02)


def test_stragglers() -> None:
    always = simulate([member()] * 8, steps=40, stragglers=Stragglers(ranks=1, times=3.0))
    assert always.step_s == pytest.approx(30e-3)
    assert always.last[-1] == 1
    some = simulate([member()] * 8, steps=4_000, stragglers=Stragglers(chance=0.02, times=3.0))
    hit = 1 - 0.98**8
    assert some.step_s == pytest.approx((10 + 20 * hit) * 1e-3, rel=0.03)


def test_collectives_by_their_formulae() -> None:
    ring = Collective("ring", 100e6, 10e3, 1e9)
    tree = Collective("tree", 100e6, 10e3, 1e9)
    assert ring.ns(1) == tree.ns(1) == 0
    # 2 x 7 rounds of an eighth of 100 ms; 2 x 3 rounds of all of it.
    assert ring.ns(8) == pytest.approx(14 * (10e3 + 12.5e6))
    assert tree.ns(8) == pytest.approx(6 * (10e3 + 100e6))
    # Many ranks and few bytes: latency counts, and the tree has fewer rounds.
    small = Collective("ring", 1e3, 10e3, 1e9), Collective("tree", 1e3, 10e3, 1e9)
    assert small[0].ns(1024) > 50 * small[1].ns(1024)


def test_what_cannot_be() -> None:
    wrong: list[dict[str, Any]]
    wrong = [{"step": []}, {"fetch": [-1.0]}, {"step": math.nan}, {"samples": 0.0}]
    for fields in wrong:
        with pytest.raises(ValueError, match="needs"):
            member(**fields)
    with pytest.raises(ValueError, match="not one of ring, tree"):
        Collective("star", 1, 1, 1)
    with pytest.raises(ValueError, match="chance"):
        Stragglers(chance=2)
    with pytest.raises(ValueError, match="a rank and a step"):
        simulate([])


def test_the_seed_decides() -> None:
    drawn = np.arange(1, 100) * MS
    made = [simulate([member(drawn)] * 4, steps=50, seed=seed).step_s for seed in (1, 1, 2)]
    assert made[0] == made[1] != made[2]
