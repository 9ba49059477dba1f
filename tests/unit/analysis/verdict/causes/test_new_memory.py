"""Work on batches that is mostly the kernel's: memory obtained anew, or files read."""

from types import SimpleNamespace

import pandas as pd
import pytest

from lotus.analysis.verdict.verdict import Cause
from tests.unit.analysis.verdict.causes.test_causes import judged
from tests.unit.simulated import Plan

CPU_NS = 10_000_000_000


def made_in_kernel(
    system_share: float,
    faults: int = 50_000,
    copied: int = 0,
    workers: int = 2,
    cores: int = 2,
    own_ms: float = 20.0,
) -> SimpleNamespace:
    """A loop that waits for its data set, whose makers spend this share of CPU time in the kernel.

    `faults`: page faults a batch; `copied`: bytes that each maker read and wrote, -1: not known.
    """
    run = Plan(operations={}, own=own_ms, cores=cores, workers=workers).run()
    run.batches["minor_faults"] = faults
    run.batches["process_cpu_ns"] = run.batches["fetch_ns"]
    pids = run.batches["pid"].unique()
    run.children = pd.DataFrame(
        {
            "pid": pids,
            "worker": [*range(workers)] or -1,
            "cpu_ns": 0,
            "own_cpu_ns": CPU_NS,
            "own_ns": CPU_NS,
            "kept_cpu_ns": -1,
            "own_system_ns": int(system_share * CPU_NS),
            "own_minor_faults": faults * len(run.batches) // max(workers, 1),
            "own_copied_bytes": copied,
            "own_copies": min(copied, 100),
        }
    )
    return run


def first(run: SimpleNamespace) -> Cause:
    return judged(run).causes[0]


def test_memory_that_is_obtained_anew_is_to_be_kept() -> None:
    cause = first(made_in_kernel(0.7))
    assert cause.kind == "dataset"
    assert "70% of the CPU time of making batches was in the kernel" in cause.reason
    assert "with 50,000 page faults a batch" in cause.reason
    assert cause.advice.startswith("Memory is obtained anew for each sample")
    assert "LD_PRELOAD=libtcmalloc_minimal.so.4" in cause.advice
    assert cause.remedy.environment == {"LD_PRELOAD": "libtcmalloc_minimal.so.4"}


@pytest.mark.parametrize(
    ("changes", "in_reason"),
    [
        ({"system_share": 0.1}, False),  # as of any other program
        ({"system_share": 1000.0}, False),  # in a damaged record
        ({"system_share": 0.7, "faults": 20}, True),
        ({"system_share": 0.7, "copied": 20_000_000_000}, True),  # 6 s at most, of 7 s
        ({"system_share": 0.7, "copied": -1}, True),  # /proc/PID/io could not be read
        ({"system_share": 0.7, "faults": 0}, True),
        ({"system_share": 0.7, "faults": 99, "own_ms": 1.0}, True),
    ],
)
def test_memory_is_not_blamed_without_proof(changes: dict[str, float], in_reason: bool) -> None:
    cause = first(made_in_kernel(**changes))
    assert ("in the kernel" in cause.reason) == in_reason
    assert "LD_PRELOAD" not in cause.advice
    assert not cause.remedy.environment


def test_few_faults_may_be_of_large_pages() -> None:
    assert "LD_PRELOAD" in first(made_in_kernel(0.7, faults=200)).advice


def test_the_kernel_may_work_for_other_processes_that_are_waited_for() -> None:
    run = made_in_kernel(0.7)
    looks = [(pid, "", reason, count) for pid in run.batches["pid"].unique()
             for reason, count in (("computing", 80), ("socket", 20))]  # fmt: skip
    run.blocking = pd.DataFrame(looks, columns=["pid", "operation", "reason", "looks"])
    run.blocking["worker"] = 0
    cause = first(run)
    assert "in the kernel" in cause.reason
    assert "LD_PRELOAD" not in cause.advice


def test_faults_of_the_memory_that_is_sent_do_not_count() -> None:
    run = made_in_kernel(0.7)
    run.batches["bytes"] = 49_950 * 4096
    assert "LD_PRELOAD" not in first(run).advice


def test_more_workers_are_tried_before_the_environment_where_cores_are_free() -> None:
    cause = first(made_in_kernel(0.7, cores=8))
    assert cause.advice.startswith("Memory is obtained anew")
    assert "Raise num_workers from 2" in cause.advice
    assert "num_workers" in cause.remedy.setting
    assert not cause.remedy.environment


def test_a_main_process_counts_if_it_does_hardly_anything_else() -> None:
    run = made_in_kernel(0.7, workers=0)
    run.batches["process_cpu_ns"] = CPU_NS // len(run.batches)
    assert "LD_PRELOAD" in first(run).advice
    run.batches["process_cpu_ns"] //= 2
    assert "in the kernel" not in first(run).reason


def test_another_malloc_is_not_advised_twice() -> None:
    run = made_in_kernel(0.7)
    run.manifest["environment"] = {"LD_PRELOAD": "/usr/lib/libtcmalloc_minimal.so.4"}
    cause = first(run)
    assert "reuse arrays" in cause.advice
    assert "LD_PRELOAD" not in cause.advice
    assert not cause.remedy.environment


def test_runs_of_an_older_lotus_say_nothing_of_it() -> None:
    run = made_in_kernel(0.7)
    run.children = run.children.drop(
        columns=["own_system_ns", "own_minor_faults", "own_copied_bytes", "own_copies"]
    )
    assert "in the kernel" not in first(run).reason


def steps_in_kernel(faults: int, step_share: float = 1.0) -> SimpleNamespace:
    """A loop of steps that have this share of the main process's CPU time, 60 % in the kernel."""
    run = Plan(operations={}, own=1.0, step=50.0, cores=2).run()
    count = len(run.waits)
    run.waits["step_process_cpu_ns"] = int(step_share * CPU_NS / count)
    row = {"pid": int(run.waits["pid"].iloc[0]), "worker": -1, "cpu_ns": 0, "kept_cpu_ns": -1}
    row |= {"own_cpu_ns": CPU_NS, "own_ns": CPU_NS, "own_system_ns": int(0.6 * CPU_NS)}
    row |= {"own_minor_faults": faults * count, "own_copied_bytes": 0, "own_copies": 0}
    run.children = pd.DataFrame([row])
    return run


@pytest.mark.parametrize("reason", ["computing", "lock"])
def test_memory_of_steps_is_to_be_kept(reason: str) -> None:
    run = steps_in_kernel(faults=100_000)
    # Where torch computes in several threads, the main one waits for the others.
    run.blocking = pd.DataFrame([{"pid": run.waits["pid"].iloc[0], "operation": "(step)"}])
    run.blocking = run.blocking.assign(reason=reason, looks=100, worker=-1)
    cause = first(run)
    assert cause.kind == "consumer"
    assert "60% of the CPU time of the main process was in the kernel" in cause.reason
    assert "with 100,000 page faults a step" in cause.reason
    assert "Memory is obtained anew for each step" in cause.advice
    assert "LD_PRELOAD" in cause.remedy.environment


@pytest.mark.parametrize(
    ("faults", "step_share"),
    [
        (2_000, 1.0),  # a step that waits for a device in the kernel
        (100_000, 0.5),  # the process does much else
    ],
)
def test_steps_are_not_told_to_keep_memory_without_proof(faults: int, step_share: float) -> None:
    cause = first(steps_in_kernel(faults, step_share))
    assert "LD_PRELOAD" not in cause.advice
    assert not cause.remedy.environment
