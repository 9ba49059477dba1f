"""Steps far longer than the median one, and the loops over other loaders within them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.batches.long_steps import last_before, long_steps
from lotus.analysis.common.loop_spans import loop_spans
from lotus.analysis.common.scope import scopes
from lotus.analysis.summary import summarise
from tests.unit.simulated import MS, Plan


def uneven(long: float = 100.0, each: int = 10, **plan: object) -> SimpleNamespace:
    return Plan(step=lambda batch: long if batch % each == each - 1 else 10.0, **plan).run()  # type: ignore[arg-type]


def test_one_in_ten_is_long() -> None:
    (scope,) = scopes(uneven())
    found = long_steps(scope)
    assert found is not None
    assert (found.rows.sum(), found.of) == (4, 40)
    assert found.excess_ns == pytest.approx(4 * 90 * MS, rel=0.01)
    assert found.inner == (-1, 0.0)
    assert not found.is_inner_loop


@pytest.mark.parametrize(
    ("long", "each"), [(30.0, 10), (100.0, 2), (10.0, 10)], ids=["little", "often", "alike"]
)
def test_others_are_not(long: float, each: int) -> None:
    (scope,) = scopes(uneven(long, each))
    assert long_steps(scope) is None


def test_a_step_that_had_no_core_is_not_long() -> None:
    run = uneven()
    delay = np.where(run.waits["batch"] % 10 == 9, 90.0 * MS, 0.0)
    run.waits = run.waits.assign(step_run_delay_ns=delay)
    (scope,) = scopes(run)
    assert long_steps(scope) is None


def test_steps_whose_threads_had_no_cores_are_not_long() -> None:
    """GIVEN steps that take long, and lack a core for some of it, as do their helper threads
    THEN they are not long, unless it is one thread that does more in them."""
    for helpers, told in ((1.0, False), (0.0, True)):
        run = uneven()
        long = run.waits["batch"] % 10 == 9
        delay, cpu = np.where(long, 40.0 * MS, 0.0), np.where(long, 60.0 * MS, 10.0 * MS)
        run.waits = run.waits.assign(
            step_run_delay_ns=delay, step_cpu_ns=cpu, step_process_cpu_ns=(1.0 + helpers) * cpu
        )
        (scope,) = scopes(run)
        assert (long_steps(scope) is not None) == told


def test_a_loop_within_them_is_known_and_one_beside_them_is_not() -> None:
    (scope,) = scopes(uneven())
    found = long_steps(scope)
    assert found is not None
    begin, pid = found.begin_ns, scope.waits["pid"].iloc[0]

    def with_loops(start: np.ndarray, took: float) -> tuple[int, float]:
        rows = {"pid": pid, "loader": 7, "start_ns": start, "end_ns": start + took}
        again = long_steps(replace(scope, loops=lambda: pd.DataFrame(rows)))
        assert again is not None
        return again.inner

    assert with_loops(begin + 5 * MS, 80.0 * MS) == (7, 4 * 80.0 * MS)
    assert with_loops(begin + 50 * MS, 80.0 * MS) == (-1, 0.0)  # goes on after the step
    assert with_loops(begin - 50 * MS, 60.0 * MS) == (-1, 0.0)


def test_the_verdict_names_them_beside_the_step() -> None:
    causes = {cause.kind: cause for cause in summarise(uneven()).loaders[0].verdict.causes}
    long, step = causes["long-steps"], causes["consumer"]
    assert long.title == "long training steps (1 of 10, 100 ms each)"
    assert long.reason == "4 steps of 40 took 100 ms on average, a usual one 10.0 ms."
    assert (long.ns, step.ns) == (pytest.approx(360 * MS), pytest.approx(400 * MS, rel=0.02))


def test_of_an_iteration_that_was_left_its_last_batch_is_the_end() -> None:
    run = Plan(epochs=2).run()
    run.epochs = run.epochs.assign(exhausted=[True, False])
    loops = loop_spans(run.epochs, run.waits)
    taken = run.waits["start_ns"] + run.waits["wait_ns"]
    assert loops["end_ns"].tolist() == [run.epochs["end_ns"].iloc[0], taken.max()]


def test_what_began_last_is_of_the_same_process() -> None:
    begin, pid = np.array([30.0, 10.0, 20.0]), np.array([1, 1, 2])
    time, of = np.array([5.0, 15.0, 35.0, 25.0, 15.0, 9.0]), np.array([1, 1, 1, 2, 2, 3])
    assert last_before(begin, pid, time, of).tolist() == [-1, 1, 0, 2, -1, -1]
