"""The split of a global batch is the best one there is."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from lotus.balance.minmax import split
from lotus.balance.plain_splits import at_random, equal

times = some.integers(0, 400).map(lambda eighths: eighths / 8)  # sums of which are exact
lines = some.lists(some.tuples(times, times), min_size=1, max_size=2)
ranks = some.tuples(lines, some.one_of(some.none(), some.integers(1, 9)))


def _slowest(curves: list[list[tuple[float, float]]], sizes: tuple[int, ...]) -> float:
    return max(
        max(fixed + slope * size for fixed, slope in lines)
        for lines, size in zip(curves, sizes, strict=True)
    )


def _all(total: int, count: int) -> list[tuple[int, ...]]:
    cuts = combinations(range(1, total), count - 1)
    return [tuple(b - a for a, b in pairwise((0, *cut, total))) for cut in cuts]


@settings(deadline=None, max_examples=150)
@given(made=some.lists(ranks, min_size=2, max_size=4), total=some.integers(2, 12))
def test_no_split_is_better(
    made: list[tuple[list[tuple[float, float]], int | None]], total: int
) -> None:
    curves, caps = [lines for lines, _ in made], [cap for _, cap in made]
    possible = [
        sizes
        for sizes in (_all(total, len(made)) if total >= len(made) else [])
        if all(cap is None or size <= cap for size, cap in zip(sizes, caps, strict=True))
    ]
    if not possible:
        with pytest.raises(ValueError, match="do not fit"):
            split(curves, total, caps)
        return
    shares = tuple(split(curves, total, caps))
    assert shares in possible
    assert _slowest(curves, shares) == min(_slowest(curves, sizes) for sizes in possible)


def test_a_thousand_ranks_of_two_kinds() -> None:
    curves = [[(0.0, 1.0)], [(0.0, 3.0)]] * 512
    sizes = split(curves, 4 * 512 * 1000, [None] * 1024)
    assert sizes == [3000, 1000] * 512


def test_a_rank_that_is_full_leaves_the_rest_to_the_others() -> None:
    assert split([[(0.0, 1.0)], [(0.0, 1.0)]], 20, [3, None]) == [3, 17]


def test_equal_gives_what_is_left_over_to_the_first() -> None:
    assert equal(14, 4) == [4, 4, 3, 3]


def test_random_keeps_the_batch_and_the_seed() -> None:
    drawn = [at_random(10, 4, seed) for seed in range(200)]
    assert all(sum(sizes) == 10 and min(sizes) >= 1 for sizes in drawn)
    assert at_random(10, 4, 7) == drawn[7]
    assert len({tuple(sizes) for sizes in drawn}) > 40  # of the 84 that there are
