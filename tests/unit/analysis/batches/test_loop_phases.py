"""Time in `next` and in steps, of loops one after the other, within each other and cut off."""

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.batches.loop_phases import loop_phases
from tests.unit.simulated import Plan

# loader, start, wait; a step lasts until what comes next.
WAITS = pd.DataFrame(
    [(0, 10, 5), (0, 20, 2), (0, 50, 3)], columns=["loader", "start_ns", "wait_ns"]
).assign(pid=7)
EPOCHS = pd.DataFrame(
    [(0, 8, 70, True, 4)], columns=["loader", "start_ns", "end_ns", "exhausted", "shutdown_ns"]
).assign(pid=7)
# A loop of another loader in the step from 22 to 50: it waits from 32 to 36 and ends at 45.
INNER_WAITS = pd.DataFrame({"loader": [1], "start_ns": [32], "wait_ns": [4], "pid": [7]})
INNER = pd.DataFrame(
    {"loader": [1], "start_ns": [30], "end_ns": [45], "exhausted": [True], "shutdown_ns": [1]}
).assign(pid=7)
PID = np.array([7])


def test_the_last_next_ends_the_loop() -> None:
    # It begins at 66.
    assert loop_phases(WAITS, EPOCHS, PID) == (5 + 2 + 3 + 4, 5 + 28 + 13)


def test_a_loop_within_a_step_is_counted_once() -> None:
    waits, epochs = pd.concat([WAITS, INNER_WAITS]), pd.concat([EPOCHS, INNER])
    assert loop_phases(waits, epochs, PID) == (14 + 4 + 1, 46 - 4 - 1)


def test_time_between_loops_is_of_neither() -> None:
    later = EPOCHS.assign(start_ns=1008, end_ns=1070)
    waits = pd.concat([WAITS, WAITS.assign(start_ns=WAITS["start_ns"] + 1000)])
    assert loop_phases(waits, pd.concat([EPOCHS, later]), PID) == (2 * 14, 2 * 46)


def test_what_has_no_end_is_left_out() -> None:
    killed = EPOCHS.assign(end_ns=np.nan, exhausted=False)
    assert loop_phases(WAITS, killed, PID) == (10, 5 + 28)
    assert loop_phases(WAITS.iloc[:0], EPOCHS.iloc[:0], PID) == (0, 0)


def test_processes_are_apart() -> None:
    other = WAITS.assign(pid=8, start_ns=WAITS["start_ns"] + 3)
    waits, epochs = pd.concat([WAITS, other]), pd.concat([EPOCHS, EPOCHS.assign(pid=8, end_ns=73)])
    assert loop_phases(waits, epochs, PID) == (14, 46)
    assert loop_phases(waits, epochs, np.array([7, 8])) == (28, 92)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_simulated_loop_adds_up(persistent: bool) -> None:
    run = Plan(epochs=2, persistent=persistent, step=3.0).run()
    phases = loop_phases(run.waits, run.epochs, np.array([1]))
    shutdown = run.epochs["shutdown_ns"].sum()
    assert phases.next_ns == pytest.approx(run.waits["wait_ns"].sum() + shutdown)
    assert phases.step_ns == pytest.approx(run.waits["step_ns"].sum())
