"""Waits that are hidden behind training steps which other programs kept from the cores."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.machine.core_use import core_use
from lotus.analysis.replay.undisturbed_epochs import undisturbed_epochs, undisturbed_loop
from lotus.analysis.verdict.account import Account, account
from lotus.analysis.verdict.verdict import Verdict, verdict
from tests.unit.simulated import Plan


def loop(step: float, delay: float, **plan: Any) -> SimpleNamespace:
    """Steps of so many milliseconds, `delay` of that without a core, which other programs had."""
    plan = {"workers": 1, "batches": 200, "operations": {"Read": 5.0}, **plan}
    run = Plan(step=step, **plan).run()
    run.manifest["cpu"] = {"logical": 2, "available": 2}
    waits, batches = run.waits, run.batches
    for part, share in (("wait", 0.0), ("step", delay)):
        took = waits[f"{part}_ns"]
        waits[f"{part}_run_delay_ns"] = (took * share).astype(np.int64)
        waits[f"{part}_cpu_ns"] = (took * (1 - share)).astype(np.int64)
        waits[f"{part}_process_cpu_ns"] = waits[f"{part}_cpu_ns"]
    batches["run_delay_ns"] = (0.2 * batches["fetch_ns"]).astype(np.int64)
    batches["cpu_ns"] = batches["process_cpu_ns"] = batches["fetch_ns"] // 10
    begin, end = float(run.epochs["start_ns"].min()), float(run.epochs["end_ns"].max())
    times = {"time_ns": [begin, end], "busy_ns": [0.0, 2 * (end - begin)]}
    run.machine = pd.DataFrame(times).assign(idle_ns=0.0, stolen_ns=0.0)
    return run


def judged(run: SimpleNamespace) -> Verdict:
    return verdict(scopes(run)[0])


def test_the_loop_without_other_programs_waits_as_a_quiet_one() -> None:
    # GIVEN steps of 4 ms, which other programs made 80 ms
    scope = scopes(loop(80.0, 0.95))[0]
    use = core_use(scope)
    assert use.others_part > 0.75
    # THEN without their part of it they are as short as that part says, and so is the making
    epoch = next(undisturbed_epochs(scope, use))
    left = 80e6 * (1 - 0.95 * use.others_part)
    assert np.median(epoch.step) == pytest.approx(left, rel=0.01)
    made = float(np.median(scope.batches["fetch_ns"])) * (1 - 0.2 * use.others_part)
    assert np.median(epoch.fetch) == pytest.approx(made, rel=0.05)
    # and the loop waits as one with such steps does
    quiet = Plan(
        step=left / 1e6, workers=1, batches=200, operations={"Read": 5.0 * made / 21e6}
    ).run()
    waits = quiet.waits
    share = waits["wait_ns"].sum() / (waits["wait_ns"].sum() + waits["step_ns"].sum())
    assert undisturbed_loop(scope, use).wait_share == pytest.approx(share, abs=0.05)


def test_a_batch_that_is_sent_beside_the_next_fetch_takes_its_worker_no_shorter() -> None:
    # GIVEN batches whose feeder threads lacked a core, every second one for longer than the fetch
    run = loop(80.0, 0.95)
    fetch = run.batches["fetch_ns"]
    run.batches["ready_ns"] += np.where(run.batches["batch"] % 2, fetch // 10, 2 * fetch)
    scope = scopes(run)[0]
    # THEN without other programs each takes at least as long as its fetch, and the loop waits
    epoch = next(undisturbed_epochs(scope, core_use(scope)))
    assert (epoch.made >= epoch.fetch).all()
    assert judged(run).kind == "input-bound"


def test_waits_that_slowed_steps_hide_are_input_bound() -> None:
    found = judged(loop(80.0, 0.95))
    assert (found.kind, found.degree) == ("input-bound", "highly")
    assert found.input_share < 0.05
    assert "of its time; replayed without other programs, " in found.summary
    assert found.causes[0].part == "waits"


def test_sending_that_slowed_steps_hide_is_the_cause() -> None:
    # GIVEN batches that take far longer to be pickled than to be made
    run = loop(80.0, 0.95)
    run.batches["ready_ns"] += 5 * run.batches["fetch_ns"]
    found = judged(run)
    # THEN the waits of the loop without other programs are charged to that
    assert (found.kind, found.causes[0].kind) == ("input-bound", "send")
    # and the making has as much of them as it keeps a worker, beside the sending
    of_kind = {cause.kind: cause.share for cause in found.causes}
    making = sum(of_kind.get(kind, 0.0) for kind in ("operation", "dataset", "collate"))
    epoch = next(undisturbed_epochs(scopes(run)[0], core_use(scopes(run)[0])))
    part = float(epoch.fetch.sum() / epoch.made.sum())
    assert making / (making + of_kind["send"]) == pytest.approx(part, abs=0.03)


@pytest.mark.parametrize("delay", [0.0, 0.5])
def test_steps_that_are_long_by_themselves_set_the_pace(delay: float) -> None:
    found = judged(loop(80.0, delay))
    assert (found.kind, found.causes[0].kind) == ("consumer-bound", "consumer")
    assert "replay" not in found.summary


def slow_ones(sample: int, worker: int) -> float:
    return 800.0 if sample % 100 == 7 else 5.0


def slow_worker(sample: int, worker: int) -> float:
    return 20.0 if worker else 5.0


@pytest.mark.parametrize(
    ("kind", "read", "workers"), [("slow-samples", slow_ones, 1), ("slow-worker", slow_worker, 2)]
)
def test_each_cause_has_its_part_of_the_waits_that_slowed_steps_hide(
    kind: str, read: Any, workers: int
) -> None:
    # GIVEN a loop whose steps, slowed down by others, hide more than its usual code
    run = loop(120.0, 0.95, workers=workers, operations={"Read": read}, epochs=2)
    loop_account = account(scopes(run)[0])
    # THEN the loop without others is charged as any other: the charges add up to its time
    without = loop_account.without_others
    assert without is not None
    assert sum(charge.ns for charge in without.charges) == pytest.approx(without.loop_ns)
    # and the verdict lists what they are of that loop, and of no other
    found = judged(run)
    assert found.without_others
    assert found.causes[0].kind == kind
    assert found.causes[0].share > 2 * ratio_of(loop_account, kind)
    assert sum(cause.share for cause in found.causes) == pytest.approx(1.0, abs=0.01)


def ratio_of(loop_account: Account, kind: str) -> float:
    return (
        sum(charge.ns for charge in loop_account.charges if charge.kind == kind)
        / loop_account.loop_ns
    )


def test_bursts_that_slowed_steps_hide_need_a_larger_prefetch_factor() -> None:
    def read(sample: int, worker: int) -> float:
        return 40.0 if sample % 96 < 16 else 0.2

    run = loop(120.0, 0.95, workers=2, batch_size=4, operations={"Read": read}, batches=240)
    found = judged(run)
    assert found.kind == "input-bound"
    first = found.causes[0]
    assert first.kind == "slow-batches"
    assert first.remedy.setting["prefetch_factor"] > 2
    assert found.without_others
    assert first.share > 0.1


def test_nothing_is_replayed_without_other_programs() -> None:
    run = loop(80.0, 0.95)
    run.machine = run.machine.assign(busy_ns=0.0, idle_ns=run.machine["time_ns"])
    scope = scopes(run)[0]
    assert undisturbed_loop(scope, core_use(scope)) is None
    assert not list(undisturbed_epochs(scope, core_use(scope)))


def test_a_sampler_of_the_main_process_takes_as_long_without_other_programs() -> None:
    # GIVEN a sampler that takes 30 ms a batch, a third of it without a core
    run = loop(3.0, 0.6, sampler=30.0)
    run.waits["wait_run_delay_ns"] = (run.waits["wait_ns"] / 3).astype(np.int64)
    scope = scopes(run)[0]
    use = core_use(scope)
    replayed = undisturbed_loop(scope, use)
    assert replayed is not None
    # THEN a replay leaves out only what others took of that
    waits = replayed.batches["wait_ns"].to_numpy(float)
    left = 30e6 * (1 - use.others_part_of_step / 3)
    assert np.nanmedian(waits) == pytest.approx(left, rel=0.05)
    assert judged(run).causes[0].kind == "main-process"
    # BUT the copying of pinned batches is work of another thread
    run.loaders["pin_memory"] = True
    pinned = next(undisturbed_epochs(scopes(run)[0], use))
    assert not pinned.handover.any()
