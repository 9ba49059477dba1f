"""Threads that the program sets itself, which no variable of its environment changes."""

import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.verdict.account import account
from tests.unit.analysis.machine.test_core_use import QUIET, cores, judged
from tests.unit.simulated import Plan


@pytest.mark.parametrize(("threads", "by_variable"), [(16, True), (-1, True), (64, False)])
def test_threads_that_the_program_sets_are_not_changed_by_a_variable(
    threads: int, by_variable: bool
) -> None:
    run = cores(Plan(workers=4, step=100, cores=16).run(), QUIET, (0.42, 0.55, 0.95))
    run.epochs["torch_threads"] = threads
    first = judged(run).causes[0]
    assert first.kind == "step-threads"
    assert bool(first.remedy.environment) == by_variable
    assert "torch.set_num_threads(8)" in first.advice
    assert ("torch uses 64" in first.advice) != by_variable


@pytest.mark.parametrize(("threads", "kind"), [(16, "consumer"), (64, "step-threads")])
def test_more_threads_than_the_machine_has_cores_come_before_the_step(
    threads: int, kind: str
) -> None:
    run = cores(Plan(workers=4, step=100, cores=16).run(), QUIET, (0.7, 0.15, 0.6))
    run.epochs["torch_threads"] = threads
    judgement = judged(run)
    assert judgement.kind == "consumer-bound"
    assert judgement.causes[0].kind == kind
    assert judgement.causes[0].share < 0.5 or kind == "consumer"


def test_the_place_that_sets_them_is_named() -> None:
    run = cores(Plan(workers=4, step=100, cores=16).run(), QUIET, (0.42, 0.55, 0.95))
    run.epochs["torch_threads"] = 16
    run.loaders["threads_set_at"] = "train.py:7"
    first = judged(run).causes[0]
    assert "torch.set_num_threads(8) instead of what train.py:7 sets" in first.advice
    assert not first.remedy.environment


def test_the_threads_of_a_worker_are_counted() -> None:
    run = cores(Plan(workers=2, operations={"Slow": 20.0}, cores=2).run(), (0.2, 0.5, 0.5), QUIET)
    assert judged(run).causes[0].reason.startswith("The thread")
    run.workers["threads"], run.workers["torch_threads"] = [6, 5], 4
    first = judged(run).causes[0]
    assert first.kind == "worker-threads"
    assert first.reason.startswith(
        "A worker has up to 6 threads, and torch computes in 4 of them. The thread"
    )
    assert not first.remedy.environment  # something sets them in the worker


def test_threads_of_workers_in_which_torch_has_one_are_of_another_library() -> None:
    run = cores(Plan(workers=2, operations={"Slow": 20.0}, cores=2).run(), (0.2, 0.5, 0.5), QUIET)
    run.workers["threads"], run.workers["torch_threads"] = 6, 1
    first = judged(run).causes[0]
    assert first.kind == "worker-threads"
    assert "BLAS" in first.title
    assert "torch.set_num_threads" not in first.advice
    # The step keeps its threads.
    assert first.remedy.environment == {"OPENBLAS_NUM_THREADS": "1"}


def test_threads_that_run_between_batches_as_well_are_told_from_a_librarys() -> None:
    run = cores(Plan(workers=2, operations={"Slow": 20.0}, cores=2).run(), (0.2, 0.5, 0.5), QUIET)
    run.workers["threads"], run.workers["torch_threads"] = 6, 1
    pids = run.batches.groupby("worker")["pid"].first()
    second = 1_000_000_000
    for beside, goes_on in ((0.1, False), (0.9, True)):
        used = 0.4 + beside / 2  # two workers, each with 0.2 cores for itself and 0.2 for helpers
        rows = [(pid, worker, -1, int(used * second), second) for worker, pid in pids.items()]
        run.children = pd.DataFrame(rows, columns="pid worker cpu_ns own_cpu_ns own_ns".split())
        first = judged(run).causes[0]
        assert first.kind == "worker-threads"
        assert ("also run between batches" in first.title) == goes_on
        assert ("keeps running in the workers" in first.advice) == goes_on
        assert ("cores of all workers beside making batches" in first.reason) == goes_on


def test_a_variable_that_the_program_sets_itself_is_changed_there() -> None:
    run = cores(Plan(workers=2, operations={"Slow": 20.0}, cores=2).run(), (0.2, 0.5, 0.5), QUIET)
    run.workers["threads"], run.workers["torch_threads"] = 6, 1
    run.loaders["library_threads_set"] = "OPENBLAS_NUM_THREADS=8 at train.py:3"
    of_workers = judged(run).causes[0]
    run = cores(Plan(workers=4, step=100, cores=16).run(), QUIET, (0.42, 0.55, 0.95))
    run.epochs["torch_threads"] = 16
    run.loaders["library_threads_set"] = "train.py:3"
    of_step = judged(run).causes[0]
    for cause, kind in ((of_workers, "worker-threads"), (of_step, "step-threads")):
        assert cause.kind == kind
        assert "train.py:3" in cause.advice
        assert not cause.remedy.environment


@pytest.mark.parametrize("fetch", [QUIET, (0.2, 0.5, 0.5)])
def test_cores_that_a_quota_keeps_from_the_program_are_told(
    fetch: tuple[float, float, float],
) -> None:
    step = (0.42, 0.55, 0.95) if fetch is QUIET else QUIET
    plan = Plan(workers=2, step=100, cores=16) if fetch is QUIET else Plan(operations={"Slow": 20})
    run = cores(plan.run(), fetch, step)
    unlimited = judged(run).causes[0]
    assert "may use" not in unlimited.title
    run.manifest["cpu"] |= {"quota": 1.5, "logical": 16}
    limited = judged(run).causes[0]
    assert (
        limited.kind == unlimited.kind == ("step-threads" if fetch is QUIET else "worker-threads")
    )
    assert "1.5" in limited.title
    assert "the program may use" in limited.title
    assert ("CPU limit" in limited.advice) == (fetch is QUIET)


def test_sending_that_threads_of_workers_keep_from_the_cores_is_charged_to_them() -> None:
    """GIVEN small batches, little of whose way is their pickling, from workers whose threads fight
    for the cores
    THEN what the bytes of the batches do not account for is charged to these threads."""
    plan = Plan(workers=2, batches=80, operations={"Slow": 5.0}, pickle=60.0, cores=2)
    run = cores(plan.run(), (0.2, 0.5, 0.5), QUIET)
    run.batches = run.batches.assign(pickle_ns=200_000, send_bytes=400)
    run.waits["wait_cpu_ns"] = 0
    charges = {charge.kind: charge.ns for charge in account(scopes(run)[0]).charges}
    assert charges["send"] < 80 * 2.1e6
    assert charges["worker-threads"] > 3 * charges["other-programs"]


@pytest.mark.parametrize(("of_workers", "by_variable"), [(8, True), (1, False)])
def test_a_place_that_sets_those_of_workers_sets_none_in_the_step(
    of_workers: int, by_variable: bool
) -> None:
    """The main process has torch's default, as many as there are cores."""
    run = cores(Plan(workers=4, step=100, cores=16).run(), QUIET, (0.42, 0.55, 0.95))
    run.epochs["torch_threads"] = 16
    run.workers["torch_threads"] = of_workers
    run.loaders["threads_set_at"] = "train.py:7"
    of_step = next(each for each in judged(run).causes if each.kind == "step-threads")
    assert bool(of_step.remedy.environment) == by_variable
    assert ("train.py:7" in of_step.advice) != by_variable
