"""How long main threads were in `next` and in training steps, all loops of a process together."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import flag, float_column, int_column
from lotus.common.numbers.array_types import Ints

_OUTSIDE, _NEXT, _STEP = range(3)


class LoopPhases(NamedTuple):
    """Nanoseconds, summed up over processes."""

    next_ns: float
    step_ns: float


def loop_phases(waits: pd.DataFrame, epochs: pd.DataFrame, pids: Ints) -> LoopPhases:
    """Return the time of the main threads of some processes.

    `waits` and `epochs`: of all loaders, as `Run` has them. The last call of `next`, which ends the
    loop and the workers, counts. A loop within the step of another one divides that step: no time
    counts twice. What has no known end is left out.
    """
    waits, epochs = (each[np.isin(int_column(each, "pid"), pids)] for each in (waits, epochs))
    start, ended = float_column(waits, "start_ns"), float_column(epochs, "end_ns")
    last_next = np.where(
        flag(epochs, "exhausted"), ended - float_column(epochs, "shutdown_ns"), np.nan
    )
    of_waits, of_epochs = int_column(waits, "pid"), int_column(epochs, "pid")
    # In this order where they come at the same time.
    changes = (
        (of_waits, start + float_column(waits, "wait_ns"), np.full(len(waits), _STEP)),
        (of_epochs, last_next, np.full(len(epochs), _NEXT)),
        (of_epochs, ended, _after(epochs)),
        (of_waits, start, np.full(len(waits), _NEXT)),
    )
    pid, time, phase = (np.concatenate(columns) for columns in zip(*changes, strict=True))
    order = np.lexsort((time, pid))
    order = order[~np.isnan(time[order])]
    pid, time, phase = pid[order], time[order], phase[order]
    lasted, begun = np.diff(time), np.where(pid[1:] == pid[:-1], phase[:-1], _OUTSIDE)
    return LoopPhases(*(float(lasted[begun == each].sum()) for each in (_NEXT, _STEP)))


def _after(epochs: pd.DataFrame) -> Ints:
    """Return the phase that each loop leaves behind: a step, if it began within another loop."""
    pid = int_column(epochs, "pid")
    start, end = float_column(epochs, "start_ns"), float_column(epochs, "end_ns")
    after = np.full(len(epochs), _OUTSIDE)
    for each in np.unique(pid):
        mine = pid == each
        begun = np.searchsorted(np.sort(start[mine]), start[mine])
        ended = np.searchsorted(np.sort(end[mine & ~np.isnan(end)]), start[mine], side="right")
        after[mine] = np.where(begun > ended, _STEP, _OUTSIDE)
    return after
