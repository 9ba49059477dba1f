"""How tools/bench/tune/comparison.py scores: what it says of a method is what its searches did."""

import pandas as pd
import pytest

from lotus.settings.space import PARAMETERS, Setting, Space
from lotus.tune.strategies import make
from tests.unit.benches import bench

tune_score = bench("tune.score")
Search = tune_score.Search
Timings, replay = bench("tune.strategy_replay").Timings, bench("tune.strategy_replay").replay

RATES = {Setting(0): 50.0, Setting(1): 80.0, Setting(2): 100.0}


def search(method: str, regret: float, seconds: float = 1.0, settings: int = 3) -> Search:
    return Search(method, "any", Setting(1), regret, settings, seconds)


def test_methods_are_summed_up_apart_with_their_failures() -> None:
    failed = Search("b", "any", Setting(0), 0.5, 0, 2.0, "it died")
    rows = tune_score.summed_up([search("a", 0.01, 10, 5), search("a", 0.2, 30, 6), failed])
    a, b = rows
    assert (a.method, a.searches, a.worst, a.p95) == ("a", 2, 0.2, 0.2)
    assert a.median == pytest.approx(0.105)
    assert (a.settings, a.most_settings, a.seconds, a.most_seconds) == (5.5, 6, 20, 30)
    assert (a.failures, b.failures, b.median) == (0, 1, 0.5)
    met = tune_score.aims(a)
    assert met == {
        "median": False,
        "p95": False,
        "most_settings": False,
        "most_seconds": True,
        "failures": True,
    }


@pytest.mark.parametrize(("count", "wanted"), [(1, 1), (10, 10), (20, 19), (100, 95), (21, 20)])
def test_a_percentile_is_a_value_that_was_there(count: int, wanted: int) -> None:
    assert tune_score.percentile(list(range(count, 0, -1)), 0.95) == wanted


def test_ahead_takes_both_the_middle_and_the_bad_cases() -> None:
    def row(*regrets: float, seconds: float = 1.0) -> tune_score.Row:
        return tune_score.summed_up([search("any", regret, seconds) for regret in regrets])[0]

    assert tune_score.ahead(row(0.01, 0.02), row(0.01, 0.03, seconds=2)) == (True, True)
    assert tune_score.ahead(row(0.01, 0.05), row(0.01, 0.01, 0.04)) == (False, False)
    assert tune_score.ahead(row(0.01, 0.02), row(0.01, 0.02)) == (False, False)


def test_a_replay_is_scored_by_what_it_chose_and_tried() -> None:
    timings = Timings(RATES, samples=100)
    strategy = make("grid", Space((0, 1, 2)))
    trials = replay(strategy, timings, trials=2)
    best = strategy.best()
    assert best is not None
    twice = pd.concat([trials, trials])
    score = tune_score.of_trials("grid", "any", twice, best.setting, Setting(0), timings)
    assert score.setting == Setting(1, 2)
    assert score.regret == pytest.approx(0.2)
    assert score.settings == 2
    assert score.seconds == pytest.approx(2 * (100 / 50 + 100 / 80))
    none = tune_score.of_trials("grid", "any", trials[:0], None, Setting(0), timings)
    assert (none.regret, none.settings, bool(none.failed)) == (0.5, 0, True)


def test_a_rule_tries_nothing_and_fails_where_the_table_lacks_it() -> None:
    timings = Timings(RATES)
    rule = tune_score.of_rule("all cores", "any", Setting(2), Setting(0), timings)
    assert (rule.regret, rule.settings, rule.seconds, rule.failed) == (0.0, 0, 0.0, "")
    lacking = tune_score.of_rule("all cores", "any", Setting(9), Setting(1), timings)
    assert lacking.regret == pytest.approx(0.2)
    assert lacking.failed


def test_the_papers_space_has_1584_settings() -> None:
    space = bench("tune.paper").SPACE
    assert space.size() == 1584 == len(set(space.settings()))
    assert space.num_workers[:3] == (1, 2, 4)
    assert (len(space.num_workers), space.num_workers[-1]) == (33, 64)
    assert (len(space.prefetch_factor), space.prefetch_factor[-1]) == (12, 2048)
    assert space.varied() == PARAMETERS[:4]
