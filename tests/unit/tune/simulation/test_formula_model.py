"""The formulae of a loader: exact limiting cases, what may only grow, and the simulator."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lotus.common.numbers.array_types import Floats
from lotus.settings.space import Setting
from lotus.tune.simulation import formula_model
from lotus.tune.simulation.formula_model import Scaling, Stages, fit, predict
from lotus.tune.simulation.loader_simulation import simulate
from lotus.tune.simulation.simulation_types import Machine, Work

MS = 1_000_000
MANY = 1e9  # cores


def rate(setting: Setting, stages: Stages, cores: float = MANY) -> float:
    return predict(setting, stages, cores).batches_per_s


# -- contention ----------------------------------------------------------------------------


@settings(deadline=None)
@given(
    busy=st.floats(1.1, 64), gain=st.floats(0.2, 64), coherence=st.floats(0, 1), n=st.floats(1, 128)
)
def test_a_fit_goes_through_both_points(busy, gain, coherence, n) -> None:
    assume(gain <= busy)
    scaling = fit(busy, gain, coherence)
    assert scaling.slowdown(1) == 1
    assert busy / scaling.slowdown(busy) == pytest.approx(gain)
    # The two ends of what one point leaves open are the bounds, with the ends swapped below it.
    ends = sorted(fit(busy, gain, end).slowdown(n) for end in (0, 1))
    assert ends[0] * (1 - 1e-9) <= scaling.slowdown(n) <= ends[1] * (1 + 1e-9)


def test_what_scales_beyond_its_cores_loses_nothing() -> None:
    assert fit(4, 4.2) == Scaling(0, 0)


def test_exchange_between_all_makes_more_cores_slower_at_last() -> None:
    scaling = fit(8, 4, coherence=1)
    gains = [n / scaling.slowdown(n) for n in range(1, 40)]
    assert gains.index(max(gains)) < 38


@pytest.mark.parametrize(("busy", "gain"), [(1, 1), (2, 0), (math.nan, 1)])
def test_a_fit_needs_two_points(busy, gain) -> None:
    with pytest.raises(ValueError, match="more than one busy core"):
        fit(busy, gain)


# -- the queue -----------------------------------------------------------------------------


def test_the_queue_is_empty_as_often_as_tf_data_says() -> None:
    assert formula_model.starved(2, 2, 4) == pytest.approx(1 / 5)
    assert formula_model.starved(1, 2, 1) == pytest.approx((1 - 0.5) / (1 - 0.25))
    assert formula_model.starved(3, 2, 3) == pytest.approx((1 - 1.5) / (1 - 1.5**4))
    assert formula_model.starved(0, 2, 3) == 1
    assert formula_model.starved(1e300, 1e-300, 4096) == 0
    assert formula_model.starved(1e-300, 1e300, 4096) == pytest.approx(1)


rates = st.floats(1e-3, 1e6)


@settings(deadline=None)
@given(made=rates, taken=rates, depth=st.integers(1, 10_000), variation=st.floats(0, 3))
def test_a_queue_gives_no_more_than_the_slower_side(made, taken, depth, variation) -> None:
    queued = formula_model.rate_with_queue(made, taken, depth, variation)
    assert 0 < queued <= min(made, taken) * (1 + 1e-9)
    deeper = formula_model.rate_with_queue(made, taken, depth + 1, variation)
    assert deeper >= queued * (1 - 1e-9)
    assert formula_model.rate_with_queue(made, taken, depth, 0.0) == min(made, taken)
    # Even one place passes on what both do in turns.
    assert queued >= 1 / (1 / made + 1 / taken) * (1 - 1e-9)


def exact_loss(workers: int, prefetch: int, variation: float, count: int = 2400) -> float:
    """How much longer batches take because they are taken in turn, by their exact start times."""
    took = np.random.default_rng(0).gamma(1 / variation**2, variation**2, count)
    made, taken = [0.0] * count, [0.0] * count
    for k in range(count):
        free = made[k - workers] if k >= workers else 0.0
        ahead = workers * prefetch
        made[k] = max(free, taken[k - ahead] if k >= ahead else 0.0) + took[k]
        taken[k] = max(taken[k - 1], made[k])
    return taken[-1] * workers / count / took.mean()


@pytest.mark.parametrize("workers", [2, 8, 24])
@pytest.mark.parametrize("prefetch", [1, 2, 6])
@pytest.mark.parametrize("variation", [0.3, 0.7, 1.0])
def test_a_slow_batch_keeps_the_others_waiting(workers, prefetch, variation) -> None:
    stages = Stages(cpu_s=1, fetch_variation=variation)
    predicted = predict(Setting(workers, prefetch), stages, MANY)
    exact = workers / exact_loss(workers, prefetch, variation)
    assert predicted.batches_per_s == pytest.approx(exact, rel=0.15)
    assert predicted.low <= exact * 1.02
    assert predicted.high >= exact * 0.98
    free = predict(Setting(workers, prefetch, in_order=False), stages, MANY)
    assert free.batches_per_s == pytest.approx(workers)


# -- limiting cases ------------------------------------------------------------------------


def test_without_workers_all_comes_after_one_another() -> None:
    stages = Stages(cpu_s=0.2, wait_s=0.1, send_s=9, get_s=9, step_s=0.2)
    assert rate(Setting(0), stages) == pytest.approx(1 / 0.5)
    assert predict(Setting(0), stages, 1).first_batch_s == pytest.approx(0.3)


def test_workers_scale_until_the_consumer_is_the_limit() -> None:
    stages = Stages(cpu_s=0.4, step_s=0.1)
    assert [rate(Setting(n, 2), stages) for n in (1, 2, 4, 8)] == pytest.approx([2.5, 5, 10, 10])


def test_cores_limit_what_computes_and_not_what_waits() -> None:
    assert rate(Setting(8), Stages(cpu_s=0.4), 2) == pytest.approx(5)
    assert rate(Setting(8), Stages(cpu_s=0.0, wait_s=0.4), 2) == pytest.approx(20)
    # The consumer's step takes a core as well, unless it computes elsewhere.
    busy = Stages(cpu_s=0.4, step_s=0.4)
    assert rate(Setting(8), busy, 2) == pytest.approx(2.5)
    assert rate(Setting(8), replace(busy, step_cores=0), 4) == pytest.approx(2.5)


def test_the_pipe_takes_one_batch_at_a_time() -> None:
    stages = Stages(cpu_s=0.1, send_s=0.5, write_s=0.25)
    assert rate(Setting(64), stages) == pytest.approx(4)


def test_pinning_takes_the_handover_out_of_the_main_process() -> None:
    stages = Stages(cpu_s=0.01, get_s=0.1, pin_s=0.1, step_s=0.3, step_pinned_s=0.15)
    assert rate(Setting(8), stages) == pytest.approx(1 / 0.4)
    pinned = predict(Setting(8, pin_memory=True), stages, MANY)
    assert pinned.batches_per_s == pytest.approx(1 / 0.2)
    # Where nothing is ever pinned the setting changes nothing.
    none = replace(stages, pin_s=0.0)
    assert rate(Setting(8, pin_memory=True), none) == rate(Setting(8), none)


def test_workers_are_started_one_after_the_other_and_boot_beside_each_other() -> None:
    stages = Stages(cpu_s=0.2, iter_s=0.01, spawn_s=0.02, boot_s=1, first_s=0.5, shutdown_s=0.1)
    first = predict(Setting(4), stages, 4)
    assert first.first_batch_s == pytest.approx(0.01 + 4 * 0.02 + 1 + 0.5 + 0.2)
    assert first.setup_s == pytest.approx(first.first_batch_s + 0.1)
    crowded = predict(Setting(4), stages, 2)
    assert crowded.first_batch_s == pytest.approx(0.01 + 4 * 0.02 + 2 * 1.7)
    assert crowded.setup_s == pytest.approx(crowded.first_batch_s + 2 * 0.1)


def test_persistent_workers_pay_their_start_once() -> None:
    stages = Stages(cpu_s=0.2, boot_s=1)
    anew = predict(Setting(1), stages, 4)
    kept = predict(Setting(1, persistent_workers=True), stages, 4)
    assert anew.epoch_s(11, 10) == pytest.approx(1.2 + 10 * 0.2)
    assert kept.epoch_s(11, 10) == pytest.approx(0.1 + 11 * 0.2)
    assert kept.epoch_s(11) == anew.epoch_s(11)


def test_a_consumer_that_computes_slows_the_workers_down() -> None:
    stages, slow = Stages(cpu_s=1, step_s=0.1), (Scaling(sigma=0.5),)
    # It computes a tenth of the time, and then both take half as long again.
    assert predict(Setting(1), stages, 8, slow).batches_per_s == pytest.approx(1 / 1.05, rel=0.05)
    elsewhere = replace(stages, step_cores=0.0)
    assert predict(Setting(1), elsewhere, 8, slow).batches_per_s == pytest.approx(1)


def test_bounds_come_from_all_scalings_that_fit() -> None:
    stages = Stages(cpu_s=1)
    scalings = tuple(fit(2, 1.5, part) for part in (0.5, 0, 1))
    predicted = predict(Setting(8), stages, 8, scalings)
    assert predicted.high == pytest.approx(8 / scalings[1].slowdown(8))
    assert predicted.low == pytest.approx(8 / scalings[2].slowdown(8))
    assert predicted.low < predicted.batches_per_s < predicted.high
    # Where both points were measured nothing is open.
    there = predict(Setting(2), stages, 8, scalings)
    assert there.low == pytest.approx(there.high) == pytest.approx(1.5)


@pytest.mark.parametrize(
    "bad",
    [
        {"cpu_s": 0.0},
        {"cpu_s": -1.0},
        {"cpu_s": math.nan},
        {"cpu_s": 1, "step_s": math.inf},
        {"cpu_s": 1, "send_s": 0.1, "write_s": 0.2},
    ],
)
def test_times_that_cannot_be_are_refused(bad) -> None:
    with pytest.raises(ValueError, match=r"must|part of"):
        Stages(**bad)


# -- what may only grow --------------------------------------------------------------------

times = st.just(0.0) | st.floats(1e-6, 10)
stages_of_any = st.builds(
    Stages,
    cpu_s=st.floats(1e-3, 10),
    wait_s=times,
    send_s=times,
    get_s=times,
    pin_s=times,
    step_s=times,
    step_cores=st.floats(0, 4),
    iter_s=times,
    spawn_s=times,
    boot_s=times,
    fetch_variation=st.floats(0, 2),
    step_variation=st.floats(0, 2),
)
settings_of_any = st.builds(Setting, st.integers(1, 64), st.integers(1, 64), st.booleans())
cores_of_any = st.floats(0.25, 128)
ROUNDING = 1 + 1e-9


@settings(deadline=None)
@given(setting=settings_of_any, stages=stages_of_any, cores=cores_of_any)
def test_nothing_that_is_given_more_gets_slower(setting, stages, cores) -> None:
    if setting.num_workers + 2 > cores:
        # Workers beyond the cores may take them from a main process that has to take batches.
        stages = replace(stages, get_s=0.0, pin_s=0.0)
    base = rate(setting, stages, cores)
    more = [
        (replace(setting, num_workers=setting.num_workers + 1), stages, cores),
        (replace(setting, prefetch_factor=setting.prefetch_factor + 1), stages, cores),
        (setting, stages, cores * 2),
    ]
    more += [
        (setting, replace(stages, **{name: getattr(stages, name) / 2}), cores)
        for name in ("wait_s", "send_s", "get_s", "pin_s", "step_variation")
    ]
    for other in more:
        assert rate(*other) * ROUNDING >= base


@settings(deadline=None)
@given(
    setting=settings_of_any,
    stages=stages_of_any,
    cores=cores_of_any,
    gain=st.floats(1, 4),
)
def test_the_prediction_lies_within_its_bounds(setting, stages, cores, gain) -> None:
    scalings = tuple(fit(4, gain, part) for part in (0.5, 0, 1))
    predicted = predict(setting, stages, cores, scalings)
    assert 0 < predicted.low <= predicted.batches_per_s <= predicted.high * ROUNDING
    assert predicted.first_batch_s >= stages.cpu_s


@settings(deadline=None)
@given(setting=settings_of_any, stages=stages_of_any, cores=cores_of_any)
def test_all_slower_by_a_factor_is_slower_by_it(setting, stages, cores) -> None:
    slower = {
        name: value * 2
        for name, value in vars(stages).items()
        if name.endswith("_s") and value is not None
    }
    half = rate(setting, replace(stages, **slower), cores)
    assert half * 2 == pytest.approx(rate(setting, stages, cores))


# -- against the simulator -----------------------------------------------------------------


def work(cpu: float, wait: float, step: float, variation: float = 0.0) -> Work:
    draw = np.random.default_rng(1)
    shape = 1 / variation**2 if variation else 1.0
    spread = draw.gamma(shape, 1 / shape, 240) if variation else np.ones(240)
    ones = np.ones(240)
    return Work(
        size=ones, cpu_ns=cpu * MS * spread, wait_ns=wait * MS * spread, step_ns=step * MS * ones,
        bytes=ones, read_bytes=0 * ones, pickle_ns=0.5 * MS, get_ns=0.2 * MS, step_cores=0.0,
        iter_ns=MS, spawn_ns=2 * MS, boot_ns=20 * MS,
    )  # fmt: skip


def variation_of(values: Floats) -> float:
    return float(values.std() / values.mean())


def stages_of(work: Work) -> Stages:
    """What the simulator's costs amount to on average."""
    return Stages(
        cpu_s=float(work.cpu_ns.mean()) / 1e9,
        wait_s=float(work.wait_ns.mean()) / 1e9,
        send_s=work.pickle_ns / 1e9,
        get_s=work.get_ns / 1e9,
        step_s=float(work.step_ns.mean()) / 1e9,
        step_cores=work.step_cores,
        iter_s=work.iter_ns / 1e9,
        spawn_s=work.spawn_ns / 1e9,
        boot_s=work.boot_ns / 1e9,
        fetch_variation=variation_of(work.cpu_ns + work.wait_ns),
        step_variation=variation_of(work.step_ns),
    )


@pytest.mark.parametrize("setting", [Setting(0), Setting(1, 2), Setting(3, 2), Setting(6, 8)])
@pytest.mark.parametrize(
    "shape", [(10, 0, 1, 0), (2, 20, 1, 0), (5, 5, 10, 0), (10, 0, 1, 0.5), (5, 5, 3, 1.0)]
)
def test_formula_and_simulator_agree(setting, shape) -> None:
    made = work(*shape)
    predicted = predict(setting, stages_of(made), 4)
    truth = simulate(made, setting, Machine(cores=4)).steady_samples_per_s
    assert predicted.low * 0.95 <= truth <= predicted.high * 1.05
    assert predicted.batches_per_s == pytest.approx(truth, rel=0.10)
