"""From what steps cost to new shares: exact, bounded, and not by chance."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lotus.balance import minmax
from lotus.inside.distributed.share_solver import FEWEST, Costs, median, rebalance, split

MS = 1_000_000
Noise = Callable[[random.Random], Iterator[float]]


def measured(share: int, cost: float, error: float = 0.0, **more: float) -> dict[str, Any]:
    return {
        "share": share,
        "cost": cost,
        "error": error,
        "slope": cost / share,
        "wait": 0.0,
        **more,
    }


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 20), st.integers(1, 40)),
        min_size=1,
        max_size=6,
    ),
    st.data(),
)
def test_a_split_is_as_good_as_the_best(
    ranks: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    lines = [(float(fixed), float(slope)) for fixed, slope, _ in ranks]
    most = [cap for _, _, cap in ranks]
    whole = data.draw(st.integers(len(ranks), sum(most)))
    parts = split(lines, [1] * len(ranks), most, whole)
    best = minmax.split([[line] for line in lines], whole, most)
    assert sum(parts) == whole
    assert all(1 <= size <= cap for size, cap in zip(parts, most, strict=True))
    slowest = [
        max(fixed + slope * size for (fixed, slope), size in zip(lines, sizes, strict=True))
        for sizes in (parts, best)
    ]
    assert slowest[0] == slowest[1]


# New shares.


def test_shares_go_to_where_all_take_as_long_and_why_is_told() -> None:
    change = rebalance([measured(16, 32), measured(16, 16)], [32, 32], 1)
    assert change == (
        [11, 21],
        "a sample takes rank 0 2.0 times as long as rank 1; a step is expected to take 31 % less",
    )


@pytest.mark.parametrize(
    ("ranks", "most", "least", "sizes"),
    [
        (
            [measured(16, 160), measured(16, 16)],
            [32, 32],
            1,
            [8, 24],
        ),  # none moves by more than half
        ([measured(8, 80), measured(24, 24)], [32, 26], 1, [6, 26]),  # nor above what it may take
        ([measured(4, 80), measured(28, 28)], [32, 32], 3, [3, 29]),  # nor below what it must
        (
            [measured(1, 9), measured(1, 1), measured(1, 1)],
            [2, 2, 2],
            1,
            None,
        ),  # one is the least of all
        (
            [measured(1, 1), measured(9, 90)],
            [2, 18],
            1,
            [2, 8],
        ),  # one sample is not too many to move
        (
            [measured(40, 40), measured(8, 90)],
            [20, 20],
            1,
            None,
        ),  # more than it may have, as planned
    ],
)
def test_moves_are_bounded(
    ranks: list[dict[str, Any]], most: list[int], least: int, sizes: list[int] | None
) -> None:
    change = rebalance(ranks, most, least)
    assert (None if change is None else change[0]) == sizes


def test_a_small_gain_or_one_that_may_be_chance_changes_nothing() -> None:
    most = [200, 200]
    assert rebalance([measured(100, 109), measured(100, 100)], most, 1) is None  # 4 % less
    assert rebalance([measured(100, 115), measured(100, 100)], most, 1) is not None
    # WHEN averaging takes as long as the rest, THEN it is half of that
    assert (
        rebalance([measured(100, 115, wait=100.0), measured(100, 100, wait=115.0)], most, 1) is None
    )
    # AND what is not sure enough is left too, the more so among many
    assert rebalance([measured(100, 140, 9), measured(100, 100, 4)], most, 1) is None
    assert rebalance([measured(100, 140, 3), measured(100, 100, 3)], most, 1) is not None
    many = [measured(100, 100, 4)] * 63
    assert rebalance([measured(100, 115, 4), *many], [200] * 64, 1) is None
    assert rebalance([measured(100, 125, 4), *many], [200] * 64, 1) is not None


# What a step costs.


def fill(costs: Costs, share: int, each: float, steps: int = 20, iteration: int = 0) -> None:
    rng = random.Random(share)
    for step in range(steps):
        own = int(each * MS * rng.gauss(1, 0.01))
        costs.add((iteration, step), share, own, 2 * MS)


def test_costs_are_of_whole_steps_within_an_iteration() -> None:
    costs = Costs(10)
    costs.add((0, 0), 8, None, 0)
    assert costs.summary() is None
    for iteration in range(3):
        costs.add((iteration, 0), 8, 900 * MS, 0)  # after a validation
        for step in range(1, 5):
            costs.add((iteration, step), 8, 10 * MS, 1 * MS)
            costs.add((iteration, step), 8, 6 * MS, 1 * MS)  # a second pass of it
    costs.add((2, 5), 0, 3 * MS, 0)  # what is left at the end
    costs.add(None, 0, None, 0)
    assert list(costs.own) == [16 * MS] * 12
    assert costs.summary() == {
        "share": 8,
        "cost": 16 * MS,
        "error": 0,
        "slope": 2 * MS,
        "wait": 2 * MS,
    }


def test_the_step_in_which_a_share_changes_is_left_out() -> None:
    costs = Costs(10)
    for step in range(30):
        costs.add((0, step), 8 if step < 15 else 12, (step + 1) * MS, 0)
    assert list(costs.own) == [(step + 1) * MS for step in range(16, 29)]


def test_what_was_not_timed_is_left_out() -> None:
    costs = Costs(10)
    for step in range(FEWEST + 2):
        costs.add((0, step), 8, None, 0)
    assert costs.summary() is None


@pytest.mark.parametrize(
    ("costs_of", "slope"),
    [
        (lambda share: 2.0 * share, 2.0),
        (lambda share: 8.0 + share, 1.0),
        (lambda share: 40.0, 0.25 * 40 / 24),  # not less: a move is a step, not a leap
        (lambda share: 0.1 * share**2, 2.4),  # not more: no part is less than nothing
    ],
)
def test_two_shares_make_a_line_through_what_it_costs_now(
    costs_of: Callable[[int], float], slope: float
) -> None:
    costs = Costs(20)
    fill(costs, 16, costs_of(16))
    fill(costs, 24, costs_of(24), iteration=1)
    summary = costs.summary()
    assert summary is not None
    assert summary["share"] == 24
    assert summary["cost"] / MS == pytest.approx(costs_of(24), rel=0.01)
    assert summary["slope"] / MS == pytest.approx(slope, rel=0.1)


def test_a_rank_that_becomes_slow_is_not_taken_for_what_it_was() -> None:
    costs = Costs(10)
    fill(costs, 16, 10, 200)
    fill(costs, 16, 20, 20, iteration=1)
    summary = costs.summary()
    assert summary is not None
    assert summary["cost"] / MS == pytest.approx(20, rel=0.02)


def test_the_error_of_a_median_grows_where_neighbours_are_alike() -> None:
    rng = random.Random(1)
    alone = [rng.gauss(10, 1) for _ in range(200)]
    middle, error = median(alone)
    assert abs(middle - 10) < 0.3
    assert 1.25 / 200**0.5 < error < 1.5 * 1.25 / 200**0.5
    assert median(sorted(alone))[1] > 5 * error


# Whole jobs.


def steady(spread: float) -> Noise:
    def noise(rng: random.Random) -> Iterator[float]:
        while True:
            yield max(rng.gauss(1, spread), 0.1)

    return noise


def drifting(spread: float, alike: float) -> Noise:
    def noise(rng: random.Random) -> Iterator[float]:
        now = rng.gauss(0, spread)
        while True:
            yield max(1 + now, 0.1)
            now = alike * now + rng.gauss(0, spread * (1 - alike**2) ** 0.5)

    return noise


def spiking(rng: random.Random) -> Iterator[float]:
    while True:
        yield rng.lognormvariate(0, 0.1) + (rng.expovariate(0.5) if rng.random() < 0.1 else 0)


def job(slow: list[float], every: int, steps: int, noise: Noise, seed: int) -> list[list[int]]:
    """The shares of each change in a job of that many steps, from 16 each."""
    rng = random.Random(seed)
    sizes, changes, ranks = [16] * len(slow), [], range(len(slow))
    noises = [noise(rng) for _ in slow]
    costs = [Costs(every) for _ in slow]
    for step in range(1, steps + 1):
        own = [slow[rank] * sizes[rank] * next(noises[rank]) * MS for rank in ranks]
        for rank in ranks:
            wait = max(own) - own[rank] + MS / 20
            costs[rank].add(divmod(step, 500), sizes[rank], int(own[rank]), int(wait))
        if step % every == 0:
            summaries = [
                summary for summary in (each.summary() for each in costs) if summary is not None
            ]
            if len(summaries) == len(slow) and [summary["share"] for summary in summaries] == sizes:
                changed = rebalance(summaries, [32] * len(slow), 1)
                if changed is not None:
                    sizes = changed[0]
                    changes.append(sizes)
    return changes


@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize(
    ("noise", "every"),
    [(steady(0.05), 10), (steady(0.2), 20), (spiking, 20), (drifting(0.1, 0.8), 50)],
    ids=["steady", "varying", "spiking", "drifting"],
)
def test_ranks_that_are_alike_keep_their_shares(noise: Noise, every: int, ranks: int) -> None:
    jobs = [job([1.0] * ranks, every, 400, noise, seed) for seed in range(10)]
    changed = sum(bool(job) for job in jobs)
    print(f"{changed} of {len(jobs)} jobs changed shares")
    assert changed == 0


@pytest.mark.parametrize(
    ("slow", "best"), [([1.0, 2.0], 22.0), ([1.0, 4.0], 26.0)], ids=["2:1", "4:1"]
)
@pytest.mark.parametrize("noise", [steady(0.05), steady(0.2)], ids=["steady", "varying"])
def test_a_slow_rank_gets_its_best_share_soon_and_keeps_it(
    slow: list[float], best: float, noise: Noise
) -> None:
    for seed in range(10):
        changes = job(slow, 50, 500, noise, seed)
        assert 1 <= len(changes) <= 3
        assert max(each * size for each, size in zip(slow, changes[-1], strict=True)) == best
