"""The default search: the right setting is chosen in its budget, whatever the trials tell."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from lotus.settings.space import Measurement, Observed, Setting, Space
from lotus.tune.simulation.loader_simulation import simulate
from lotus.tune.simulation.simulation_types import Machine, Work
from lotus.tune.strategies import make
from lotus.tune.strategies.predictive import FAILURES, Lotus
from lotus.tune.strategies.problem import Problem

MS = 1e6
SIZE = 8.0
SPACE = Space((0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32), (1, 2, 4), (False, True), (False, True))


def work(cpu: float, wait: float = 0.0, step: float = 0.0, **more: float) -> Work:
    """Costs of batches in milliseconds, a little different from batch to batch."""
    vary = np.tile(np.random.default_rng(3).lognormal(0.0, 0.1, 64), 8)
    count = len(vary)
    none = np.zeros(count)
    return Work(
        np.full(count, SIZE),
        cpu * MS * vary,
        wait * MS * vary,
        np.full(count, step * MS),
        none,
        none,
        **{name: value * MS if name.endswith("_ns") else value for name, value in more.items()},
    )


class Trials:
    """What trials of a simulated loader tell, with noise."""

    def __init__(self, work: Work, cores: float, noise: float = 0.01, observed: bool = True):
        self.work, self.machine = work, Machine(cores, 0.02)
        self.noise, self.observed = noise, observed
        self.chance = random.Random(5)
        self.rates: dict[tuple[Setting, bool], float] = {}

    def rate(self, setting: Setting, step: bool = True) -> float:
        """Batches per second."""
        key = (setting.normal(), step)
        if key not in self.rates:
            costs = self.work
            if not step:
                costs = Work(**{**vars(costs), "step_ns": np.zeros(1)})
            workers = max(setting.num_workers, 1)
            edge = (2 + (setting.normal().prefetch_factor or 0)) * workers
            out = simulate(costs, setting, self.machine, batches=2 * edge + 64 + workers)
            taken = out.timeline.taken_ns[edge:-edge]
            self.rates[key] = 64e9 / float((taken[64:] - taken[:-64]).mean())
        return self.rates[key]

    def trial(self, setting: Setting) -> Measurement:
        noise = math.exp(self.chance.gauss(0.0, self.noise))
        rate = SIZE * self.rate(setting) * noise
        workers = max(setting.num_workers, 1)
        capacity = 1.0 / self.rate(setting, step=False)
        cpu = float(self.work.cpu_ns.mean()) / 1e9
        wait = float(self.work.wait_ns.mean()) / 1e9
        busy = min(workers * cpu / (cpu + wait), self.machine.cores)
        cpu *= 1.0 + self.machine.contention * max(busy - 1.0, 0.0)
        seen = Observed(
            capacity_s=capacity,
            cpu_s=cpu * noise,
            queued_s=max(capacity * workers - cpu - wait, 0.0),
            get_s=0.0,
            variation=0.1,
            startup_s=0.05,
            iter_s=0.01,
            shutdown_s=0.01,
            samples=SIZE,
        )
        wide = math.exp(1.96 * max(self.noise, 1e-3))
        return Measurement(
            setting,
            rate,
            rate / wide,
            rate * wide,
            1.0,
            observed=seen if self.observed else None,
        )


def problem(own: Setting, cores: float, space: Space = SPACE, **more: object) -> Problem:
    return Problem(space, own, cores, samples=SIZE, **more)  # type: ignore[arg-type]


def search(strategy: Lotus, trials: Trials) -> list[Setting]:
    """All it asks for, in order."""
    settings = []
    while (setting := strategy.ask()) is not None:
        assert strategy.ask() == setting
        assert strategy.reason()
        settings.append(setting)
        strategy.tell(trials.trial(setting))
        assert len(settings) < 200
    assert strategy.ask() is None
    return settings


def chosen(strategy: Lotus) -> Setting:
    best = strategy.best()
    assert best is not None
    return best.setting


@pytest.mark.parametrize(
    ("costs", "cores", "own", "observed"),
    [
        (work(40.0), 4, Setting(0), True),
        (work(40.0), 16, Setting(16), False),
        (work(2.0, wait=60.0), 2, Setting(2), False),
        (work(20.0, wait=60.0), 4, Setting(8), True),
        (work(30.0, step=10.0, step_cores=0.0), 16, Setting(1), True),
    ],
    ids=["decode", "all cores, rates alone", "remote, rates alone", "mixed", "consumer"],
)
def test_few_settings_find_what_the_whole_grid_would(
    costs: Work, cores: int, own: Setting, observed: bool
) -> None:
    trials = Trials(costs, cores, observed=observed)
    step = float(costs.step_ns.mean()) / 1e9
    strategy = Lotus(problem(own, cores, step_s=step, step_cores=costs.step_cores))
    settings = search(strategy, trials)
    assert settings[0] == own.normal()
    assert len(set(settings)) < len(list(SPACE.settings())) / 4
    most = max(trials.rate(setting) for setting in SPACE.settings())
    assert trials.rate(chosen(strategy)) > 0.95 * most


def test_storage_that_waits_gets_more_workers_than_cores() -> None:
    strategy = Lotus(problem(Setting(2), 2))
    search(strategy, Trials(work(1.0, wait=80.0), 2))
    assert chosen(strategy).num_workers >= 24


def test_a_consumer_gets_few_workers_if_few_suffice() -> None:
    trials = Trials(work(30.0, step=40.0, step_cores=0.0), 16)
    strategy = Lotus(problem(Setting(16, 4), 16, step_s=0.04, step_cores=0.0))
    search(strategy, trials)
    assert chosen(strategy).num_workers <= 2
    assert trials.rate(chosen(strategy)) > 0.98 * trials.rate(Setting(16, 4))


def test_equal_settings_and_refused_ones_are_never_tried_and_are_named() -> None:
    def allowed(setting: Setting) -> str:
        return "8 workers take all memory" if setting.num_workers >= 8 else ""

    space = Space((1, 2, 4, 8), (2, 4, 8, 16), (False, True))
    strategy = Lotus(problem(Setting(1), 16, space, batches=8, allowed=allowed))
    settings = search(strategy, Trials(work(40.0), 16))
    assert all(setting.num_workers < 8 and not setting.pin_memory for setting in settings)
    assert (Setting(4, 2) in settings) + (Setting(4, 4) in settings) <= 1  # 8 batches: the same
    out = dict(strategy.ruled_out())
    assert "8 workers take all memory" in out.values()
    assert any("the same loader" in why for why in out.values())
    assert any("at most" in why for why in out.values())


@pytest.mark.parametrize(("startup", "persistent"), [(3.0, True), (0.01, False)])
def test_twins_are_told_apart_by_what_starting_workers_takes(
    startup: float, persistent: bool
) -> None:
    """What a trial says of persistent workers is noise, so it is worked out."""
    space = Space((1, 2, 4), (2,), persistent_workers=(False, True))
    strategy = Lotus(problem(Setting(4), 4, space, batches=100))
    trials = Trials(work(40.0), 4, noise=0.03)
    settings = []
    while (setting := strategy.ask()) is not None:
        settings.append(setting)
        trial = trials.trial(setting)
        assert trial.observed is not None
        seen = replace(trial.observed, startup_s=startup, iter_s=0.0, shutdown_s=0.0)
        epoch_s = 100 * SIZE / trial.samples_per_s + (not setting.persistent_workers) * startup
        rate = 100 * SIZE / epoch_s
        strategy.tell(Measurement(setting, rate, 0.97 * rate, 1.03 * rate, 1.0, observed=seen))
    assert chosen(strategy) == Setting(4, 2, persistent_workers=persistent)
    assert chosen(strategy) in settings


def test_pinning_is_tried_where_there_is_something_to_pin_for() -> None:
    space = Space((1, 2, 4), (2,), (False, True))
    strategy = Lotus(problem(Setting(4), 4, space, accelerator=True))
    trials = Trials(work(40.0), 4)
    settings = []
    while (setting := strategy.ask()) is not None:
        settings.append(setting)
        trial = trials.trial(setting)
        if setting.pin_memory:
            rate = trial.samples_per_s * 1.3
            trial = Measurement(
                setting, rate, 0.99 * rate, 1.01 * rate, 1.0, observed=trial.observed
            )
        strategy.tell(trial)
    assert any(setting.pin_memory for setting in settings)
    assert chosen(strategy) == Setting(4, 2, pin_memory=True)


def test_the_own_value_is_kept_of_what_the_model_does_not_know() -> None:
    space = Space((1, 2, 4, 8), (2,), (False, True), start_method=("spawn", "fork"))
    own = Setting(2, 2, pin_memory=True, start_method="fork")
    strategy = Lotus(problem(own, 8, space, accelerator=True))
    settings = search(strategy, Trials(work(40.0), 8))
    assert all(setting in space for setting in settings)
    tried = [(setting.pin_memory, setting.start_method) for setting in settings]
    assert set(tried[:3]) == {(True, "fork")}
    assert set(tried) != {(True, "fork")}


def test_threads_that_fight_are_believed_where_one_trial_shows_it() -> None:
    """Rates that were measured: BLAS had as many threads in each of two workers as cores."""
    own = Setting(2, prefetch_factor=2)
    limited = replace(own, threads=1)
    space = Space((0, 1, 2, 3, 4), (2, 4), persistent_workers=(False, True), threads=(None, 1))
    strategy = Lotus(problem(own, 2, space, batches=25, step_s=0.01, budget_s=60.0))

    def tell(setting: Setting, rate: float, capacity_s: float, cpu_s: float) -> None:
        seen = Observed(capacity_s, cpu_s, 0.0, 0.001, 0.1, 0.3, 0.05, 0.05, SIZE)
        strategy.tell(Measurement(setting, rate, 0.8 * rate, 1.2 * rate, 5.0, observed=seen))

    tell(own, 81.0, 0.3, 0.5)
    tell(limited, 277.0, 0.09, 0.1)
    asked = strategy.ask()
    assert asked is None or asked.threads == 1
    tell(Setting(1, prefetch_factor=2), 226.0, 0.1, 0.1)
    best = strategy.best()
    assert best is not None
    assert best.setting == limited


def test_a_failure_rules_out_what_is_larger_and_never_the_search() -> None:
    trials = Trials(work(40.0), 16)
    strategy = Lotus(problem(Setting(2), 16))
    settings = []
    while (setting := strategy.ask()) is not None:
        settings.append(setting)
        if setting.num_workers > 4:
            strategy.tell(Measurement.failure(setting, "worker 3 was killed", 1.0))
        else:
            strategy.tell(trials.trial(setting))
    failed = [setting for setting in settings if setting.num_workers > 4]
    assert failed
    for at, smaller in enumerate(failed):
        for later in failed[at + 1 :]:
            assert not (
                later.num_workers >= smaller.num_workers
                and later.prefetch_factor >= smaller.prefetch_factor
                and later.pin_memory >= smaller.pin_memory
            )
    assert "worker 3 was killed" in dict(strategy.ruled_out()).values()
    assert chosen(strategy).num_workers <= 4


def test_when_everything_fails_it_ends_without_a_best() -> None:
    strategy = Lotus(problem(Setting(2), 4))
    settings = []
    while (setting := strategy.ask()) is not None:
        settings.append(setting)
        strategy.tell(Measurement.failure(setting, "no batch within 30 s", 1.0))
    assert len(settings) == len(set(settings)) <= FAILURES
    assert strategy.best() is None
    assert strategy.predicted(Setting(1)) is None
    assert "worked" in strategy.reason()


def test_a_trial_after_the_end_may_change_which_was_the_best() -> None:
    strategy = Lotus(Problem(Space((0, 2), (2,)), Setting(0), 2, budget_s=1.0))
    own = strategy.ask()
    assert own is not None
    strategy.tell(Measurement(own, 10.0, 9.5, 10.5, 1.0))
    assert strategy.ask() is None
    assert strategy.reason() == "the budget is spent; the best in trials: no workers"
    strategy.tell(Measurement(Setting(2), 26.0, 25.0, 27.0, 1.0))
    assert strategy.reason() == "the budget is spent; the best in trials: 2 workers x prefetch 2"


def test_what_is_close_is_measured_again_in_turn_until_it_is_told_apart() -> None:
    """Two settings, the larger one 6 % faster, 4 % of noise, which one block often hides."""
    wins = blocks = 0
    for seed in range(10):
        chance = random.Random(seed)
        space = Space((1, 2), (2,))
        strategy = Lotus(Problem(space, Setting(1), 2, seed=seed, budget_s=1000.0))
        workers = []
        while (setting := strategy.ask()) is not None:
            workers.append(setting.num_workers)
            rate = (106.0 if setting.num_workers == 2 else 100.0) * math.exp(chance.gauss(0, 0.04))
            strategy.tell(Measurement(setting, rate, rate / 1.08, rate * 1.08, 1.0))
        assert abs(workers.count(1) - workers.count(2)) <= 2
        blocks += len(workers)
        wins += chosen(strategy).num_workers == 2
    assert wins >= 8
    assert blocks > 40


def test_the_budget_ends_it() -> None:
    trials = Trials(work(40.0), 16, noise=0.05)
    strategy = Lotus(problem(Setting(2), 16, budget_s=7.0))
    assert len(search(strategy, trials)) <= 7
    assert strategy.best() is not None


def test_it_goes_by_its_seed_alone() -> None:
    def once(seed: int) -> list[Setting]:
        trials = Trials(work(10.0, wait=30.0), 8, noise=0.03)
        return search(Lotus(problem(Setting(4), 8, seed=seed)), trials)

    assert once(1) == once(1)


def test_what_a_setting_would_bring_is_predicted() -> None:
    trials = Trials(work(40.0), 8)
    strategy = Lotus(problem(Setting(1), 8))
    assert strategy.predicted(Setting(4)) is None
    search(strategy, trials)
    for workers in (2, 4, 6, 12):
        made = strategy.predicted(Setting(workers))
        assert made == pytest.approx(SIZE * trials.rate(Setting(workers)), rel=0.1)


def test_a_problem_that_cannot_be_is_refused() -> None:
    for wrong in ({"batches": 0}, {"cores": 0}, {"step_s": -1.0}, {"budget_s": math.nan}):
        with pytest.raises(ValueError, match=r"at least|must be"):
            Problem(**{"space": SPACE, "own": Setting(1), "cores": 2, **wrong})  # type: ignore[arg-type]


def test_lotus_is_made_by_name_of_its_problem() -> None:
    made = make("lotus", Space((1, 2)), seed=4, problem=problem(Setting(1), 2))
    assert isinstance(made, Lotus)
    assert (made.problem.space, made.problem.seed) == (Space((1, 2)), 4)
    with pytest.raises(ValueError, match="problem"):
        make("lotus", Space((1, 2)))


def some(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(values, min_size=1, max_size=3, unique=True).map(tuple)


positive = st.floats(1e-6, 1e3)


@hypothesis_settings(max_examples=25, deadline=None)
@given(
    space=st.builds(
        Space,
        num_workers=st.lists(st.integers(0, 70), min_size=1, max_size=5, unique=True).map(tuple),
        prefetch_factor=some(st.none() | st.integers(1, 64)),
        pin_memory=st.sampled_from([(False,), (False, True), (True,)]),
        persistent_workers=st.sampled_from([(False,), (True, False)]),
        start_method=st.sampled_from([(None,), ("spawn", "fork")]),
        in_order=st.sampled_from([(None,), (True, False)]),
        threads=st.sampled_from([(None,), (None, 2, 1)]),
    ),
    own=st.builds(
        Setting, st.integers(0, 9), st.none() | st.integers(1, 9), st.booleans(), st.booleans()
    ),
    cores=st.sampled_from([0.5, 1, 2, 64]),
    batches=st.none() | st.integers(1, 50),
    step=st.sampled_from([0.0, 0.01]),
    accelerator=st.booleans(),
    data=st.data(),
)
def test_whatever_trials_tell_it_ends_in_its_space_and_budget(
    space: Space,
    own: Setting,
    cores: float,
    batches: int | None,
    step: float,
    accelerator: bool,
    data: st.DataObject,
) -> None:
    measurements: list[Measurement] = []
    strategy = Lotus(
        Problem(
            space,
            own,
            cores,
            batches,
            step_s=step,
            accelerator=accelerator,
            budget_s=20.0,
            seed=data.draw(st.integers(0, 9)),
        )
    )
    while (setting := strategy.ask()) is not None:
        assert setting in set(space.settings()) | {own.normal()}
        rate = data.draw(st.none() | st.floats(1e-3, 1e9))
        if rate is None:
            measurements.append(Measurement.failure(setting, "killed", 1.0))
        else:
            seen = None
            if data.draw(st.booleans()):
                seen = Observed(*data.draw(st.tuples(*[positive] * 9)))
            low = data.draw(st.sampled_from([0.0, 0.5, 1.0]))
            measurements.append(
                Measurement(setting, rate, low * rate, rate * 1.1, 1.0, observed=seen)
            )
        strategy.tell(measurements[-1])
        assert len(measurements) <= 21
    assert all(what and why for what, why in strategy.ruled_out())
    best = strategy.best()
    assert (best is None) == all(
        any(t.failed for t in measurements if t.setting == s)
        for s in {t.setting for t in measurements}
    )


def test_trials_too_short_to_tell_how_sure_they_are_are_no_reason_to_stop() -> None:
    strategy = Lotus(problem(Setting(2), 4.0, batches=300))
    for _ in range(40):
        setting = strategy.ask()
        if setting is None:
            break
        rate = 100.0 * max(setting.num_workers, 1)
        seen = Observed(0.02, 0.02, 0.0, 0.001, 0.1, 0.05, 0.01, 0.01, 8.0)
        strategy.tell(Measurement(setting, rate, rate / 9, math.inf, 1.0, 0.05, observed=seen))
    best = strategy.best()
    assert best is not None
    assert best.setting.num_workers > 2
