"""Steps that lose time to what workers compute: one cause with the waits for it."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.machine.core_use import core_use
from lotus.analysis.verdict.account import account
from lotus.analysis.verdict.verdict import Verdict, verdict
from tests.unit.simulated import Plan

STEP_MS = 20.0


def full(helpers: float, of_workers: float, slow: float = 50.0, parts: int = 1) -> SimpleNamespace:
    """Two workers and a step that keep two cores busy; the step waits for one half of its time.

    `helpers`, `of_workers`: cores that the step's other threads and the workers use. `slow`: ms a
    sample, in so many operations.
    """
    names = ["Slow", *(f"Slow{part}" for part in range(1, parts))]
    plan = Plan(
        operations=dict.fromkeys(names, slow / parts), workers=2, step=STEP_MS, batches=80, cores=2
    )
    run = plan.run()
    batches, waits = run.batches, run.waits
    loop = float(waits["wait_ns"].sum() + waits["step_ns"].sum())
    waits["step_cpu_ns"] = 0.4 * waits["step_ns"]
    waits["step_run_delay_ns"] = 0.5 * waits["step_ns"]
    waits["step_process_cpu_ns"] = waits["step_cpu_ns"] + helpers * loop / len(waits)
    for name in ("cpu_ns", "run_delay_ns", "process_cpu_ns"):
        waits[f"wait_{name}"] = 0.0
    batches["process_cpu_ns"] = of_workers * loop / len(batches)
    batches["cpu_ns"] = np.minimum(batches["process_cpu_ns"], batches["fetch_ns"])
    batches["run_delay_ns"] = 0.05 * batches["fetch_ns"]
    return run


def judged(run: SimpleNamespace) -> Verdict:
    return verdict(scopes(run)[0])


@pytest.mark.parametrize(("helpers", "of_workers", "first"), [(0.3, 1.2, "Slow"), (1.2, 0.3, "")])
def test_steps_lose_time_to_whoever_uses_more_of_the_cores(
    helpers: float, of_workers: float, first: str
) -> None:
    run = full(helpers, of_workers, slow=11.0)
    judgement = judged(run)
    assert judgement.kind == "input-bound"
    cause = judgement.causes[0]
    if first:
        assert cause.title == first
        assert cause.evidence["lost_steps_ns"] > 0
        assert "that the steps lost, as it used their cores." in cause.reason
        left = {each.kind: each.share for each in judgement.causes}["step-threads"]
        assert left < cause.share
    else:
        assert cause.kind == "step-threads"
        assert not any("lost_steps_ns" in each.evidence for each in judgement.causes)


@pytest.mark.parametrize("parts", [1, 3])
def test_waits_of_many_small_causes_count_with_what_steps_lose_to_these(parts: int) -> None:
    judgement = judged(full(helpers=0.3, of_workers=1.2, slow=11.0, parts=parts))
    assert 0.1 < judgement.input_share < 0.15
    assert judgement.kind == "input-bound"
    slow = [cause.share for cause in judgement.causes if cause.title.startswith("Slow")]
    assert len(slow) == parts
    assert sum(slow) > 0.5


def test_nothing_is_lost_or_charged_twice() -> None:
    run = full(helpers=0.3, of_workers=1.2, slow=24.0)
    loop_account = account(scopes(run)[0])
    assert sum(charge.ns for charge in loop_account.charges) == pytest.approx(
        loop_account.loop_ns, rel=1e-6
    )
    (work,) = (charge for charge in loop_account.charges if charge.name == "Slow")
    assert work.step_ns == pytest.approx(work.evidence["lost_steps_ns"])
    assert work.by_batch is not None
    assert work.by_batch.sum() == pytest.approx(work.ns, rel=1e-6)


def test_where_batches_are_not_waited_for_the_step_s_loss_is_its_own() -> None:
    run = full(helpers=0.3, of_workers=1.2, slow=1.0)
    judgement = judged(run)
    assert judgement.kind == "consumer-bound"
    assert "step-threads" in {cause.kind for cause in judgement.causes[:2]}
    assert not any("lost_steps_ns" in each.evidence for each in judgement.causes)


def test_threads_that_wait_busily_in_next_have_a_part_of_what_steps_lose() -> None:
    shares = []
    for spinning in (0.0, 0.4):
        run = full(helpers=0.3, of_workers=1.2, slow=11.0)
        loop = float(run.waits["wait_ns"].sum() + run.waits["step_ns"].sum())
        run.waits["wait_process_cpu_ns"] = spinning * loop / len(run.waits)
        run.epochs["torch_threads"], run.epochs["threads"] = 2, 0
        judgement = judged(run)
        assert judgement.causes[0].title == "Slow"
        shares.append({each.kind: each.share for each in judgement.causes}["step-threads"])
    # 0.3 of 1.5 cores, then 0.7 of 1.9.
    assert shares[1] / shares[0] == pytest.approx((0.7 / 1.9) / (0.3 / 1.5), rel=0.05)


def test_threads_of_workers_have_what_steps_lose_to_them() -> None:
    run = full(helpers=0.3, of_workers=1.3, slow=11.0)
    batches = run.batches
    batches["cpu_ns"] = 0.2 * batches["process_cpu_ns"]
    batches["run_delay_ns"] = 0.4 * batches["fetch_ns"]
    run.workers["torch_threads"] = 8
    judgement = judged(run)
    first = judgement.causes[0]
    assert first.kind == "worker-threads"
    assert first.evidence["lost_steps_ns"] > 0
    left = {each.kind: each.share for each in judgement.causes}.get("step-threads", 0.0)
    assert left < 0.3 * first.share


def hardly_waits(of_workers: float = 0.6) -> SimpleNamespace:
    """A step in two threads, which hides what two workers do, and lacks the cores they use."""
    run = full(helpers=0.5, of_workers=of_workers, slow=2.0)
    run.waits["wait_process_cpu_ns"] = 1000.0
    run.epochs["torch_threads"], run.epochs["threads"] = 2, 0
    return run


def test_steps_that_lose_more_to_the_workers_than_to_their_threads_are_not_the_cause() -> None:
    judgement = judged(hardly_waits())
    assert judgement.kind == "consumer-bound"
    assert judgement.input_share < 0.05
    first, shares = judgement.causes[0], {each.kind: each.share for each in judgement.causes}
    assert first.title == "Slow"
    assert first.evidence["lost_steps_ns"] > 0.9 * first.ns
    # As the gains: 2.2 times as fast without that work, and 1.4 times with one thread.
    assert shares["step-threads"] == pytest.approx(
        (first.share + shares["step-threads"]) * 0.3 / (0.3 + 0.55), rel=0.15
    )
    assert judgement.step_lacks_cores
    assert "because the making of batches uses cores that the training step needs" in (
        judgement.summary
    )


def computes_in_more_threads_than_there_are_cores(run: SimpleNamespace) -> None:
    run.epochs["torch_threads"] = 8


def has_other_threads(run: SimpleNamespace) -> None:
    run.epochs["threads"] = 1


@pytest.mark.parametrize(
    "change", [computes_in_more_threads_than_there_are_cores, has_other_threads]
)
def test_its_threads_are_the_cause_of_a_step_that(
    change: Callable[[SimpleNamespace], None],
) -> None:
    run = hardly_waits()
    change(run)
    judgement = judged(run)
    assert judgement.causes[0].kind == "step-threads"
    assert not any("lost_steps_ns" in each.evidence for each in judgement.causes)


def with_free_steps(run: SimpleNamespace, every: int = 4) -> SimpleNamespace:
    """Every so many steps lack no core, and take 1 ms of it alone."""
    free = np.arange(len(run.waits)) % every == 0
    run.waits.loc[free, ["step_ns", "step_cpu_ns", "step_process_cpu_ns"]] = 1e6
    run.waits.loc[free, "step_run_delay_ns"] = 0.0
    return run


def test_what_a_step_takes_that_lacks_no_core_is_what_it_needs() -> None:
    """GIVEN steps whose threads use more of the cores than workers do, as they wait for each other,
    while a few steps lack no core and take far less
    THEN what all others take beyond these is lost to the work that workers do."""
    waiting = full(helpers=0.9, of_workers=0.6, slow=11.0)
    assert judged(waiting).causes[0].kind == "step-threads"
    first = judged(with_free_steps(waiting)).causes[0]
    assert first.title.startswith("Slow")
    lost = float((waiting.waits["step_ns"] - 1e6).clip(lower=0).sum())
    assert first.evidence["lost_steps_ns"] == pytest.approx(lost, rel=0.1)


def test_few_steps_that_lack_no_core_tell_nothing() -> None:
    rare = with_free_steps(full(helpers=0.9, of_workers=0.6, slow=11.0), every=20)
    assert judged(rare).causes[0].kind == "step-threads"


def test_steps_lose_to_workers_also_beside_other_programs() -> None:
    """GIVEN others that use two fifths of the cores, and the program the rest
    THEN what its steps lose is divided in the same way as without others."""
    run = with_free_steps(full(helpers=0.5, of_workers=0.3, slow=11.0))
    loop = float(run.waits["wait_ns"].sum() + run.waits["step_ns"].sum())
    run.epochs["end_ns"] = run.epochs["start_ns"] + loop
    begin, end = float(run.epochs["start_ns"].min()) - 1e9, float(run.epochs["end_ns"].max()) + 1e9
    run.machine = pd.DataFrame(
        {
            "time_ns": [begin, end],
            "busy_ns": [0.0, 2.0 * (end - begin)],
            "stolen_ns": 0.0,
            "idle_ns": [1.0, 1.0],
        }
    )
    use = core_use(scopes(run)[0])
    assert 0.3 < use.own_share < 0.7
    assert use.all_used
    first = judged(run).causes[0]
    assert first.title.startswith("Slow")
    assert first.evidence["lost_steps_ns"] > 0


def test_steps_also_lose_to_the_process_that_the_workers_ask() -> None:
    """GIVEN workers that wait for most of their time for a process that the program keeps, whose
    answers take more of the cores than the threads of the steps
    THEN what steps lose to it is part of the asking."""
    run = full(helpers=0.5, of_workers=0.3, slow=11.0)
    main = {"pid": int(run.waits["pid"].iloc[0]), "worker": -1, "cpu_ns": 0}
    run.children = pd.DataFrame([main | {"own_ns": 1e9, "own_cpu_ns": 0.0, "kept_cpu_ns": 0.8e9}])
    use = core_use(scopes(run)[0])
    assert use.kept_cores == pytest.approx(0.8)
    before = judged(run)
    assert not any("lost_steps_ns" in each.evidence for each in before.causes)
    pids = run.workers["pid"].to_numpy()
    rows = [(pid, worker, "Slow", "local-socket", 60) for worker, pid in enumerate(pids)]
    run.blocking = pd.DataFrame(rows, columns=["pid", "worker", "operation", "reason", "looks"])
    first = judged(run).causes[0]
    assert first.title.startswith("Slow")
    assert first.evidence["lost_steps_ns"] > 0


def test_work_that_steps_lose_much_to_comes_before_what_they_need() -> None:
    """GIVEN steps that compute for most of their time, and lose a third of the loop to workers
    THEN these come first, although the steps set the pace: what steps need remains."""
    run = hardly_waits(of_workers=0.9)
    waits = run.waits
    waits["step_cpu_ns"], waits["step_run_delay_ns"] = (
        part * waits["step_ns"] for part in (0.65, 0.35)
    )
    waits["step_process_cpu_ns"] = 1.3 * waits["step_cpu_ns"]
    judgement = judged(run)
    first, shares = judgement.causes[0], {each.kind: each.share for each in judgement.causes}
    assert judgement.kind == "consumer-bound"
    assert first.title == "Slow"
    assert 0.3 < first.share < shares["consumer"]
