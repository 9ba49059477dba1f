"""How sure the share of waits of a sampled loop is."""

import math

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.shares.wait_interval import (
    UNSURE_PART,
    WaitRow,
    first_left_out,
    reading_times,
    unsure_share,
    wait_rows,
    wait_spread,
)
from lotus.analysis.attached.verdict.sampled_verdict import LoopSummary, summarise
from tests.unit.sampled_program import IDLE, STEP, WAIT, Program, operation, turns

BLUR = operation("Blur")


def rows(waits: float, unsure: float, count: int = 600) -> list[WaitRow]:
    """Samples that are in waits independently of each other, as often as `waits` says."""
    drawn = np.random.default_rng(1).random(count) < waits
    return [WaitRow(at * 1e7, 1e7 * in_wait, 1e7, 1e7 * unsure) for at, in_wait in enumerate(drawn)]


def thread(*parts: tuple[str, int]) -> pd.DataFrame:
    """A main thread that is in these phases for so many samples each, 10 ms apart."""
    names = [phase for phase, count in parts for _ in range(count)]
    labels = pd.factorize(np.array(names, object))[0]
    columns = {"pid": 1, "tid": 1, "label": labels, "phase": names, "weight_ns": 10_000_000}
    return pd.DataFrame({"time_ns": np.arange(len(names)) * 10_000_000, **columns})


def test_time_between_two_stacks_is_unsure_where_only_one_is_a_wait() -> None:
    table = thread((phases.WAIT, 5), (phases.RECEIVE, 5), (phases.STEP, 5), (phases.WAIT, 5))
    found = wait_rows(table, np.ones(20, np.bool_), reading_times(table))
    assert [row.unsure > 0 for row in found] == [k in (9, 14) for k in range(20)]
    # Nothing changed for 50 ms: py-spy has read the same stack meanwhile.
    assert found[9].unsure == pytest.approx(3 * 10e6)


def test_another_threads_change_tells_when_stacks_were_read() -> None:
    table = thread((phases.WAIT, 10), (phases.STEP, 10))
    other = thread((phases.IDLE, 9), (phases.OPERATION, 11)).assign(pid=2, tid=2)
    read = reading_times(pd.concat([table, other]))
    found = wait_rows(table, np.ones(20, np.bool_), read)
    assert found[9].unsure == pytest.approx(10e6)


def test_a_loop_of_short_steps_is_less_sure_than_one_of_long_steps() -> None:
    short, long = rows(0.5, unsure=0.5), rows(0.5, unsure=0.01)
    widths = [high - low for low, high in (wait_spread(each, 0.5) for each in (short, long))]
    assert widths[0] > 1.5 * widths[1]
    # As factors of the share: both sides.
    assert widths[0] >= 2 * UNSURE_PART * 0.5 / 0.5
    assert unsure_share(short) == pytest.approx(0.5)


def test_what_no_sample_met_may_still_be_there() -> None:
    low, high = wait_spread(rows(1.0, unsure=0.0), 1.0)
    assert low == pytest.approx(1.0 - 3 / 600)
    assert high == pytest.approx(1.0 + 3 / 600)
    assert math.isnan(wait_spread(rows(0.0, unsure=0.0), 0.0)[0])
    assert math.isnan(wait_spread(rows(1.0, unsure=0.0, count=10), 1.0)[0])


def test_a_start_up_that_comes_first_is_left_out() -> None:
    assert len(first_left_out(rows(0.5, 0.0, count=20), 45e6)) == 16


def loop_of(*parts: tuple[tuple[str, str], int]) -> LoopSummary:
    program = Program(turns(*parts), [turns((BLUR, 1), (IDLE, 1))])
    return summarise(program.evidence()).loops[0]


def test_starting_workers_is_waiting_too() -> None:
    """How much of the waiting for new workers is their start-up is not sure either."""
    table = thread((phases.STARTUP, 5), (phases.WAIT, 5), (phases.STEP, 10))
    found = wait_rows(table, np.ones(20, np.bool_), reading_times(table))
    assert sum(row.waited for row in found) == pytest.approx(10 * 10e6)
    assert found[4].unsure == 0.0


def test_the_interval_holds_the_share() -> None:
    judged = loop_of((WAIT, 6), (STEP, 4)).verdict
    assert 0.0 < judged.input_low < judged.input_share < judged.input_high < 1.0
