"""Loops on cores that other programs have: what these take is no cause of the program's own."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.machine.core_use import core_use
from lotus.analysis.samples.slow_batches import slow_as_a_whole
from lotus.analysis.verdict.account import Account, account
from lotus.analysis.verdict.causes.cause_row import Evidence
from lotus.analysis.verdict.causes.cores.step_threads import STEP_THREADS
from lotus.analysis.verdict.verdict import Verdict, verdict
from lotus.reporters.run.parts import coverage
from tests.unit.simulated import Plan


def busy(plan: Plan, delay: float, send_bytes: int = 400, receiving: float = 0.1) -> Verdict:
    """The verdict on `on_busy_cores`."""
    return verdict(scopes(on_busy_cores(plan, delay, send_bytes, receiving))[0])


def on_busy_cores(
    plan: Plan, delay: float, send_bytes: int = 400, receiving: float = 0.1
) -> SimpleNamespace:
    """A run where batches were made without a core for this share of their time, and the main
    process was on one for `receiving` of its waits."""
    run: SimpleNamespace = plan.run()
    run.manifest["cpu"] = {"logical": 4, "available": 4}
    fetch = run.batches["fetch_ns"]
    run.batches["run_delay_ns"] = (fetch * delay).astype(np.int64)
    run.batches["cpu_ns"] = run.batches["process_cpu_ns"] = fetch - run.batches["run_delay_ns"]
    run.batches["send_bytes"] = send_bytes
    for part in ("wait", "step"):
        run.waits[f"{part}_run_delay_ns"] = 0
        for name in ("cpu", "process_cpu"):
            on_core = receiving if part == "wait" else 0.1
            run.waits[f"{part}_{name}_ns"] = (run.waits[f"{part}_ns"] * on_core).astype(np.int64)
    return run


def used_by_others(run: SimpleNamespace) -> SimpleNamespace:
    """The run, where the machine was full: what the program left, others used."""
    begin, end = float(run.epochs["start_ns"].min()) - 1e9, float(run.epochs["end_ns"].max()) + 1e9
    times = {"time_ns": [begin, end], "busy_ns": [0.0, 4 * (end - begin)]}
    run.machine = pd.DataFrame(times).assign(idle_ns=0.0, stolen_ns=0.0)
    return run


def test_without_workers_others_take_as_much_of_the_step() -> None:
    # GIVEN a loop that makes its batches itself, and waits for them in two thirds of its time
    plan = Plan(workers=0, batches=200, step=8.0, operations={"Read": 4.0}, collate=0.0)
    run = on_busy_cores(plan, delay=0.75)
    alone = verdict(scopes(run)[0])
    # WHEN others had the cores for three quarters of both its making and its steps
    run.waits["step_run_delay_ns"] = (0.75 * run.waits["step_ns"]).astype(np.int64)
    judged = verdict(scopes(used_by_others(run))[0])
    # THEN as much of what they left is waits, and the list says what they took of both
    assert judged.input_share == alone.input_share == pytest.approx(2 / 3, abs=0.05)
    _, _, waits = judged.summary.partition("waits for data ")
    left = (
        waits.partition(" other programs took, ")[2] or waits
    )  # said once where both are the same
    assert int(left.split("%")[0]) / 100 == pytest.approx(judged.input_share, abs=0.03)
    shares = {cause.kind: cause.share for cause in judged.causes}
    assert shares["other-programs"] == pytest.approx(0.75, abs=0.03)
    assert shares["consumer"] == pytest.approx(0.25 * judged.step_share, abs=0.01)
    assert sum(shares.values()) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(("making", "delay"), [(0.105, 0.7), (0.2, 0.7)])
def test_what_the_degree_is_judged_by_is_said(making: float, delay: float) -> None:
    plan = Plan(workers=0, batches=200, step=40.0, operations={"Read": 1.8}, collate=0.0)
    run = on_busy_cores(plan, making)
    run.waits["step_run_delay_ns"] = (delay * run.waits["step_ns"]).astype(np.int64)
    judged = verdict(scopes(used_by_others(run))[0])
    assert judged.degree == "highly"
    left = judged.summary.partition(" other programs took, ")[2]
    assert int(left.split("%")[0]) > 20


def test_what_others_took_of_the_steps_is_listed_where_they_took_nothing_else() -> None:
    plan = Plan(workers=0, batches=200, step=8.0, operations={"Read": 4.0}, collate=0.0)
    run = on_busy_cores(plan, delay=0.75)
    run.waits["step_run_delay_ns"] = (0.75 * run.waits["step_ns"]).astype(np.int64)
    # The threads that make batches lack the cores, and so wait for each other.
    run.batches["process_cpu_ns"] = 3 * run.batches["cpu_ns"]
    judged = verdict(scopes(used_by_others(run))[0])
    shares = {cause.kind: cause.share for cause in judged.causes}
    assert judged.causes[0].kind == "worker-threads"
    assert shares["other-programs"] == pytest.approx(0.75 * judged.step_share, abs=0.03)
    assert sum(shares.values()) == pytest.approx(1.0, abs=0.01)


def test_what_threads_took_of_a_step_is_not_taken_again() -> None:
    # GIVEN steps in several threads that are without a core for two fifths of their time
    plan = Plan(workers=0, batches=200, step=20.0, operations={"Read": 4.0}, collate=0.0)
    run = on_busy_cores(plan, delay=0.4)
    run.waits["step_run_delay_ns"] = (0.4 * run.waits["step_ns"]).astype(np.int64)
    run.waits["step_process_cpu_ns"] = 4 * run.waits["step_cpu_ns"]
    loop_account = account(scopes(used_by_others(run))[0])
    # THEN the step itself, of which the threads have taken more than that, has no more to give
    charges = {charge.kind: charge for charge in loop_account.charges}
    threads = charges["step-threads"]
    assert threads.ns > 0.4 * loop_account.step_ns
    assert charges["consumer"].taken_ns == 0.0
    # How much others used stands beside it.
    others = loop_account.use.others_share
    assert STEP_THREADS.reason(Evidence(threads.evidence)).endswith(
        f"Other programs used {others:.0%} of the cores."
    )
    # Without such threads all of it is the step's.
    run.waits["step_process_cpu_ns"] = run.waits["step_cpu_ns"]
    (step,) = (charge for charge in account(scopes(run)[0]).charges if charge.kind == "consumer")
    assert step.taken_ns == pytest.approx(0.4 * loop_account.step_ns, rel=1e-6)


def test_a_step_of_which_no_delay_is_known_has_none_taken() -> None:
    plan = Plan(workers=0, batches=200, step=8.0, operations={"Read": 4.0}, collate=0.0)
    run = used_by_others(on_busy_cores(plan, delay=0.6))
    run.waits = run.waits.drop(columns="step_run_delay_ns")
    judged = verdict(scopes(run)[0])
    assert judged.kind == "input-bound"
    assert "nan" not in judged.summary


def test_threads_of_a_step_are_charged_with_the_program_s_part_of_their_delay() -> None:
    # GIVEN steps in two threads that lack cores as much as the making of batches does
    plan = Plan(batches=200, step=4.0, operations={"Read": 4.0}, collate=0.0)
    run = on_busy_cores(plan, delay=0.6)
    run.waits["step_run_delay_ns"] = (0.6 * run.waits["step_ns"]).astype(np.int64)
    run.waits["step_process_cpu_ns"] = 2 * run.waits["step_cpu_ns"]
    # WHEN others use most of the cores
    first, *more = verdict(scopes(used_by_others(run))[0]).causes
    # THEN it is the making that comes first
    shares = {cause.kind: cause.share for cause in (first, *more)}
    assert first.kind == "operation"
    assert 0 < shares["step-threads"] < first.share


def test_late_batches_are_owed_to_others_also_where_making_them_had_its_cores() -> None:
    # GIVEN batches of a few bytes that arrive late, and fetches that had cores
    plan = Plan(batches=200, step=12.0, unpickle=6.0, operations={"Read": 0.5})
    run = on_busy_cores(plan, delay=0.02)
    run.waits["wait_run_delay_ns"] = 0.2 * run.waits["wait_ns"]
    alone = verdict(scopes(run)[0])
    assert (alone.kind, alone.causes[0].kind) == ("input-bound", "send")
    # WHEN other programs are known to have used the cores
    scope = scopes(used_by_others(run))[0]
    judged = verdict(scope)
    # THEN what neither bytes nor CPU time account for is theirs, and nothing is left over
    shares = {cause.kind: cause.share for cause in judged.causes}
    assert shares["other-programs"] > shares["send"]
    assert "unseen" not in shares
    others = next(cause for cause in judged.causes if cause.kind == "other-programs")
    assert others.reason.startswith("Batches that were ready arrived later than")
    loop_account = account(scope)
    assert sum(charge.ns for charge in loop_account.charges) == pytest.approx(
        loop_account.loop_ns, rel=1e-6
    )


def test_without_workers_others_are_owed_what_next_lacked_beside_the_making() -> None:
    # GIVEN a loop that makes its batches itself, whose `next` takes 6 ms beside the making
    plan = Plan(workers=0, batches=200, step=20.0, sampler=6.0, operations={"Read": 0.5})
    run = on_busy_cores(plan, delay=0.5)
    making = run.batches["run_delay_ns"].to_numpy()
    run.waits["wait_run_delay_ns"] = making
    alone = verdict(scopes(used_by_others(run))[0])
    assert (alone.kind, alone.causes[0].kind) == ("input-bound", "main-process")
    # WHEN nearly all of that was ready to run, without a core
    run.waits["wait_run_delay_ns"] = making + 5_800_000
    loop_account = account(scopes(run)[0])
    # THEN others took it, and the list still adds up
    shares = {charge.kind: charge.ns / loop_account.loop_ns for charge in loop_account.charges}
    assert shares["main-process"] < 0.02
    assert shares["other-programs"] > 0.15
    assert sum(shares.values()) == pytest.approx(1.0, rel=1e-6)


def test_sending_of_a_few_bytes_that_takes_long_had_no_core() -> None:
    plan = Plan(batches=200, step=4.0, pickle=60, operations={"Read": 0.5})
    assert busy(plan, delay=0.0).causes[0].kind == "send"
    judged = busy(plan, delay=0.9)
    shares = {cause.kind: cause.share for cause in judged.causes}
    assert shares["other-programs"] > 5 * shares.get("send", 0.0)
    # The main process computed while it received them: many small tensors.
    judged = busy(plan, delay=0.9, receiving=0.6)
    first = judged.causes[0]
    assert first.kind == "send"
    assert 0.4 < first.share < 0.7
    # Megabytes through a pipe take as long with a core.
    assert busy(plan, delay=0.9, send_bytes=4_000_000).causes[0].kind == "send"


def test_a_larger_prefetch_factor_is_to_be_tried_and_promised_at_most() -> None:
    read = {"Read": lambda sample, _: 40.0 if (sample // 4) % 48 >= 40 else 0.5}
    plan = Plan(operations=read, step=20.0, batches=192, prefetch=1)
    judged = busy(plan, delay=0.0)
    assert judged.causes[0].advice.startswith("Raise prefetch_factor from 1 to")
    assert not coverage.gain_words(judged.causes[0], judged).startswith("at ")
    judged = busy(plan, delay=0.3)
    first = next(cause for cause in judged.causes if cause.kind == "prefetch")
    assert first.advice.startswith("Try to raise prefetch_factor from 1 to")
    assert "smaller, or none, while other programs use the cores" in first.advice
    assert coverage.gain_words(first, judged).startswith("at most ")
    assert not first.remedy.expected.is_possible


def test_start_up_is_held_against_other_waits_without_what_others_took() -> None:
    plan = Plan(batches=300, step=1.0, iter=1500, operations={"Read": 20.0})
    judged = busy(plan, delay=0.97)
    assert judged.kind == "input-bound"
    assert judged.causes[0].kind == "operation"


def test_sending_counts_without_what_others_took_of_it() -> None:
    # GIVEN samples that are costlier than the sending, of which others took most of the time
    plan = Plan(batches=200, step=1.0, pickle=0.1, unpickle=1.0, operations={"Read": 1.0})
    first, second = busy(plan, delay=0.7).causes[:2]
    # THEN they come first, though what is left of them is less
    assert (first.kind, second.kind) == ("operation", "send")
    assert first.share < second.share


def test_batches_that_are_slow_as_a_whole_are_found_beside_other_programs() -> None:
    # GIVEN three batches whose samples all take 40 ms, on cores that others have most of the time
    slow = (12, 21, 30)
    took = {"Read": lambda sample, _: 40.0 if sample // 4 in slow else 2.0}
    plan = Plan(batches=40, operations=took, step=6.0)
    alone = verdict(scopes(plan.run())[0]).causes[0]
    scope = scopes(on_busy_cores(plan, delay=0.85))[0]
    first, *more = verdict(scope).causes
    # THEN what the same batches were without a core is charged to the others, and to nothing else
    assert (first.kind, first.evidence["batches"]) == (alone.kind, 3) == ("slow-batches", 3)
    charges = {cause.kind: cause.ns for cause in more} | {first.kind: first.ns}
    assert first.delay_ns > 3 * first.ns
    assert first.delay_ns <= charges["other-programs"]
    assert charges.get("operation", 0.0) < 0.2 * first.ns
    # AND on cores of its own the loop would gain as much as it does without them
    assert first.gain == pytest.approx(alone.gain, rel=0.15)
    loop_account = account(scope)
    assert sum(charge.ns for charge in loop_account.charges) == pytest.approx(
        loop_account.loop_ns, rel=1e-6
    )


@pytest.mark.parametrize(("helpers", "told"), [(0.5, False), (0.0, True)])
def test_batches_whose_threads_spin_without_cores_are_not_slow_as_a_whole(
    helpers: float, told: bool
) -> None:
    # GIVEN a few batches of which every sample took far longer, for less than half of it ready to
    # run without a core
    slow = {9, 10, 21, 22}
    cost = {"Read": lambda sample, _: 60.0 if sample // 4 in slow else 2.0}
    run = Plan(workers=0, batches=60, operations=cost).run()
    batches = run.batches
    late = batches["batch"].isin(slow)
    batches["run_delay_ns"] = batches["fetch_ns"] * np.where(late, 0.55, 0.05)
    batches["cpu_ns"] = batches["fetch_ns"] - batches["run_delay_ns"]
    batches["process_cpu_ns"] = batches["cpu_ns"] / (1 - helpers)
    found = slow_as_a_whole(scopes(run)[0]).whole
    assert set(batches["batch"][found]) == (slow if told else set())


def test_what_more_prefetch_saves_is_charged_without_what_others_took() -> None:
    # GIVEN bursts of costly batches, a third of their time without a core
    def bursts(sample: int, worker: int) -> float:
        return 40.0 if (sample // 4) % 48 >= 40 else 0.5

    plan = Plan(operations={"Read": bursts}, step=20.0, batches=192, prefetch=1)
    alone = account(scopes(on_busy_cores(plan, 0.0))[0])
    beside = account(scopes(used_by_others(on_busy_cores(plan, 1 / 3)))[0])

    def ns(loop_account: Account, kind: str) -> float:
        return sum(charge.ns for charge in loop_account.charges if charge.kind == kind)

    # THEN two thirds of what is owed to the prefetch factor otherwise are, and others have the rest
    assert ns(beside, "prefetch") == pytest.approx(2 / 3 * ns(alone, "prefetch"), rel=0.02)
    assert ns(beside, "other-programs") == pytest.approx(ns(alone, "prefetch") / 3, rel=0.1)
    assert sum(charge.ns for charge in beside.charges) == pytest.approx(beside.loop_ns)


def with_stolen(run: SimpleNamespace, stolen: float, used: float) -> SimpleNamespace:
    """The run, where the hypervisor withheld `stolen` of the cores' time, and somebody `used`."""
    begin, end = float(run.epochs["start_ns"].min()) - 1e9, float(run.epochs["end_ns"].max()) + 1e9
    whole = 4 * (end - begin)
    run.machine = pd.DataFrame(
        {"time_ns": [begin, end], "busy_ns": [0.0, used * whole],
         "idle_ns": [0.0, (1 - used - stolen) * whole], "stolen_ns": [0.0, stolen * whole]}
    )  # fmt: skip
    return run


def test_what_the_hypervisor_withheld_is_told_from_other_programs() -> None:
    plan = Plan(workers=0, batches=200, step=8.0, operations={"Read": 4.0}, collate=0.0)
    run = with_stolen(on_busy_cores(plan, delay=0.6), stolen=0.4, used=0.3)
    scope = scopes(run)[0]
    use = core_use(scope)
    assert use.stolen_share == pytest.approx(0.4, abs=0.01)
    assert use.programs_share == pytest.approx(use.others_share - 0.4, abs=0.01)
    judged = verdict(scope)
    (line,) = (line for line in judged.flaws if "hypervisor" in line)
    assert "40% of the cores' time" in line
    assert f"other programs used ({use.programs_share:.0%})" in line
    assert "the hypervisor withheld 40%" in judged.doubt
    (others,) = (cause for cause in judged.causes if cause.kind == "other-programs")
    assert others.title == "the hypervisor withholds cores (steal time)"
    assert "the hypervisor withheld 40%" in others.reason
    assert "does not share its cores" in others.advice


def test_little_steal_is_not_told() -> None:
    plan = Plan(workers=0, batches=200, step=8.0, operations={"Read": 4.0}, collate=0.0)
    judged = verdict(scopes(with_stolen(on_busy_cores(plan, delay=0.6), 0.02, 0.7))[0])
    (others,) = (cause for cause in judged.causes if cause.kind == "other-programs")
    for text in (*judged.flaws, judged.doubt, others.title, others.reason, others.advice):
        assert "hypervisor" not in text


def test_steal_is_told_where_nothing_waits_for_a_core() -> None:
    plan = Plan(batches=200, operations={"Read": 20.0})
    judged = verdict(scopes(with_stolen(on_busy_cores(plan, delay=0.0), 0.05, 0.4))[0])
    assert judged.doubt == ""
    assert any("hypervisor withheld 5%" in line for line in judged.flaws)
