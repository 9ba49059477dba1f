"""Who had the cores: exact times of the kernel, and the causes that stand on them."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.batches.components import core_taken, off_cpu
from lotus.analysis.common.columns import float_column
from lotus.analysis.common.scope import scopes
from lotus.analysis.machine.core_use import core_use
from lotus.analysis.verdict.account import account
from lotus.analysis.verdict.verdict import Verdict, verdict
from tests.unit.simulated import Plan


def cores(
    run: SimpleNamespace, fetch: tuple[float, float, float], step: tuple[float, float, float]
) -> SimpleNamespace:
    """Give a run core times; of fetch and step each: on a core, ready without one (shares of the
    time), other threads' share of the process's CPU time."""
    for table, wall, prefix, (on, delay, helpers) in (
        (run.batches, "fetch_ns", "", fetch),
        (run.waits, "step_ns", "step_", step),
    ):
        table[f"{prefix}cpu_ns"] = table[wall] * on
        table[f"{prefix}run_delay_ns"] = table[wall] * delay
        table[f"{prefix}process_cpu_ns"] = table[wall] * on / (1 - helpers)
    for name in ("cpu_ns", "run_delay_ns", "process_cpu_ns"):
        run.waits[f"wait_{name}"] = 0.0
    return run


def keep_two_cores_busy(run: SimpleNamespace) -> None:
    """Give a run readings of a machine of two cores, which something uses all the time."""
    begin, end = float(run.epochs["start_ns"].min()) - 1e9, float(run.epochs["end_ns"].max()) + 1e9
    times = {"time_ns": [begin, end], "busy_ns": [7e9, 7e9 + 2 * (end - begin)]}
    run.machine = pd.DataFrame(times).assign(idle_ns=5e9, stolen_ns=0.0)


QUIET = (0.98, 0.01, 0.0)


def judged(run: SimpleNamespace) -> Verdict:
    return verdict(scopes(run)[0])


def test_the_time_of_a_fetch_is_split_exactly() -> None:
    run = cores(Plan(step=1).run(), (0.3, 0.6, 0.0), QUIET)
    fetch = run.batches["fetch_ns"].to_numpy(float)
    assert core_taken(run.batches, fetch) == pytest.approx(0.6 * fetch)
    assert off_cpu(run.batches, fetch) == pytest.approx(0.1 * fetch)
    use = core_use(scopes(run)[0])
    assert use.fetch.delay_share == pytest.approx(0.6)
    assert use.fetch.blocked_share == pytest.approx(0.1)


def test_an_old_run_is_judged_as_before() -> None:
    run = Plan(step=1).run()
    use = core_use(scopes(run)[0])
    assert np.isnan(use.own_share)
    assert not use.fetch.crowded
    assert np.isnan(use.others_share)
    assert not use.rivals
    assert judged(run).doubt == ""


@pytest.mark.parametrize("workers", [0, 2])
def test_helper_threads_without_cores_are_the_first_cause(workers: int) -> None:
    plan = Plan(workers=workers, operations={"Slow": 20.0}, cores=2)
    judgement = judged(cores(plan.run(), (0.2, 0.5, 0.5), QUIET))
    assert judgement.causes[0].kind == "worker-threads"
    assert "OMP_NUM_THREADS=1" in judgement.causes[0].advice
    # Workers compute in one thread each, so some are another way where there are none.
    assert ("num_workers" in judgement.causes[0].advice) == (workers == 0)


@pytest.mark.parametrize(("step_helpers", "told"), [(0.0, True), (0.6, False)])
def test_threads_that_spin_after_a_step_make_no_batches(step_helpers: float, told: bool) -> None:
    """GIVEN a process that makes its batches itself, and other threads of it that run meanwhile
    THEN they are not said to make the batches where they may be those of the step."""
    plan = Plan(workers=0, operations={"Slow": 1.0}, cores=2)
    run = cores(plan.run(), (0.5, 0.5, 0.3), (0.6, 0.1, step_helpers))
    assert core_use(scopes(run)[0]).fetch.crowded == told


def test_threads_that_fight_for_cores_come_before_the_worker_that_lost_most_by_them() -> None:
    plan = Plan(workers=2, operations={"Slow": lambda _, worker: 40.0 if worker else 10.0}, cores=2)
    kinds = {}
    for helpers in (0.0, 0.5):
        run = cores(plan.run(), (0.2, 0.4, helpers), QUIET)
        run.batches.loc[run.batches["worker"] == 0, "run_delay_ns"] *= 0.5
        kinds[helpers] = judged(run).causes[0].kind
    assert kinds == {0.0: "slow-worker", 0.5: "worker-threads"}


def test_too_few_cores_come_before_the_worker_that_lost_most_by_them() -> None:
    plan = Plan(workers=2, operations={"Slow": lambda _, worker: 40.0 if worker else 10.0}, cores=2)
    kinds = {}
    for cpus in ("0-1", "0"):
        run = cores(plan.run(), (0.4, 0.6, 0.0), QUIET)
        run.batches.loc[run.batches["worker"] == 0, "run_delay_ns"] *= 0.5
        run.epochs["cpus"], run.workers["cpus"] = "0-1", cpus
        kinds[cpus] = judged(run).causes[0].kind
    assert kinds == {"0-1": "slow-worker", "0": "affinity"}


def test_first_batches_lose_to_threads_what_the_others_lose() -> None:
    plan = Plan(workers=2, batches=6, operations={"Slow": 20.0}, step=400.0, cores=2)

    def shares(fetch: tuple[float, float, float]) -> tuple[float, float]:
        causes = {
            cause.kind: cause.share for cause in judged(cores(plan.run(), fetch, QUIET)).causes
        }
        return causes["start-up"], causes.get("worker-threads", 0.0)

    whole, of_threads = shares((0.98, 0.01, 0.0))
    assert of_threads == 0.0
    left, of_threads = shares((0.2, 0.3, 0.5))
    assert left + of_threads == pytest.approx(whole, rel=0.01)
    # 0.3 without a core, its helpers as much, of the first batches; `iter()` is no part of those.
    assert 0.5 * whole < of_threads < 0.6 * whole


def test_helper_threads_with_cores_are_no_cause() -> None:
    plan = Plan(operations={"Slow": 20.0}, cores=8)
    judgement = judged(cores(plan.run(), (0.9, 0.02, 0.7), QUIET))
    assert {cause.kind for cause in judgement.causes}.isdisjoint({"worker-threads", "step-threads"})


@pytest.mark.parametrize(("step", "kind"), [(100.0, "consumer-bound"), (12.0, "input-bound")])
def test_threads_of_the_step_that_fight_the_workers_come_first(step: float, kind: str) -> None:
    plan = Plan(operations={"Slow": 8.0}, workers=2, batch_size=4, step=step, cores=2)
    run = cores(plan.run(), (0.5, 0.5, 0.0), (0.25, 0.7, 0.5))
    judgement = judged(run)
    assert judgement.kind == kind
    assert judgement.causes[0].kind == "step-threads"
    assert "OMP_NUM_THREADS=1" in judgement.causes[0].advice
    assert judgement.causes[0].share < judgement.step_share  # part of it remains the step's own


def test_the_number_of_threads_is_what_the_cores_are_enough_for() -> None:
    plan = Plan(operations={"Slow": 1.0}, workers=4, step=100, cores=16)
    judgement = judged(cores(plan.run(), QUIET, (0.42, 0.55, 0.95)))
    assert judgement.causes[0].kind == "step-threads"
    assert "OMP_NUM_THREADS=8" in judgement.causes[0].advice  # 0.42 / (1 - 0.95) cores were had


def test_a_busy_machine_is_said_and_more_workers_are_not_advised() -> None:
    plan = Plan(operations={"Slow": 20.0}, workers=2, cores=4)
    judgement = judged(cores(plan.run(), (0.3, 0.65, 0.0), (0.3, 0.65, 0.0)))
    assert judgement.causes[0].kind == "operation"
    assert "more will not help" in judgement.causes[0].advice
    assert "waited for a core for 65% of its time" in judgement.doubt
    assert "other programs used" not in judgement.doubt  # the machine was not read


@pytest.mark.parametrize(
    ("threads", "workers", "kind"),
    [
        (2, 0, "consumer"),
        (-1, 0, "step-threads"),  # an older run does not say how many there are
        (8, 0, "step-threads"),
        (2, 2, "step-threads"),  # beside workers that compute
    ],
)
def test_threads_that_only_others_keep_from_the_cores_are_left_alone(
    threads: int, workers: int, kind: str
) -> None:
    slow = {"Slow": 0.5 if workers == 0 else 8.0}
    plan = Plan(operations=slow, batches=200, workers=workers, step=100.0, cores=2)
    run = cores(plan.run(), QUIET, (0.4, 0.5, 0.5))
    if workers:
        run.batches["idle_ns"] = 0.0
    keep_two_cores_busy(run)
    run.epochs["torch_threads"] = threads
    assert core_use(scopes(run)[0]).others_share > 0.25
    judgement = judged(run)
    assert judgement.kind == "consumer-bound"
    assert judgement.causes[0].kind == kind
    # What others did to the step is said first.
    assert "the training step waited for a core for 50% of its time" in judgement.doubt
    assert "the threads of a step waited for each other" in judgement.doubt


@pytest.mark.parametrize(("step", "kind"), [(1.0, "input-bound"), (400.0, "consumer-bound")])
def test_threads_that_make_batches_beside_other_programs_are_named_but_accuse_no_loop(
    step: float, kind: str
) -> None:
    """Fewer of them help there, too: a batch waits for all of its threads to get a core."""
    plan = Plan(operations={"Slow": 25.0}, batches=100, workers=0, step=step, cores=2)
    run = cores(plan.run(), (0.2, 0.7, 0.5), QUIET)
    keep_two_cores_busy(run)
    run.epochs["torch_threads"] = 2
    scope = scopes(run)[0]
    assert core_use(scope).others_share > 0.25
    judgement = judged(run)
    assert judgement.kind == kind
    causes = {cause.kind: cause for cause in judgement.causes}
    threads = causes["worker-threads"]
    first = judgement.causes[0].kind
    assert first == ("worker-threads" if kind == "input-bound" else "consumer")
    assert "OMP_NUM_THREADS=1" in threads.advice
    assert "Other programs used" in threads.reason
    # The time without a core is charged to one of the two.
    others = sum(charge.ns for charge in account(scope).charges if charge.kind == "other-programs")
    assert threads.ns + others <= 0.9 * float_column(run.batches, "fetch_ns").sum()
    assert sum(cause.share for cause in judgement.causes) <= 1.0 + 1e-9


def test_a_main_process_that_waits_for_something_else_does_not_wait_for_its_threads() -> None:
    """GIVEN batches of the main process without a core for a third of their time, and blocked for
    most of the rest
    THEN threads are charged with all of it only if it was blocked at locks."""
    charged = {}
    for reason in ("lock", "socket"):
        plan = Plan(operations={"Slow": 25.0}, batches=100, workers=0, step=1.0, cores=2)
        run = cores(plan.run(), (0.2, 0.35, 0.5), QUIET)
        keep_two_cores_busy(run)
        run.epochs["torch_threads"] = 2
        row = {"pid": int(run.batches["pid"].iloc[0]), "worker": -1, "operation": "Slow"}
        run.blocking = pd.DataFrame(
            [row | {"reason": "computing", "looks": 55}, row | {"reason": reason, "looks": 45}]
        )
        charges = account(scopes(run)[0]).charges
        charged[reason] = sum(each.ns for each in charges if each.kind == "worker-threads")
    assert charged["lock"] == pytest.approx(2 * charged["socket"], rel=0.1)


def test_workers_that_idle_as_others_slow_down_the_step_count_by_their_cpu_time() -> None:
    plan = Plan(operations={"Slow": 8.0}, batches=200, workers=2, step=100.0, cores=2)
    run = cores(plan.run(), QUIET, (0.4, 0.5, 0.5))
    keep_two_cores_busy(run)
    run.epochs["torch_threads"] = 2
    run.batches["idle_ns"] = 9 * run.batches["fetch_ns"]
    assert judged(run).causes[0].kind == "step-threads"
    run.batches[["cpu_ns", "process_cpu_ns"]] /= 10
    assert judged(run).causes[0].kind == "consumer"


def test_workers_that_sleep_need_no_cores_beside_the_steps_threads() -> None:
    plan = Plan(operations={"Slow": 8.0}, batches=200, workers=2, step=100.0, cores=2)
    run = cores(plan.run(), (0.02, 0.1, 0.0), (0.4, 0.5, 0.5))
    keep_two_cores_busy(run)
    run.epochs["torch_threads"] = 2
    run.batches["idle_ns"] = 0.0
    assert core_use(scopes(run)[0]).others_share > 0.25
    assert judged(run).causes[0].kind == "consumer"


def test_a_worker_that_others_keep_from_its_core_is_not_slow() -> None:
    plan = Plan(operations={"Slow": 5.0}, workers=3, step=1)
    run = cores(plan.run(), QUIET, QUIET)
    late = run.batches["worker"] == 1
    run.batches.loc[late, "run_delay_ns"] = 4 * run.batches.loc[late, "fetch_ns"]
    run.batches.loc[late, "fetch_ns"] *= 5
    assert "slow-worker" not in {cause.kind for cause in judged(run).causes}
    others = run.batches[["fetch_ns", "run_delay_ns"]].where(~late)
    run.batches.loc[~late, "run_delay_ns"] = run.batches.loc[~late, "fetch_ns"]
    assert "slow-worker" not in {cause.kind for cause in judged(run).causes}
    run.batches.loc[~late, "run_delay_ns"] = others.loc[~late, "run_delay_ns"]
    run.batches.loc[late, "run_delay_ns"] = 0.0
    assert "slow-worker" in {cause.kind for cause in judged(run).causes}


def test_a_start_up_without_cores_gives_way_to_what_had_them() -> None:
    plan = Plan(operations={"Slow": 20.0}, workers=2, spawn=9000.0, cores=4)
    run = cores(plan.run(), (0.3, 0.65, 0.0), QUIET)
    before = judged(run)
    assert (before.kind, before.causes[0].kind) == ("start-up-bound", "start-up")
    run.workers["start_ns"] = run.workers["ready_ns"] - 10e9
    run.workers["startup_delay_ns"] = 9.8e9
    after = judged(run)
    assert (after.kind, after.causes[0].kind) == ("input-bound", "operation")
    # Shares are of what was measured, as before.
    assert after.startup_share == before.startup_share
    assert after.input_share == before.input_share
    shares = [{cause.kind: cause.share for cause in each.causes} for each in (before, after)]
    assert shares[0] == shares[1]
    startup = next(cause for cause in after.causes if cause.kind == "start-up")
    assert startup.title.endswith("(98% of it waiting for a core)")


def test_a_process_that_starts_and_ends_workers_without_cores_is_not_what_holds_up_the_loop() -> (
    None
):
    plan = Plan(operations={"Slow": 20.0}, workers=2, iter=6000.0, shutdown=6000.0, cores=4)
    run = cores(plan.run(), (0.3, 0.65, 0.0), QUIET)
    before = judged(run)
    assert before.kind == "start-up-bound"
    run.epochs["iter_run_delay_ns"] = 0.99 * run.epochs["iter_ns"]
    after = judged(run)
    assert (after.kind, after.causes[0].kind) == ("input-bound", "operation")
    shares = [{cause.kind: cause.share for cause in each.causes} for each in (before, after)]
    assert shares[0] == shares[1]
    # Where no others compete for the cores, what it waited for is the program's own.
    quiet = cores(plan.run(), QUIET, QUIET)
    quiet.epochs["iter_run_delay_ns"] = 0.99 * quiet.epochs["iter_ns"]
    assert judged(quiet).kind == "start-up-bound"


def test_on_a_busy_machine_a_cause_is_gone_with_its_time_without_a_core() -> None:
    plan = Plan(operations={"Slow": 20.0}, batches=100, workers=1, step=20.0, cores=4)
    first = judged(cores(plan.run(), (0.4, 0.6, 0.0), QUIET)).causes[0]
    assert first.kind == "operation"
    assert first.delay_ns == pytest.approx(1.5 * first.ns, rel=0.01)
    assert first.gain == pytest.approx(1 / (1 - 2.5 * first.share), rel=0.01)
    quiet = judged(cores(plan.run(), QUIET, QUIET)).causes[0]
    assert quiet.delay_ns == 0.0
    assert first.gain == pytest.approx(quiet.gain, rel=0.1)


def test_a_step_that_waits_is_told_from_one_that_computes() -> None:
    plan = Plan(step=40.0, batches=60)
    waits = judged(cores(plan.run(), QUIET, (0.5, 0.1, 0.0))).causes[0]
    assert (waits.kind, waits.title) == ("consumer", "the training step, which partly waits")
    assert waits.evidence["waiting_share"] == pytest.approx(0.4)
    assert "at least 40% of the time between batches the main process waits" in waits.advice
    assert "at least 40% of that time, no thread" in waits.reason
    run = cores(plan.run(), QUIET, (0.5, 0.1, 0.0))
    looks = [("(step)", "computing", 60), ("(step)", "storage", 30), ("(next)", "sleep", 90)]
    run.blocking = pd.DataFrame(looks, columns=["operation", "reason", "looks"])
    run.blocking = run.blocking.assign(pid=1, worker=-1)
    stored = judged(run).causes[0]
    assert stored.title == "the training step, which partly waits for storage"
    assert stored.evidence["looks"] == 90
    # Most of the time, if it is most.
    mostly = judged(cores(plan.run(), QUIET, (0.2, 0.1, 0.0))).causes[0]
    assert mostly.title == "the training step, which mostly waits"
    # AND not where it was found running: a hypervisor took the time that is missing.
    run.blocking["looks"] = [60, 3, 90]
    taken = judged(run).causes[0]
    assert taken.title == "the training step"
    assert taken.evidence["waiting_share"] == pytest.approx(3 / 63)
    # A step whose helper threads compute while it is blocked waits for them.
    for step in (QUIET, (0.5, 0.1, 0.5)):
        first = judged(cores(plan.run(), QUIET, step)).causes[0]
        assert "waits" not in first.title + first.advice + first.reason


def test_the_feeder_thread_of_a_worker_is_no_helper_of_its_fetch() -> None:
    plan = Plan(workers=2, batches=60, operations={"Slow": 10.0}, pickle=30.0, write=10.0)
    run = cores(plan.run(), (0.5, 0.4, 0.5), QUIET)
    assert core_use(scopes(run)[0]).fetch.helper_share < 0.1
    run.batches[["pickle_ns", "write_ns"]] = 0.0
    assert core_use(scopes(run)[0]).fetch.helper_share == pytest.approx(0.5, abs=0.01)


def test_cores_are_what_the_processes_may_use_themselves() -> None:
    run = Plan(operations={"Slow": 20.0}, workers=2, cores=8).run()
    run.epochs["cpus"] = "3"
    run.workers["cpus"] = "3"
    assert scopes(run)[0].cores == 1
    assert "share 1 core:" in judged(run).causes[0].advice
    run.workers["cpus"] = ["0-1,5", "2"]
    assert scopes(run)[0].cores == 5
    run.workers["cpus"] = run.epochs["cpus"] = ""
    assert scopes(run)[0].cores == 8


def test_a_worker_without_data_is_said_and_no_more_are_advised() -> None:
    run = Plan(operations={"Slow": 20.0}, workers=3, cores=8).run()
    run.loaders["num_workers"] = 5
    assert "Raise num_workers" in judged(run).causes[0].advice
    run.loaders["dataset_kind"] = "iterable"
    first = judged(run).causes[0]
    assert (first.kind, first.title) == ("starved-workers", "2 of the 5 workers have no data")
    assert "More workers will not help" in first.advice


def test_workers_without_data_come_before_the_slow_samples_of_those_that_have_some() -> None:
    def slow(index: int, worker: int) -> float:
        return 300.0 if index % 53 == 20 else 0.1

    run = Plan(operations={"Read": slow}, workers=1, batches=60, cores=8).run()
    run.loaders["dataset_kind"] = "iterable"
    assert judged(run).causes[0].kind == "slow-samples"
    run.loaders["num_workers"] = 4
    first = judged(run).causes[0]
    assert (first.kind, first.title) == ("starved-workers", "3 of the 4 workers have no data")


def test_what_other_programs_take_comes_last_and_makes_no_loop_input_bound() -> None:
    plan = Plan(operations={"Slow": 20.0}, batch_size=4, batches=100, step=76.0, workers=1, cores=4)
    judgement = judged(cores(plan.run(), (0.3, 0.65, 0.0), QUIET))
    assert judgement.input_share > 0.05
    assert judgement.kind == "consumer-bound"
    others = [cause for cause in judgement.causes if cause.kind == "other-programs"]
    assert len(others) == 1
    assert others[0].share > 0.6 * judgement.input_share
    assert "without the time that other programs took" in judgement.summary
    slow = judged(cores(Plan(operations={"Slow": 20.0}, cores=4).run(), (0.3, 0.65, 0.0), QUIET))
    assert slow.causes[0].kind == "operation"
    assert "other-programs" in {cause.kind for cause in slow.causes}


def test_a_program_that_may_use_few_of_the_cores_is_told_so() -> None:
    plan = Plan(operations={"Slow": 20.0}, workers=4, cores=2)
    run = cores(plan.run(), (0.45, 0.55, 0.0), QUIET)
    assert "affinity" not in {cause.kind for cause in judged(run).causes}
    run.manifest["cpu"]["logical"] = 16
    first = judged(run).causes[0]
    assert (first.kind, "2 of the machine's 16 cores" in first.title) == ("affinity", True)
    assert "(also in worker_init_fn)" in first.advice
    assert "More workers will not help" in first.advice
    assert "quota" not in first.reason  # nobody read whether one held it back
    run.machine = during(run, throttled_ns=[1e9, 6e9])
    assert "throttled threads for 5.00 s" in judged(run).causes[0].reason


def test_a_program_without_workers_is_told_nothing_of_those_it_has() -> None:
    run = cores(Plan(operations={"Slow": 20.0}, workers=0, cores=2).run(), (0.45, 0.55, 0.0), QUIET)
    run.manifest["cpu"]["logical"] = 16
    for name in ("wait", "step"):  # it keeps both cores busy
        run.waits[f"{name}_process_cpu_ns"] = 2.0 * run.waits[f"{name}_ns"]
    first = judged(run).causes[0]
    assert first.kind == "affinity"
    assert "worker_init_fn" not in first.advice
    assert "More workers" not in first.advice


def during(run: SimpleNamespace, **counters: list[float]) -> pd.DataFrame:
    """Readings of the machine at the begin of the first loop and at the end of the last one."""
    times = [run.epochs["start_ns"].min(), run.epochs["end_ns"].max()]
    return pd.DataFrame({"time_ns": times} | counters)


def test_memory_that_was_full_is_said_whatever_the_causes() -> None:
    run = Plan(operations={"Slow": 20.0}, cores=2).run()
    assert not judged(run).flaws
    loop = float((run.epochs["end_ns"] - run.epochs["start_ns"]).sum())
    run.machine = during(run, swapped_bytes=[0, 3e9], memory_stall_ns=[0, 0.3 * loop])
    (flaw,) = judged(run).flaws
    assert "2.79 GiB were swapped in and out" in flaw
    assert "waited for memory for 30% of the time" in flaw
    # not where much of the machine's or the cgroup's memory was left: others wait for it then
    full, run.manifest["memory_bytes"] = run.machine, 64e9
    for left, limit, told in ((22e9, 0, 0), (2e9, 0, 1), (2e9, 4e9, 0), (2e9, 40e9, 1), (-1, 0, 1)):
        run.machine = full.assign(available_bytes=left, memory_limit_bytes=limit)
        assert len(judged(run).flaws) == told
    # however small the workers are
    columns = {"pid": run.batches["pid"].iloc[0], "worker": 0, "private": [1e6], "shared": 0.0}
    run.memory = pd.DataFrame(columns).assign(time_ns=full["time_ns"].iloc[0], anonymous=0.0)
    run.machine = full.assign(available_bytes=100e6, memory_limit_bytes=0)
    assert len(judged(run).flaws) == 1
    run.machine = during(run, swapped_bytes=[5e9, 5e9 + 1e6], memory_stall_ns=[-1, -1])
    assert not judged(run).flaws
    before = float(run.epochs["start_ns"].min())
    run.machine = pd.DataFrame(  # swapped before the loop, as another program was started
        {"time_ns": [before - 2e9, before, before + 1e12], "swapped_bytes": [0, 3e9, 3e9]}
    )
    assert not judged(run).flaws


def test_no_share_of_a_time_is_more_than_all_of_it() -> None:
    run = cores(Plan(operations={"Slow": 20.0}, cores=4).run(), (0.3, 1.6, 0.0), QUIET)
    assert core_use(scopes(run)[0]).fetch.delay_share == 1.0


def test_a_feeder_thread_beside_samples_that_wait_is_no_helper() -> None:
    run = cores(Plan(operations={"Ask": 20.0}, cores=2).run(), (0.02, 0.3, 0.4), QUIET)
    assert not core_use(scopes(run)[0]).fetch.crowded
    assert judged(run).causes[0].kind == "operation"


def test_what_others_took_of_the_main_process_is_charged_once() -> None:
    plan = Plan(operations={"Slow": 5.0}, pickle=10, batches=100, workers=2, cores=8, step=1)
    run = cores(plan.run(), (0.3, 0.6, 0.0), QUIET)
    run.waits["wait_run_delay_ns"] = 0.3 * run.waits["wait_ns"]
    charged = account(scopes(run)[0])
    assert "other-programs" in {charge.kind for charge in charged.charges}
    assert sum(charge.ns for charge in charged.charges) == pytest.approx(charged.loop_ns, rel=1e-6)
