"""The first training step of a process, where it took far longer than all others.

Such a step compiles, searches for the fastest kernels, or does a late set-up. A job of hours has it
once, a traced run of a minute may spend most of its time in it: it is kept apart.
"""

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, int_column, rows_by, with_columns
from lotus.common.numbers.array_types import Floats

WARM_UP = "warm_up_ns"  # the column of waits
# The first step is a warm-up if it is so many times the usual one, and the longest other one.
_USUAL, _LONGEST = 5.0, 2.0
_LEAST = 8  # other steps, from which the usual one is known


def without_warm_up(waits: pd.DataFrame) -> pd.DataFrame:
    """Return waits of one loader with WARM_UP: what a first step took beyond a usual one, ns.

    That is taken from the step; its CPU times keep their proportion to it. WARM_UP is 0.0 for all
    other steps.
    """
    excess = _excess(waits)
    rows = np.flatnonzero(excess)
    columns: dict[str, Floats] = {WARM_UP: excess}
    if rows.size:
        kept = 1.0 - excess[rows] / float_column(waits, "step_ns")[rows]
        for name in waits.columns:
            if name.startswith("step_"):
                columns[name] = float_column(waits, name).copy()
                columns[name][rows] *= kept
    return with_columns(waits, columns)


def _excess(waits: pd.DataFrame) -> Floats:
    excess = np.zeros(len(waits))
    step, begun, pid = (
        float_column(waits, "step_ns"),
        float_column(waits, "start_ns"),
        int_column(waits, "pid"),
    )
    for mine in rows_by(pid, ~np.isnan(step) & ~np.isnan(begun)).values():
        first = mine[np.argmin(begun[mine])]
        others = step[mine[mine != first]]
        # A process that was recorded later on has no first step in its record.
        if others.size < _LEAST or int_column(waits, "batch")[first] != 0:
            continue
        usual = float(np.median(others))
        if step[first] >= max(_USUAL * usual, _LONGEST * float(others.max())):
            excess[first] = step[first] - usual
    return excess
