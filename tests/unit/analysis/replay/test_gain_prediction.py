"""What a changed setting would gain, held against the same simulated loop with that setting."""

import math
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.replay.gain_prediction import GainPrediction, Prediction
from lotus.analysis.replay.loader_replay import replay
from lotus.analysis.verdict.advice.remedy import CODE, Remedy
from lotus.analysis.verdict.verdict import Cause, verdict
from lotus.reporters.run.parts import trial
from tests.unit.analysis.machine.test_core_use import QUIET, cores
from tests.unit.simulated import Plan

VARIED = np.random.default_rng(1).lognormal(0, 0.6, 4096)
LOOPS: dict[str, dict[str, object]] = {
    "constant": {"operations": {"Read": 10.0}, "step": 4.0},
    "varied": {"operations": {"Read": lambda sample, _: 5 * VARIED[sample % 4096]}, "step": 8.0},
    "without workers": {"operations": {"Read": 10.0}, "step": 20.0, "workers": 0},
    "short epochs": {"operations": {"Read": 10.0}, "step": 4.0, "batches": 20, "epochs": 5},
}


def loop(**plan: object) -> SimpleNamespace:
    return Plan(**({"batches": 120} | plan)).run()  # type: ignore[arg-type]


def took(run: SimpleNamespace) -> float:
    return float((run.epochs["end_ns"] - run.epochs["start_ns"]).sum())


def predicted(run: SimpleNamespace, workers: int, cores: float = 8.0) -> Prediction:
    return GainPrediction(scopes(run)[0], cores).with_workers(workers)


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("workers", [1, 4, 8])
def test_the_gain_of_other_workers_is_that_of_the_loop_with_them(name: str, workers: int) -> None:
    plan = LOOPS[name]
    run = loop(**plan)
    gained = took(run) / took(loop(**(plan | {"workers": workers})))
    prediction = predicted(run, workers)
    # What first workers cost is an estimate.
    assert prediction.gain == pytest.approx(gained, rel=0.1 if plan.get("workers") == 0 else 0.05)
    assert prediction.low <= prediction.gain <= prediction.high
    assert prediction.low <= gained * 1.05
    assert prediction.high >= gained * 0.95


def test_work_that_needs_the_cores_gains_no_more_than_they_give() -> None:
    run = loop(operations={"Read": 10.0}, step=0.5, workers=1)
    run.batches["process_cpu_ns"] = run.batches["fetch_ns"]
    for name in ("wait_process_cpu_ns", "step_process_cpu_ns"):
        run.waits[name] = 0.0
    run.waits.loc[run.waits.index[-1], "step_process_cpu_ns"] = np.nan  # no `next` ends that step
    assert predicted(run, 4, cores=8.0).gain > 3.5
    assert predicted(run, 4, cores=2.0).gain == pytest.approx(2.0, rel=0.1)


def test_nothing_is_predicted_of_what_the_replay_does_not_follow() -> None:
    run = loop(operations={"Read": 10.0})
    run.waits["wait_ns"] *= 2
    assert not predicted(run, 4).is_possible
    assert not predicted(loop(operations={"Read": 10.0}, batches=10), 4).is_possible
    run = loop(operations={"Read": 10.0})
    run.batches = run.batches.drop(index=5)  # a batch without a record
    assert not predicted(run, 4).is_possible


def test_what_an_iterable_data_set_makes_at_its_end_and_nobody_takes_is_left_out() -> None:
    run = loop(operations={"Read": 10.0}, step=4.0)
    gained = predicted(run, 4).gain
    last = run.batches.iloc[[-1]].assign(batch=run.batches["batch"].max() + 1, size=0)
    last[["wait_ns", "arrival_ns"]] = np.nan
    run.batches = pd.concat([run.batches, last], ignore_index=True)
    assert predicted(run, 4).gain == pytest.approx(gained)


def first(run: SimpleNamespace) -> Cause:
    return verdict(scopes(run)[0]).causes[0]


def test_advice_for_workers_is_a_remedy_with_its_gain() -> None:
    cause = first(loop(operations={"Read": 10.0}, step=8.0, workers=1))
    assert cause.remedy.setting == {"num_workers": 6}
    assert "Raise num_workers from 1 to about 6." in cause.advice
    assert cause.remedy.expected.gain > 3


def test_where_epochs_are_short_the_work_comes_before_the_workers() -> None:
    plan = {"operations": {"Read": 20.0}, "step": 20.0, "batches": 12, "epochs": 4}
    causes = verdict(scopes(loop(**plan, workers=2, iter=400.0))[0]).causes
    (read,) = (cause for cause in causes if cause.kind == "operation")
    assert read.advice.startswith("Make Read cheaper")
    assert read.advice.endswith("starting more workers takes longer than it saves.")
    assert not read.remedy.setting


def test_a_loop_without_a_step_is_not_told_to_start_hundreds_of_workers() -> None:
    plan = {"operations": {"Read": 20.0}, "step": 0.05, "cpu": 0.0, "collate": 0.0}
    cause = first(loop(**plan, batches=2000))
    assert cause.remedy.setting == {"num_workers": 32}  # four for each of the 8 cores
    assert "the training step takes next to no time" in cause.advice


@pytest.mark.parametrize("starting", [40.0, 4000.0])
def test_no_workers_are_advised_whose_start_takes_longer_than_they_save(starting: float) -> None:
    plan = {"operations": {"Read": 20.0}, "step": 0.1, "cpu": 0.0, "batches": 20, "epochs": 2}
    waiting = [
        cause
        for cause in verdict(scopes(loop(**plan, iter=starting))[0]).causes
        if cause.kind == "operation"
    ]
    for cause in waiting:
        count = cause.remedy.setting.get("num_workers")
        if count is None:
            assert "takes longer than it saves" in cause.advice
        else:
            assert cause.remedy.expected.gain >= 1.0
            assert f"from 2 to {count}" in cause.advice.replace("about ", "")
    assert waiting
    assert any(cause.remedy.setting for cause in waiting) == (starting < 1000)


SHORT = {"operations": {"Read": 15.0}, "step": 5.0, "workers": 0, "batches": 4, "epochs": 6}


def test_first_workers_of_short_epochs_are_kept_from_one_to_the_next() -> None:
    # GIVEN epochs of 0.26 s in the main process
    cause = first(loop(**SHORT))
    # THEN what their start takes of each epoch is advised against, and counted
    assert cause.remedy.setting == {"num_workers": 4, "persistent_workers": True}
    assert "set num_workers=4 and persistent_workers=True" in cause.advice
    run = loop(**SHORT)
    new, kept = (GainPrediction(scopes(run)[0], 8.0).with_workers(4, kept) for kept in (0, 1))
    assert new.low < kept.low < kept.gain < kept.high
    # In a single epoch nothing can be kept, and what is long enough starts them at no cost.
    for more in ({"epochs": 1, "batches": 30}, {"batches": 400, "epochs": 2}):
        assert set(first(loop(**(SHORT | more))).remedy.setting) == {"num_workers"}


def test_workers_that_may_cost_more_than_they_save_are_no_step() -> None:
    plan = SHORT | {"operations": {"Read": 1.2}, "batches": 30, "epochs": 1, "step": 6.0}
    run = loop(**plan)
    expected = GainPrediction(scopes(run)[0], 8.0).with_workers(1)
    assert expected.low < 1 < expected.gain
    cause = first(run)
    assert cause.remedy == CODE
    assert cause.advice.startswith("Make Read cheaper, or do it once, ahead of time. The main")
    assert "workers are not shown to help: `lotus tune` measures it." in cause.advice
    plan |= {"operations": {"Read": 0.3}, "step": 1.2, "batches": 20}
    cause = first(loop(**plan))
    assert not cause.remedy.setting
    assert cause.advice.endswith("workers would cost about what they save, or more.")
    assert cause.remedy.changes["num_workers"] == "not more"


def test_workers_that_may_gain_much_without_helper_threads_are_to_be_measured() -> None:
    # GIVEN a loop whose helper threads keep both cores busy while batches are made
    run = cores(loop(operations={"Read": 10.0}, step=0.5, workers=0, cores=2), QUIET, QUIET)
    run.batches["process_cpu_ns"] = 2 * run.batches["fetch_ns"]
    expected = GainPrediction(scopes(run)[0], 2.0).with_workers(2)
    # THEN two workers gain nothing if that is work, and much if it is waiting
    assert expected.gain < 1.05 < 1.5 < expected.high
    cause = first(run)
    assert "workers are not shown to help: `lotus tune` measures it." in cause.advice
    assert not cause.remedy.setting
    assert cause.remedy.changes.get("num_workers") != "not more"


def test_few_batches_show_no_gain_of_first_workers() -> None:
    run = loop(**SHORT | {"epochs": 2})
    cause = first(run)
    assert not cause.remedy.setting
    assert "workers are not shown to help" in cause.advice


def test_a_step_in_several_threads_may_lose_more_than_first_workers_gain() -> None:
    """GIVEN a step that uses both of two cores, and a loader without workers
    THEN these are advised where the step is little beside the making of batches, at worst too."""

    def with_threads(step: float) -> Cause:
        run = cores(loop(operations={"Read": 10.0}, step=step, workers=0, cores=2), QUIET, QUIET)
        run.waits["step_cpu_ns"] = run.waits["step_ns"]
        run.waits["step_process_cpu_ns"] = 2.0 * run.waits["step_ns"]
        run.waits["wait_process_cpu_ns"] = run.waits["wait_ns"]
        return first(run)

    assert with_threads(2.0).remedy.setting
    assert not with_threads(20.0).remedy.setting


def test_cores_of_which_none_is_idle_are_not_counted_where_others_use_is_unknown() -> None:
    """GIVEN a loader without workers whose iteration is a small part of its epochs' span, so that
    what other programs use in it is not known, as of a validation
    THEN workers are advised if a core was idle meanwhile, and not if none was."""
    run = cores(loop(operations={"Read": 100.0}, step=1.0, workers=0, cores=2), QUIET, QUIET)
    run.waits["wait_process_cpu_ns"] = run.waits["wait_cpu_ns"] = run.waits["wait_ns"]
    begin, end = float(run.epochs["start_ns"].min()), float(run.epochs["end_ns"].max())
    begin -= 9.0 * (end - begin)
    run.epochs["start_ns"] = begin
    for idle, advised in ((0.0, False), (1.0, True)):
        run.machine = pd.DataFrame(
            {
                "time_ns": [begin - 1e9, end + 1e9],
                "busy_ns": [0.0, (2.0 - idle) * (end - begin + 2e9)],
                "stolen_ns": 0.0,
                "idle_ns": [1e9, 1e9 + idle * (end - begin + 2e9)],
            }
        )
        cause = first(run)
        assert bool(cause.remedy.setting) == advised


def test_fewer_first_workers_are_advised_where_more_gain_nothing() -> None:
    """GIVEN a step that takes about as long as making a batch, on many cores
    THEN one worker more than are shown to gain is not advised."""
    cause = first(loop(operations={"Read": 10.0}, step=42.0, workers=0, batches=200))
    assert cause.remedy.setting == {"num_workers": 1}


def test_workers_for_whom_other_programs_leave_no_core_are_for_later() -> None:
    run = cores(loop(operations={"Read": 10.0}, step=5.0, workers=0, cores=2), QUIET, QUIET)
    run.waits["wait_process_cpu_ns"] = run.waits["wait_ns"]  # batches are made in `next`
    begin, end = float(run.epochs["start_ns"].min()) - 1e9, float(run.epochs["end_ns"].max()) + 1e9
    for part, advised in ((1.0, False), (0.5, True)):  # of the two cores, used by anybody
        used = np.array([0.0, 2.0 * part * (end - begin)])
        run.machine = pd.DataFrame(
            {
                "time_ns": [begin, end],
                "busy_ns": used,
                "stolen_ns": 0.0,
                "idle_ns": 2.0 * np.array([0.0, end - begin]) - used,
            }
        )
        cause = first(run)
        assert (cause.remedy != CODE) == advised
        assert ("other programs leave no core for workers" in cause.advice) != advised


def test_an_interval_that_says_little_is_said_to() -> None:
    wide = Remedy({"num_workers": 4}, expected=Prediction(3.66, 1.0, 32.6))
    words = "1 to 32.6 times as fast, by a replay of its batches: these are too few to say more"
    assert trial.expected(wide) == words
    narrow = Remedy({"num_workers": 4}, expected=Prediction(3.0, 2.0, 4.0))
    assert trial.expected(narrow) == "3 times as fast (2 to 4), by a replay of its batches"


def test_a_worker_does_alone_what_several_threads_of_the_loop_did() -> None:
    run = loop(operations={"Read": 10.0}, step=20.0, workers=0)
    alone = predicted(run, 1).gain
    run.batches["process_cpu_ns"] = 2 * run.batches["fetch_ns"]
    run.batches["cpu_ns"] = run.batches["fetch_ns"]
    assert alone > 1.3
    shared = predicted(run, 1)
    assert shared.gain < 1.0
    # They may only have waited busily, as those of OpenMP do after each operation of torch.
    assert shared.high >= alone


@pytest.mark.parametrize(("cores", "known"), [(8.0, True), (2.0, False)])
def test_nothing_is_predicted_of_workers_that_take_the_cores_of_a_steps_threads(
    cores: float, known: bool
) -> None:
    run = loop(operations={"Read": 10.0}, step=20.0, workers=1)
    run.waits["step_cpu_ns"] = run.waits["step_ns"]
    run.waits["step_process_cpu_ns"] = 2 * run.waits["step_ns"]
    assert predicted(run, 4, cores).is_possible == known


def test_advice_against_code_has_no_setting() -> None:
    assert first(loop(operations={"Read": 0.1}, step=0.1, sampler=30.0)).remedy == CODE


def test_kept_workers_gain_their_starts() -> None:
    run = loop(operations={"Read": 1.0}, step=4.0, spawn=400.0, batches=20, epochs=6)
    cause = first(run)
    assert cause.kind == "start-up"
    assert cause.remedy.setting == {"persistent_workers": True}
    kept = took(run) / took(
        loop(operations={"Read": 1.0}, step=4.0, spawn=400.0, batches=20, epochs=6, persistent=True)
    )
    expected = cause.remedy.expected
    assert expected.gain == pytest.approx(kept, rel=0.15)
    assert expected.low <= kept <= expected.high


def test_the_steps_of_epochs_that_are_left_after_one_batch_are_part_of_the_loop() -> None:
    plan: dict[str, object] = {"operations": {"Read": 1.0}, "step": 150.0, "spawn": 400.0}
    run = loop(**plan, batches=1, epochs=6)
    kept = took(run) / took(loop(**plan, batches=1, epochs=6, persistent=True))
    run.epochs["exhausted"] = False
    run.waits["step_ns"] = np.nan  # no `next` ends them
    expected = GainPrediction(scopes(run)[0], 8.0).with_kept_workers()
    assert expected.gain == pytest.approx(kept, rel=0.2)
    assert expected.low <= expected.gain <= expected.high


def test_the_gain_of_no_workers_is_at_least_what_is_said_where_their_start_takes_longest() -> None:
    plan: dict[str, object] = {"operations": {"Cheap": 0.5}, "collate": 0.1, "step": 4.0}
    run = loop(**plan, spawn=300.0, batches=6, epochs=4)
    alone = took(run) / took(loop(**plan, batches=6, epochs=4, workers=0))
    cause = first(run)
    expected = cause.remedy.expected
    assert cause.remedy.setting == {"num_workers": 0}
    assert expected.low <= alone <= expected.high
    assert expected.gain == pytest.approx(alone, rel=0.1)
    assert trial.expected(cause.remedy).endswith("times as fast, by this run's times")
    run.manifest["every"] = 2
    assert not GainPrediction(scopes(run)[0], 8.0).without_start_ups().is_possible


def test_a_replay_takes_batches_in_order_and_begins_steps_together() -> None:
    made = np.full((6, 2), 10.0)
    made[:, 1] = 30.0
    every = np.array([1, 1])
    apart = replay(made, np.full((6, 2), 1.0), every, every)
    assert apart.duration.tolist() == pytest.approx([61.0, 181.0])
    job = replay(made, np.full((6, 2), 1.0), every, every, collective=2.0)
    assert (job.end[:, 0] == job.end[:, 1]).all()
    assert job.waits[1:, 0].max() <= apart.waits[1:, 0].max()
    assert not math.isnan(job.duration[0])
    with pytest.raises(ValueError, match="a batch"):
        replay(made[:0], made[:0], every, every)


def test_more_workers_and_prefetch_than_there_are_batches_change_nothing() -> None:
    random = np.random.default_rng(3)
    made, step = random.random((7, 4)), random.random((7, 4))

    def taken(workers: int, prefetch: int) -> np.ndarray:
        return replay(made, step, np.full(4, workers), np.full(4, prefetch)).taken

    # WHEN a damaged run tells of more than memory holds, THEN it is as with one for each batch
    for workers, prefetch in ((7, 1 << 61), (1 << 61, 1), (1 << 61, 1 << 61)):
        assert (taken(workers, prefetch) == taken(7, 7)).all()
    assert (taken(2, 1 << 61) == taken(2, 100)).all()
    # AND where there are more workers than times at which they begin
    begin = np.zeros((7, 4))
    assert replay(made, step, np.full(4, 9), np.full(4, 2), begin=begin).taken.shape == (7, 4)


def busy_threads(spinning: float, helping: float, making: float) -> SimpleNamespace:
    """A loop of about 1 s; seconds of CPU time of torch's other threads in `next` and in steps.

    `making`: of the workers. The main process's own thread has 0.1 and 0.4.
    """
    run = loop(workers=2, batches=50, operations={"Read": 2.0}, step=20.0)
    waits, batches, each = run.waits, run.batches, 1e9 / 50
    waits["wait_cpu_ns"], waits["step_cpu_ns"] = 0.1 * each, 0.4 * each
    waits["wait_process_cpu_ns"] = (0.1 + spinning) * each
    waits["step_process_cpu_ns"] = (0.4 + helping) * each
    batches["process_cpu_ns"] = making * each
    run.epochs["torch_threads"], run.epochs["threads"] = 2, 0
    return run


def with_one_thread(run: SimpleNamespace) -> Prediction:
    return GainPrediction(scopes(run)[0], 2.0).with_one_thread()


def test_one_thread_saves_what_the_others_use_where_they_have_nothing_to_do() -> None:
    run = busy_threads(spinning=0.5, helping=0.3, making=0.7)
    expected = with_one_thread(run)
    whole = took(run) / 1e9
    # 1.5 s of work are left for two cores: 0.75 s, or 0.6 s without what helps in the steps; the
    # one thread has 0.8 s if it does that as well, or 0.5 s.
    assert expected.low == pytest.approx(whole / 0.8, rel=0.02)
    assert expected.high == pytest.approx(whole / 0.6, rel=0.02)
    assert expected.low < expected.gain < expected.high
    assert expected.by_sums


def has_free_cores(run: SimpleNamespace) -> None:
    run.batches["process_cpu_ns"] = 0.0


def pins_memory(run: SimpleNamespace) -> None:
    run.loaders["pin_memory"] = True


def has_threads_of_its_own(run: SimpleNamespace) -> None:
    run.epochs["threads"] = 1


def computes_in_one_thread(run: SimpleNamespace) -> None:
    run.epochs["torch_threads"] = 1


@pytest.mark.parametrize(
    "change", [has_free_cores, pins_memory, has_threads_of_its_own, computes_in_one_thread]
)
def test_the_gain_of_one_thread_is_not_known_of_a_program_that(
    change: Callable[[SimpleNamespace], None],
) -> None:
    run = busy_threads(spinning=0.3, helping=0.3, making=0.7)
    change(run)
    assert not with_one_thread(run).is_possible


@pytest.mark.parametrize(("helping", "left"), [(0.1, 0.4), (0.6, 0.5)])
def test_without_the_making_steps_take_what_their_threads_need(helping: float, left: float) -> None:
    """`left`: seconds, of the step's own thread, or of all of its threads on two cores."""
    run = busy_threads(spinning=0.1, helping=helping, making=0.7)
    expected = GainPrediction(scopes(run)[0], 2.0).without_making()
    steps, waits = (float(run.waits[name].sum()) / 1e9 for name in ("step_ns", "wait_ns"))
    whole = took(run) / 1e9
    assert expected.gain == pytest.approx(whole / (whole - steps - waits + left), rel=0.02)
