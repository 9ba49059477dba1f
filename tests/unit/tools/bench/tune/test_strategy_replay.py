"""A strategy run against a table sees what the table holds, noise by its seed, and no more."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lotus.settings.space import Setting, Space
from lotus.tune.strategies import make
from tests.unit.benches import bench

strategy_replay = bench("tune.strategy_replay")
Timings, replay = strategy_replay.Timings, strategy_replay.replay

SPACE = Space((1, 2, 3), (2, 4))
RATES = {setting: 100.0 * setting.num_workers for setting in SPACE.settings()}


def test_all_trials_are_given_in_order() -> None:
    strategy = make("grid", SPACE)
    trials = replay(strategy, RATES)
    assert trials.num_workers.tolist() == [1, 1, 2, 2, 3, 3]
    assert trials.samples_per_s.tolist() == [100.0, 100.0, 200.0, 200.0, 300.0, 300.0]
    assert (trials.samples_per_s == trials.true_samples_per_s).all()
    assert trials.seconds.tolist() == [1000 / rate for rate in trials.samples_per_s]
    assert trials.reason.str.contains("of the grid").all()
    best = strategy.best()
    assert best is not None
    assert best.setting == Setting(3, 2)


def test_a_frame_means_what_the_mapping_means_with_numpys_types_and_gaps() -> None:
    frame = pd.DataFrame(
        {
            "num_workers": np.array([0, 1, 1, 2], np.int16),
            "prefetch_factor": [0, np.nan, 3, 2],
            "pin_memory": np.array([False, True, False, False]),
            "start_method": [None, "spawn", None, None],
            "samples_per_s": [10, 20, 30, 40],
            "memory_bytes": [np.nan, 5e9, np.nan, np.nan],
        }
    )
    timings = Timings(frame)
    wanted = {
        Setting(0): 10.0,
        Setting(1, 2, True, start_method="spawn"): 20.0,
        Setting(1, 3): 30.0,
        Setting(2): 40.0,
    }
    assert {setting: timings.rate(setting) for setting in wanted} == wanted
    assert timings.optimum() == Setting(2, 2)
    trials = replay(make("grid", Space((1,), pin_memory=(True,), start_method=("spawn",))), frame)
    assert trials.memory_bytes.tolist() == [5_000_000_000]


def test_noise_goes_by_its_seed_and_has_the_spread_asked_for() -> None:
    def rates(noise: float, seed: int) -> list[float]:
        space = Space(tuple(range(500)))
        table = dict.fromkeys(space.settings(), 50.0)
        return replay(make("grid", space), table, noise=noise, seed=seed).samples_per_s.tolist()

    assert rates(0.1, 1) == rates(0.1, 1) != rates(0.1, 2)
    logs = np.log(np.array(rates(0.1, 1)) / 50.0)
    assert 0.08 < logs.std() < 0.12
    assert set(rates(0.0, 1)) == {50.0}


def test_the_interval_of_a_noisy_trial_holds_the_true_rate_19_times_in_20() -> None:
    space = Space(tuple(range(1000)))
    trials = replay(make("grid", space), dict.fromkeys(space.settings(), 8.0), noise=0.05, seed=3)
    holds = ((trials.low <= 8.0) & (trials.high >= 8.0)).mean()
    assert 0.93 < holds < 0.97


def test_repetitions_are_drawn_from_and_their_median_is_the_truth() -> None:
    frame = pd.DataFrame({"num_workers": [1, 1, 1, 2], "samples_per_s": [10.0, 12.0, 50.0, 20.0]})
    timings = Timings(frame)
    assert timings.rate(Setting(1)) == 12.0
    assert timings.optimum() == Setting(2, 2)
    chance = random.Random(0)
    drawn = {timings.trial(Setting(1), 0.0, chance).samples_per_s for _ in range(60)}
    assert drawn == {10.0, 12.0, 50.0}


def test_what_the_table_lacks_or_calls_failed_fails_and_the_search_goes_on() -> None:
    frame = pd.DataFrame(
        {
            "num_workers": [1, 2, 3],
            "samples_per_s": [10.0, 0.0, np.nan],
            "failed": ["", "killed: out of memory", ""],
            "seconds": [3.0, 4.0, np.nan],
        }
    )
    strategy = make("grid", Space((4, 3, 2, 1)))
    trials = replay(strategy, frame)
    assert trials.failed.tolist() == [
        "no timing of this setting",
        "no rate in the table",
        "killed: out of memory",
        "",
    ]
    assert trials.seconds.tolist() == [0.0, 0.0, 4.0, 3.0]
    best = strategy.best()
    assert best is not None
    assert best.setting == Setting(1, 2)


def test_budgets_end_a_search() -> None:
    assert len(replay(make("random", SPACE), RATES, trials=2)) == 2
    assert len(replay(make("random", SPACE), RATES, trials=0)) == 0
    frame = pd.DataFrame({"num_workers": [1, 2, 3], "samples_per_s": 1.0, "seconds": 2.0})
    # 4 of 5 seconds are spent after two trials, so a third begins.
    assert len(replay(make("grid", Space((1, 2, 3))), frame, seconds=5.0)) == 3
    assert len(replay(make("grid", Space((1, 2, 3))), frame, seconds=4.0)) == 2


def test_regret_is_what_is_lost_against_the_optimum() -> None:
    timings = Timings(RATES)
    assert timings.regret(Setting(3, 4)) == 0.0
    assert timings.regret(Setting(1, 2)) == pytest.approx(2 / 3)
    assert timings.regret(Setting(9)) == 1.0
    assert timings.regret(None) == 1.0


def test_adapt_is_replayed_to_its_end_under_noise() -> None:
    space = Space(tuple(range(1, 16)), (1, 2, 4, 8))
    table = {s: 100.0 - (s.num_workers - 6) ** 2 for s in space.settings()}
    counts = [len(replay(make("adapt", space), table, noise=0.3, seed=seed)) for seed in range(20)]
    assert all(9 <= count <= 7 * 7 for count in counts)
    assert len(set(counts)) > 1


@pytest.mark.parametrize(
    "make_table",
    [
        lambda: {},
        lambda: {Setting(1): -1.0},
        lambda: {Setting(1): float("inf")},
        lambda: pd.DataFrame({"num_workers": [1]}),
        lambda: pd.DataFrame({"samples_per_s": [1.0]}),
        lambda: pd.DataFrame({"num_workers": [1.5], "samples_per_s": [1.0]}),
        lambda: pd.DataFrame({"num_workers": [np.inf], "samples_per_s": [1.0]}),
        lambda: pd.DataFrame({"num_workers": [None], "samples_per_s": [1.0]}),
        lambda: pd.DataFrame({"num_workers": [1], "pin_memory": ["yes"], "samples_per_s": [1.0]}),
    ],
)
def test_what_is_no_table_of_timings_is_refused(make_table: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"table|must|has no num_workers"):
        Timings(make_table())
