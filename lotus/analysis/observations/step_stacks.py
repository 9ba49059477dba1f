"""Stack samples of a main process, told apart by when they were taken: in which loop and step."""

import numpy as np
import pandas as pd

from lotus.analysis.batches.long_steps import LongSteps, last_before
from lotus.analysis.common.columns import float_column, int_column
from lotus.analysis.common.loop_spans import loop_spans
from lotus.analysis.common.scope import RunLike, Scope, table
from lotus.common.numbers.array_types import Floats, Ints

# Parts of `Run.own_code`, and what they are divided into here.
IN_STEP, IN_PAUSE = "step", "pause"
IN_LONG_STEP, IN_INNER_LOOP, IN_OTHER_LOOP = "long-step", "inner-loop", "other-loop"


def in_phases(scope: Scope, long: LongSteps | None) -> pd.DataFrame:
    """Return `Run.own_code` with the stacks of steps by what they are of, for one loader.

    The part "step" has those of its usual steps then; IN_LONG_STEP those of its long ones,
    IN_INNER_LOOP those of a loop over another loader within them, IN_OTHER_LOOP those of all other
    loops. A stack in several of them has one number for each. Stacks without times, as of earlier
    versions, stay as they are.
    """
    times = _of_steps(scope.own_code, scope.stack_times)
    if not len(times):
        return scope.own_code
    loops = scope.loops()
    time, pid = float_column(times, "time_ns"), int_column(times, "pid")
    mine = loops[int_column(loops, "loader") == scope.loader]
    around, own = _innermost(loops, time, pid), _innermost(mine, time, pid)
    loaders = np.append(int_column(loops, "loader"), -1)  # of the row -1, in no loop
    is_own = (around >= 0) & (loaders[around] == scope.loader)
    is_long = np.zeros(len(time), np.bool_)
    if long is not None:
        row = last_before(long.begin_ns, long.pid, time, pid)
        is_long = (row >= 0) & (time < long.end_ns[row])
    inner = np.where(is_long & (own >= 0), IN_INNER_LOOP, IN_OTHER_LOOP)
    part = np.where(is_own, np.where(is_long, IN_LONG_STEP, IN_STEP), inner)
    return _divided(scope.own_code, times, np.where(around < 0, IN_PAUSE, part))


def stacks_in_pauses(run: RunLike) -> pd.DataFrame:
    """Return `Run.own_code` whose part "pause" has those stacks that were taken in no loop."""
    own_code = table(run, "own_code")
    times = _of_steps(own_code, table(run, "stack_times"))
    if not len(times):
        return own_code
    loops = loop_spans(table(run, "epochs"), table(run, "waits"))
    around = _innermost(loops, float_column(times, "time_ns"), int_column(times, "pid"))
    return _divided(own_code, times, np.where(around < 0, IN_PAUSE, IN_STEP))


def _of_steps(own_code: pd.DataFrame, stack_times: pd.DataFrame) -> pd.DataFrame:
    """Return the times of stacks that may be of a step or a pause."""
    if not len(own_code) or not len(stack_times):
        return stack_times.iloc[:0]
    stacks = own_code.loc[own_code["part"].isin([IN_STEP, IN_PAUSE]), "stack"]
    return stack_times[np.isin(int_column(stack_times, "stack"), stacks.unique())]


def _innermost(loops: pd.DataFrame, time: Floats, pid: Ints) -> Ints:
    """Return the row of the last loop to begin that each time lies in; -1: in none."""
    start, end = float_column(loops, "start_ns"), float_column(loops, "end_ns")
    of, rows = int_column(loops, "pid"), np.full(len(time), -1)
    for process in np.unique(pid):
        wanted = np.flatnonzero(pid == process)
        first, last = time[wanted].min(), time[wanted].max()
        near = np.flatnonzero((of == process) & (start <= last) & (end > first))
        near = near[np.argsort(start[near], kind="stable")]
        for loop in near.tolist():  # an inner one begins later
            rows[wanted[(time[wanted] >= start[loop]) & (time[wanted] < end[loop])]] = loop
    return rows


def _divided(own_code: pd.DataFrame, times: pd.DataFrame, part: Ints) -> pd.DataFrame:
    """Return the stacks, those with times by the part (n,) that each time is in."""
    counts = pd.DataFrame({"stack": int_column(times, "stack"), "new": part})
    counts = counts.groupby(["stack", "new"], as_index=False).size()
    counts["number"] = int(own_code["stack"].max()) + 1 + np.arange(len(counts))
    timed = np.isin(int_column(own_code, "stack"), counts["stack"])
    rows = own_code[timed].merge(counts, on="stack")
    rows = rows.assign(part=rows["new"], stack=rows["number"], samples=rows["size"])
    return pd.concat([own_code[~timed], rows[own_code.columns]], ignore_index=True)
