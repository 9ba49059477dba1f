"""Every strategy ends, stays in its space, measures nothing twice and knows the best told."""

import math

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from lotus.settings.space import LOADER_PARAMETERS, Measurement, Setting, Space
from lotus.tune.strategies import MAKERS, Strategy, make
from lotus.tune.strategies.adapt import Adapt
from tests.unit.benches import bench


def measured(setting: Setting, rate: float) -> Measurement:
    return Measurement(setting, rate, rate, rate, 1.0)


def some(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(values, min_size=1, max_size=4, unique=True).map(tuple)


spaces = st.builds(
    Space,
    num_workers=st.lists(st.integers(0, 20), min_size=1, max_size=9, unique=True).map(tuple),
    prefetch_factor=some(st.none() | st.integers(1, 64)),
    pin_memory=st.sampled_from([(False,), (False, True), (True, False)]),
    persistent_workers=st.sampled_from([(False,), (True, False)]),
    start_method=st.sampled_from([(None,), ("spawn", "fork"), ("fork", None)]),
    in_order=st.sampled_from([(None,), (True, False)]),
    threads=st.sampled_from([(None,), (None, 2, 1)]),
)
# None: the trial fails.
rates = st.none() | st.floats(0.001, 1e6)


@pytest.mark.parametrize("name", sorted(MAKERS))
@hypothesis_settings(max_examples=60, deadline=None)
@given(space=spaces, data=st.data())
def test_a_search_ends_within_its_space_and_gives_the_best(
    name: str, space: Space, data: st.DataObject
) -> None:
    strategy = make(name, space, seed=data.draw(st.integers(0, 3)))
    pattern = data.draw(st.lists(rates, min_size=1, max_size=20))
    listed = set(space.settings())
    measurements: list[Measurement] = []
    assert strategy.best() is None
    while (setting := strategy.ask()) is not None:
        assert setting == strategy.ask()  # as often as one likes
        assert setting in listed
        assert setting not in {each.setting for each in measurements}
        assert strategy.reason()
        rate = pattern[len(measurements) % len(pattern)]
        failed = Measurement.failure(setting, "killed", 1.0)
        measurements.append(failed if rate is None else measured(setting, rate))
        strategy.tell(measurements[-1])
        best = max((m.samples_per_s for m in measurements), default=0.0)
        winner = strategy.best()
        assert (winner.samples_per_s if winner else 0.0) == best
        assert winner is None or not winner.failed
    assert strategy.ask() is None
    assert strategy.reason()
    assert measurements
    if name != "adapt":
        assert {each.setting for each in measurements} == listed


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_the_cheapest_of_equally_fast_settings_is_best(name: str) -> None:
    strategy = make(name, Space((3, 1, 2), (4, 2), (True, False)))
    while (setting := strategy.ask()) is not None:
        strategy.tell(measured(setting, 10.0 if setting.num_workers > 1 else 1.0))
    assert strategy.best() == measured(Setting(2, 2), 10.0)


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_what_was_told_unasked_is_not_asked_for_and_counts(name: str) -> None:
    strategy = make(name, Space((1, 2, 3)))
    strategy.tell(measured(Setting(2), 50.0))
    strategy.tell(measured(Setting(9), 70.0))  # the user's own, outside the space
    counts = []
    while (setting := strategy.ask()) is not None:
        counts.append(setting.num_workers)
        strategy.tell(measured(setting, 60.0))
    assert sorted(counts) == [1, 3]
    assert strategy.best() == measured(Setting(9), 70.0)


def test_a_setting_told_again_counts_as_told_last() -> None:
    strategy = make("grid", Space((1, 2)))
    strategy.tell(measured(Setting(1), 90.0))
    strategy.tell(measured(Setting(2), 80.0))
    strategy.tell(measured(Setting(1), 70.0))
    assert strategy.best() == measured(Setting(2), 80.0)


def test_random_goes_by_its_seed() -> None:
    def order(seed: int) -> list[Setting]:
        return asked_settings(make("random", Space(tuple(range(20))), seed=seed))

    assert order(1) == order(1) != order(2)


def test_an_unknown_name_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="adapt, grid, lotus, random"):
        make("optuna", Space((1,)))


def asked_settings(strategy: Strategy, rate: object = None) -> list[Setting]:
    """All it asks for; by default all are equally fast."""
    settings = []
    while (setting := strategy.ask()) is not None:
        settings.append(setting)
        value = rate(setting) if callable(rate) else 1.0
        strategy.tell(measured(setting, value) if value else Measurement.failure(setting, "no"))
    return settings


def workers(settings: list[Setting]) -> list[int]:
    return [setting.num_workers for setting in settings]


def test_adapt_stops_where_the_parent_is_best() -> None:
    assert workers(asked_settings(Adapt(Space(range(1, 8))))) == [4, 2, 6]


def test_adapt_descends_to_the_faster_child_until_nothing_is_below() -> None:
    strategy = Adapt(Space(range(1, 8)))
    assert workers(asked_settings(strategy, lambda s: 10.0 - abs(s.num_workers - 7))) == [
        4,
        2,
        6,
        5,
        7,
    ]
    best = strategy.best()
    assert best is not None
    assert best.setting.num_workers == 7


def test_adapt_searches_all_higher_trees_at_each_node_of_a_lower_one() -> None:
    strategy = Adapt(Space((1, 2, 3), (1, 2, 4)))
    # More is better in both: of each tree the root and both children, in nested order.
    settings = asked_settings(strategy, lambda s: s.num_workers * s.prefetch_factor)
    assert [(s.prefetch_factor, s.num_workers) for s in settings] == [
        *[(2, 2), (2, 1), (2, 3)],
        *[(1, 2), (1, 1), (1, 3)],
        *[(4, 2), (4, 1), (4, 3)],
    ]


def test_adapt_takes_another_order_of_priorities() -> None:
    order = ("prefetch_factor", *(name for name in LOADER_PARAMETERS if name != "prefetch_factor"))
    settings = asked_settings(Adapt(Space((1, 2, 3), (1, 2, 4)), priorities=order))
    assert [(s.num_workers, s.prefetch_factor) for s in settings][:4] == [
        *[(2, 2), (2, 1), (2, 4)],
        (1, 2),
    ]
    with pytest.raises(ValueError, match="priorities"):
        Adapt(Space((1,)), priorities=("num_workers",))


def test_adapt_gives_up_a_tree_whose_root_and_children_fail_and_passes_a_failed_root() -> None:
    strategy = Adapt(Space(range(1, 8)))
    assert workers(asked_settings(strategy, lambda s: 0.0)) == [4, 2, 6]
    assert strategy.best() is None
    assert "all failed" in strategy.reason()
    small = asked_settings(Adapt(Space(range(1, 8))), lambda s: 5.0 if s.num_workers < 3 else 0.0)
    assert workers(small) == [4, 2, 6, 1, 3]


def test_adapt_measures_the_loader_without_workers_once_for_all_prefetch_factors() -> None:
    settings = asked_settings(Adapt(Space((0, 1), (1, 2, 4))))
    assert workers(settings) == [0, 1, 1, 1]


def test_adapt_says_where_it_is_in_its_trees_and_what_is_ruled_out() -> None:
    strategy = Adapt(Space(range(1, 8), (1, 2, 4)))
    reasons = {}
    while (setting := strategy.ask()) is not None:
        reasons[setting.num_workers, setting.prefetch_factor] = strategy.reason()
        strategy.tell(measured(setting, 10.0 - setting.num_workers))
    assert (
        reasons[4, 2]
        == "num_workers 4 (the root of its tree); prefetch_factor 2 (the root of its tree)"
    )
    assert reasons[1, 4] == (
        "num_workers 1 (below 2, 4 and higher ruled out); prefetch_factor 4 (above 2)"
    )
    assert strategy.reason().startswith("15 of 21 combinations are measured")


def surface(setting: Setting) -> float:
    """A smooth hill over the paper's ranges, its top at 14 workers and prefetch 8, pinned."""
    assert setting.prefetch_factor is not None
    across = math.log2(setting.num_workers / 14) ** 2 + math.log2(setting.prefetch_factor / 8) ** 2
    return 1000.0 * math.exp(-across / 8) * (1.1 if setting.pin_memory else 1.0)


def test_adapt_finds_the_top_of_a_hill_in_a_fraction_of_the_papers_grid() -> None:
    strategy = Adapt(bench("tune.paper").SPACE)
    settings = asked_settings(strategy, surface)
    best = strategy.best()
    assert best is not None
    assert best.setting == Setting(14, 8, pin_memory=True)
    assert 36 <= len(settings) <= 308


def nested(values: tuple[int, ...]) -> tuple[int, int]:
    """The fewest and the most settings that a search of one tree may try."""
    strategy = Adapt(Space(values))
    root = next(tree for tree in strategy.trees if tree.parameter == "num_workers").root

    def most(node: object) -> int:
        below = node.children()
        return len(below) + max((most(child) for child in below), default=0)

    return 1 + len(root.children()), 1 + most(root)


def test_the_paper_tries_from_36_to_308_settings() -> None:
    """As adapt's own docstring says."""
    space = bench("tune.paper").SPACE
    fewest, most = zip(nested(space.num_workers), nested(space.prefetch_factor), strict=True)
    assert (math.prod(fewest) * 4, math.prod(most) * 4) == (36, 308)
    assert len(asked_settings(Adapt(space))) == 36
