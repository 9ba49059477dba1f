"""What other programs used of the cores, by the machine's readings."""

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.batches.waits import loop_times
from lotus.analysis.common.columns import float_column
from lotus.analysis.common.scope import scopes
from lotus.analysis.machine.core_use import core_use
from tests.unit.analysis.machine.test_core_use import QUIET, cores, judged, keep_two_cores_busy
from tests.unit.simulated import Plan


def test_what_others_used_is_what_the_machine_used_beyond_the_program() -> None:
    plan = Plan(operations={"Slow": 20.0}, batches=200, workers=2, cores=4)
    run = cores(plan.run(), (0.3, 0.65, 0.0), (0.3, 0.65, 0.0))
    begin = float(run.epochs["start_ns"].min()) - 1e9
    end = float(run.epochs["end_ns"].max()) + 1e9
    ns = end - begin  # of four cores: three busy, one idle
    columns = {"time_ns": [begin, end], "busy_ns": [7e9, 7e9 + 3 * ns], "idle_ns": [5e9, 5e9 + ns]}
    run.machine = pd.DataFrame(columns).assign(stolen_ns=0.0)
    use = core_use(scopes(run)[0])
    assert use.others_share == pytest.approx(0.75 - use.own_share)
    assert f"other programs used {use.others_share:.0%} of its cores" in judged(run).doubt
    run.machine["busy_ns"] = [7e9, 7e9 + 4 * use.own_share * ns]
    run.machine["idle_ns"] = [5e9, 5e9 + 4 * (1 - use.own_share) * ns]
    assert judged(run).doubt == ""  # nobody else used them
    run.machine["busy_ns"] = columns["busy_ns"]
    run.machine["idle_ns"] = columns["idle_ns"]
    run.program_cpu_ns = float(2.9 * ns)  # most of it in starting workers, as an example
    use = core_use(scopes(run)[0])
    loop_ns = float_column(loop_times(run.epochs, run.waits), "loop_ns").sum()
    assert use.others_share == pytest.approx(0.1 * ns / (4 * loop_ns))
    assert not use.rivals
    run.machine["time_ns"] += 5e9  # read after the loop had begun
    assert np.isnan(core_use(scopes(run)[0]).others_share)


@pytest.mark.parametrize(("others", "busy"), [(0.02, False), (2.0, True)])
def test_others_had_no_more_of_a_short_loop_than_of_the_whole_run(
    others: float, busy: bool
) -> None:
    run = cores(Plan(operations={"Slow": 2.0}, workers=2, cores=4).run(), (0.5, 0.5, 0.0), QUIET)
    begin, end = float(run.epochs["start_ns"].min()), float(run.epochs["end_ns"].max())
    ns = end - begin
    assert ns < 1e9  # too short for the machine's clock ticks
    run.program_cpu_ns = 6e9
    run.machine = pd.DataFrame({"time_ns": [begin - 3e9, end + 3e9]}).assign(
        busy_ns=[1e9, 7e9 + others * ns], idle_ns=[1e9, 9e9], stolen_ns=0.0
    )
    use = core_use(scopes(run)[0])
    assert use.rivals == busy
    assert (judged(run).doubt != "") == busy
    assert np.isnan(use.others_share) == busy  # it may have been before the loop
    run.program_cpu_ns = float("nan")
    assert np.isnan(core_use(scopes(run)[0]).others_share)


def test_others_are_known_also_where_the_loop_was_broken_off() -> None:
    run = cores(Plan(operations={"Slow": 20.0}, cores=2).run(), (0.2, 0.7, 0.0), QUIET)
    keep_two_cores_busy(run)
    known = core_use(scopes(run)[0]).others_share
    assert known > 0.3
    # GIVEN a loop that a signal ended, of which the end was not recorded
    run.epochs["end_ns"] = np.nan
    run.epochs["exhausted"] = False
    assert core_use(scopes(run)[0]).others_share == pytest.approx(known, abs=0.1)


def test_what_others_used_in_all_of_the_run_stands_for_loops_with_much_between_them() -> None:
    plan = Plan(operations={"Slow": 20.0}, batches=200, workers=2, cores=4)
    run = cores(plan.run(), (0.3, 0.65, 0.0), (0.3, 0.65, 0.0))
    begin, end = float(run.epochs["start_ns"].min()), float(run.epochs["end_ns"].max())
    ns = end - begin
    # GIVEN readings around the loop and a pause of the same length, in which another core is used
    run.machine = pd.DataFrame({"time_ns": [begin - ns, end]}).assign(
        busy_ns=[0.0, 6 * ns], idle_ns=[0.0, 2 * ns], stolen_ns=0.0
    )
    run.program_cpu_ns = 2.0 * ns
    # a validation's loop, by another number, parts the first loop from the second
    later = run.epochs.assign(epoch=1, start_ns=begin - ns, end_ns=begin - 0.9 * ns)
    run.epochs = pd.concat([later, run.epochs], ignore_index=True)
    use = core_use(scopes(run)[0])
    assert use.others_share == pytest.approx(0.5)
    assert "other programs used 50% of its cores" in judged(run).doubt
    # It is not known where the loops are a small part of what was read.
    run.machine.loc[0, "time_ns"] = begin - 20 * ns
    run.machine.loc[1, "idle_ns"] = (4 * 21 - 6) * ns
    run.program_cpu_ns = 0.0
    assert np.isnan(core_use(scopes(run)[0]).others_share)
