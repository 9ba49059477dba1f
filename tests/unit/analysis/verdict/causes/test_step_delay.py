"""Training steps without a core, which the program's own workers use."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.machine.core_use import core_use
from lotus.analysis.verdict.account import account
from lotus.analysis.verdict.verdict import verdict
from tests.unit.simulated import Plan


def loop(beside: float, delay: float = 0.6, **plan: float) -> SimpleNamespace:
    """Two workers that use `beside` cores for something else; steps without a core for `delay`."""
    usual = {"batches": 200, "workers": 2, "step": 20.0, "operations": {"Read": 0.1}}
    run = Plan(**(usual | plan)).run()  # type: ignore[arg-type]
    run.manifest["cpu"] = {"logical": 2, "available": 2}
    waits, batches = run.waits, run.batches
    for part in ("wait", "step"):
        took = waits[f"{part}_ns"]
        waits[f"{part}_run_delay_ns"] = (took * delay).astype(np.int64)
        waits[f"{part}_cpu_ns"] = (took * (1 - delay)).astype(np.int64)
        waits[f"{part}_process_cpu_ns"] = waits[f"{part}_cpu_ns"]
    batches["cpu_ns"] = batches["process_cpu_ns"] = batches["fetch_ns"]
    batches["run_delay_ns"] = 0
    pids = batches.groupby("worker")["pid"].first()
    second = 1_000_000_000
    rows = [(pid, worker, -1, int(beside / 2 * second), second) for worker, pid in pids.items()]
    run.children = pd.DataFrame(rows, columns="pid worker cpu_ns own_cpu_ns own_ns".split())
    return run


def test_what_workers_compute_beside_batches_is_the_programs_own() -> None:
    use = core_use(scopes(loop(beside=1.6))[0])
    assert use.beside_cores == pytest.approx(1.6, rel=0.05)
    assert core_use(scopes(loop(beside=0.0))[0]).beside_cores == 0.0


def test_workers_that_go_on_as_their_loader_is_kept_compute_as_well() -> None:
    run = loop(beside=0.0, epochs=3)
    took = int(run.epochs["end_ns"].max() - run.epochs["start_ns"].min())
    # GIVEN workers of each epoch that use 0.2 cores until the last one ends
    whose = run.batches[["pid", "worker"]].drop_duplicates()
    assert len(whose) == 6
    rows = [(pid, worker, -1, took // 5, took) for pid, worker in whose.itertuples(index=False)]
    run.children = pd.DataFrame(rows, columns=run.children.columns)
    use, batches = core_use(scopes(run)[0]), run.batches["process_cpu_ns"].sum()
    assert use.beside_cores == pytest.approx(6 * 0.2 - batches / took, rel=0.1)


def keep(run: SimpleNamespace, cores: float) -> None:
    """Have the program keep a process beside its workers that uses so many cores."""
    second = 1_000_000_000
    manager = (int(run.waits["pid"].iloc[0]), -1, -1, 0, second, int(cores * second))
    columns = [*run.children.columns, "kept_cpu_ns"]
    run.children = pd.DataFrame(
        [*run.children.assign(kept_cpu_ns=-1).itertuples(index=False), manager], columns=columns
    )


def test_what_a_manager_computes_is_the_programs_own() -> None:
    run = loop(beside=0.0)
    before = core_use(scopes(run)[0]).own_share
    keep(run, 0.8)
    assert core_use(scopes(run)[0]).own_share == pytest.approx(before + 0.4)


@pytest.mark.parametrize(("delay", "told"), [(0.5, True), (0.02, False)])
def test_processes_that_keep_the_workers_from_the_cores_are_told(delay: float, told: bool) -> None:
    run = loop(beside=0.0)
    keep(run, 1.5)
    made = run.batches["fetch_ns"]
    run.batches = run.batches.assign(
        cpu_ns=(1 - delay) * made, process_cpu_ns=(1 - delay) * made, run_delay_ns=delay * made
    )
    said = [flaw for flaw in verdict(scopes(run)[0]).flaws if "Other processes" in flaw]
    assert bool(said) == told
    assert all("used 1.5 cores" in flaw and "50% of its time" in flaw for flaw in said)


@pytest.mark.parametrize(("beside", "kind"), [(0.0, "affinity"), (1.8, "step-delay")])
def test_steps_that_lack_cores_which_the_program_may_not_use(beside: float, kind: str) -> None:
    run = loop(beside)
    if not beside:  # the making of batches keeps the cores busy
        run.batches[["fetch_ns", "cpu_ns", "process_cpu_ns"]] *= 100
    run.manifest["cpu"] = {"logical": 8, "affinity": 2}
    loop_account = account(scopes(run)[0])
    assert sum(charge.ns for charge in loop_account.charges) == pytest.approx(
        loop_account.loop_ns, rel=1e-6
    )
    judgement = verdict(scopes(run)[0])
    first = judgement.causes[0]
    assert (judgement.kind, first.kind) == ("consumer-bound", kind)
    assert judgement.step_lacks_cores
    assert first.share == pytest.approx(0.6 * judgement.step_share, rel=0.01)
    told = "because the program may use only 2 of the machine's cores" in judgement.summary
    assert told == ("only 2 of the machine's 8" in first.title) == (kind == "affinity")
    shares = (judgement.input_share, judgement.startup_share, judgement.shutdown_share)
    assert sum(shares) + judgement.step_share == pytest.approx(1.0)


def test_it_is_named_where_it_keeps_the_step_from_the_cores() -> None:
    judged = verdict(scopes(loop(beside=1.6))[0])
    assert judged.kind == "consumer-bound"
    first = judged.causes[0]
    assert first.kind == "step-delay"
    assert "threads that the workers keep running" in first.title
    assert "worker_init_fn" in first.advice
    assert "1.5 cores" in first.reason  # the rest is the making of batches
    assert first.share == pytest.approx(0.6, abs=0.05)


def test_processes_that_make_no_batches_are_named_where_they_use_most() -> None:
    run = loop(beside=0.0)
    keep(run, 1.8)
    judged = verdict(scopes(run)[0])
    first = judged.causes[0]
    assert first.kind == "step-delay"
    assert first.title.endswith("which other processes that the program started use")
    assert first.advice.startswith("Run fewer of these processes")
    assert "besides its workers, used 1.8 cores" in first.reason
    assert "num_workers" not in first.advice
    clause = "because other processes that the program started use the cores that the training"
    assert clause in judged.summary


def test_a_step_with_cores_is_just_that() -> None:
    assert verdict(scopes(loop(beside=1.6, delay=0.02))[0]).causes[0].kind == "consumer"
    assert verdict(scopes(loop(beside=0.0))[0]).causes[0].kind == "consumer"


@pytest.mark.parametrize(("cores", "delay"), [(0.8, 0.6), (0.7, 0.45)])
@pytest.mark.parametrize("of_workers", [False, True])
def test_beside_other_programs_its_own_processes_have_their_part(
    cores: float, delay: float, of_workers: bool
) -> None:
    # GIVEN a program of which a process, or threads of the workers beside batches, use `cores`, and
    # other programs that have the rest of two
    run = loop(beside=cores if of_workers else 0.0, delay=delay)
    if not of_workers:
        keep(run, cores)
    begin, end = float(run.epochs["start_ns"].min()), float(run.epochs["end_ns"].max())
    cores_ns = 2 * (end - begin)
    times = {"time_ns": [begin, end], "busy_ns": [0.0, cores_ns]}
    run.machine = pd.DataFrame(times).assign(idle_ns=0.0, stolen_ns=0.0)
    use = core_use(scopes(run)[0])
    assert not use.full
    others = 2 * use.others_share
    mine = use.beside_cores if of_workers else use.kept_cores
    assert others > 0.5
    assert mine == pytest.approx(cores, abs=0.1)  # without the making of batches
    # THEN that part of the step's waiting is the first cause, and the step has the rest
    first, second, *_ = verdict(scopes(run)[0]).causes
    assert (first.kind, second.kind) == ("step-delay", "consumer")
    assert first.evidence["own_part"] == pytest.approx(mine / (mine + others), abs=0.01)
    assert first.share == pytest.approx(delay * first.evidence["own_part"], abs=0.05)
    assert "of it owed to the program itself" in first.reason
    # of what uses little, nothing is said
    run = loop(beside=0.2 if of_workers else 0.0)
    if not of_workers:
        keep(run, 0.2)
    assert verdict(scopes(run)[0]).causes[0].kind == "consumer"


@pytest.mark.parametrize(("cores", "told"), [(1.2, True), (0.2, False)])
def test_processes_that_keep_the_way_of_batches_from_the_cores_are_named(
    cores: float, told: bool
) -> None:
    # GIVEN batches that take long to arrive, and a main process without a core in `next`
    run = loop(beside=0.0, delay=0.8, step=0.5, unpickle=20.0)
    keep(run, cores)
    charges = {charge.kind: charge for charge in account(scopes(run)[0]).charges}
    assert ("kept-processes" in charges) == told
    if told:
        lacked = run.waits["wait_run_delay_ns"].sum()
        assert charges["kept-processes"].ns >= 0.8 * lacked
        assert charges["kept-processes"].evidence == {"kept_cores": pytest.approx(cores)}


def test_what_they_keep_from_the_step_comes_first_where_it_is_more() -> None:
    run = loop(beside=0.0, step=8.0, unpickle=3.0)
    keep(run, 1.8)
    judged = verdict(scopes(run)[0])
    assert judged.kind == "input-bound"
    first, second = judged.causes[:2]
    assert (first.kind, second.kind) == ("step-delay", "kept-processes")
    assert first.share > second.share > 0.1
