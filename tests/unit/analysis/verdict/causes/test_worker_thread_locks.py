"""Workers whose torch computes in several threads, for which the main one waits at locks."""

from types import SimpleNamespace

import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.verdict.verdict import Cause, verdict
from tests.unit.analysis.machine.test_core_use import QUIET, cores
from tests.unit.simulated import Plan


def crowded(torch_threads: int, reason: str, delay: float = 0.2) -> SimpleNamespace:
    """A loop that waits for batches; their maker computed for 30 % of the time, was without a core
    for `delay`, and blocked for the rest."""
    plan = Plan(operations={}, own=10.0, cores=2)
    run = cores(plan.run(), (0.3, delay, 0.7), QUIET)
    run.workers = run.workers.assign(threads=torch_threads + 1, torch_threads=torch_threads)
    pids = run.batches["pid"].unique()
    looks = pd.DataFrame({"pid": pids}).merge(
        pd.DataFrame({"reason": ["computing", reason], "looks": [100, 150]}), how="cross"
    )
    run.blocking = looks.assign(worker=0, operation="")
    return run


def shares(run: SimpleNamespace) -> dict[str, Cause]:
    return {cause.kind: cause for cause in verdict(scopes(run)[0]).causes}


def test_all_waiting_at_locks_is_for_torchs_other_threads() -> None:
    of_threads = shares(crowded(8, "lock"))["worker-threads"]
    asleep = shares(crowded(8, "sleep"))["worker-threads"]
    # without a core, and blocked for as long; at locks, for all the time that it was blocked
    assert of_threads.wait_share == pytest.approx(0.7, abs=0.04)
    assert asleep.wait_share == pytest.approx(0.4, abs=0.04)


def test_other_threads_may_be_what_a_data_set_waits_for() -> None:
    found = shares(crowded(1, "lock", delay=0.12))
    assert found["worker-threads"].wait_share == pytest.approx(0.24, abs=0.04)
    assert "waits for other threads" in found["dataset"].title
    # they compute on cores that are missing
    assert "2 workers already share 2 cores" in found["dataset"].advice


def test_threads_that_compute_for_long_between_waits_lose_little() -> None:
    """GIVEN more threads of torch than cores, which wait for each other often, or a few times
    THEN they are the first cause where it is often, and else the work is, which one would do."""
    often, rarely = crowded(8, "lock"), crowded(8, "lock")
    for run, waits in ((often, 1000), (rarely, 8)):
        run.batches["voluntary_switches"] = waits
    assert shares(often)["worker-threads"].wait_share == pytest.approx(0.7, abs=0.04)
    found = shares(rarely)
    lost = 8 * 0.25e6 / rarely.batches["fetch_ns"].median()
    assert found["worker-threads"].wait_share == pytest.approx(lost, abs=0.04)
    assert found["dataset"].wait_share > 2 * found["worker-threads"].wait_share
