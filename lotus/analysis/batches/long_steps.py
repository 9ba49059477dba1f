"""Training steps that take many times as long as a usual one: checkpoints, evaluation, logging."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.batches.components import LEAST_HELPERS
from lotus.analysis.common.columns import float_column, int_column
from lotus.analysis.common.scope import Scope
from lotus.common.numbers.array_types import Bools, Floats, Ints

# A step is long if it takes so many times the median one, and so much more.
_TIMES, _BEYOND_NS = 4.0, 5e6
_MOST = 0.35  # of the steps: where more are long, a usual step is not one of the others
_LEAST_STEPS = 10
_MUCH_DELAY = 0.3  # of a step, without a core


@dataclass(frozen=True)
class LongSteps:
    """Steps that are long, also without the time that they had no core.

    `rows`: which of all waits they follow. `begin_ns`, `end_ns`, `pid`: of each (n,). `of`: the
    number of all steps. `usual_ns`: the median step, `mean_ns`: of the long ones, `excess_ns`: what
    all of these took beyond the median. `inner`: the loader whose loops within them took most of
    their time, and how much in all, ns; (-1, 0.0): there were none.
    """

    rows: Bools
    begin_ns: Floats
    end_ns: Floats
    pid: Ints
    of: int
    usual_ns: float
    mean_ns: float
    excess_ns: float
    inner: tuple[int, float] = (-1, 0.0)

    @property
    def is_inner_loop(self) -> bool:
        """True if most of their time passed in loops over another loader."""
        return self.inner[1] > 0.5 * self.excess_ns


def long_steps(scope: Scope) -> LongSteps | None:
    """Return the long steps of a loader; None: it has none, or too few steps to tell."""
    step, waits = float_column(scope.waits, "step_ns"), scope.waits
    begin = float_column(waits, "start_ns") + float_column(waits, "wait_ns")
    own = step - np.nan_to_num(float_column(waits, "step_run_delay_ns"))
    known = np.isfinite(own) & np.isfinite(begin)
    if known.sum() < _LEAST_STEPS:
        return None
    usual = float(np.median(own[known]))
    chosen = known & (own >= _TIMES * usual) & (own - usual >= _BEYOND_NS)
    if not 0 < chosen.sum() <= _MOST * known.sum():
        return None
    typical = float(np.median(step[known]))
    begin, end, pid = begin[chosen], (begin + step)[chosen], int_column(waits, "pid")[chosen]
    inner = _inner(scope, begin, end, pid)
    if inner[0] < 0 and _threads_lack_cores(waits[chosen]):
        return None
    return LongSteps(
        chosen,
        begin,
        end,
        pid,
        int(known.sum()),
        typical,
        float(step[chosen].mean()),
        float((step[chosen] - typical).sum()),
        inner,
    )


def _threads_lack_cores(waits: pd.DataFrame) -> bool:
    """Return True if these steps mostly compute in several threads that lack cores.

    Such threads wait for each other, some of them on their cores: their steps take many times as
    long as others, and more CPU time.
    """
    took, delay, own, cpu = (
        float_column(waits, f"step_{name}ns") for name in ("", "run_delay_", "cpu_", "process_cpu_")
    )
    lack = (delay >= _MUCH_DELAY * took) & (cpu - own >= LEAST_HELPERS * cpu)
    return bool(lack.sum() > len(waits) / 2)


def _inner(scope: Scope, begin: Floats, end: Floats, pid: Ints) -> tuple[int, float]:
    """Return `inner` of steps that begin, end and are in a process as these (n,)."""
    loops = scope.loops()
    loops = loops[int_column(loops, "loader") != scope.loader]
    started, ended = float_column(loops, "start_ns"), float_column(loops, "end_ns")
    row = last_before(begin, pid, started, int_column(loops, "pid"))
    within = (row >= 0) & (ended <= end[row])
    loaders, row = np.unique(int_column(loops, "loader")[within], return_inverse=True)
    if not len(loaders):
        return -1, 0.0
    took = np.bincount(row, (ended - started)[within])
    return int(loaders[took.argmax()]), float(took.max())


def last_before(begin: Floats, pid: Ints, time: Floats, of: Ints) -> Ints:
    """Return the row of what began last (n,) before each time (m,), in its process; -1: nothing."""
    rows = np.full(len(time), -1)
    for process in np.unique(pid):
        mine, wanted = np.flatnonzero(pid == process), of == process
        mine = mine[np.argsort(begin[mine], kind="stable")]
        place = np.searchsorted(begin[mine], time[wanted], side="right") - 1
        rows[wanted] = np.where(place >= 0, mine[place], -1)
    return rows
