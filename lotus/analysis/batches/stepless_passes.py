"""Passes over a loader that take its batches and do no training step, as to count them."""

import math
from dataclasses import dataclass

import numpy as np

from lotus.analysis.batches.waits import loop_times
from lotus.analysis.common.columns import float_column, ratio, total
from lotus.analysis.common.scope import Scope

_FAR_LESS, _LEAST_STEP_NS = 0.05, 5e6  # of a pass with steps; what those take at least, a batch
_LEAST_SHARE = 0.1  # of the loops


@dataclass(frozen=True)
class SteplessPasses:
    """`count` of `passes` have no training step; `share` of the loops' time is theirs, 0 to 1."""

    count: int = 0
    passes: int = 0
    share: float = math.nan


def stepless_passes(scope: Scope) -> SteplessPasses:
    """Return the passes without steps; none if all are so, or if they take little of the loops."""
    loop = loop_times(scope.epochs, scope.waits)
    step = float_column(loop, "step_ns") / np.maximum(float_column(loop, "waits"), 1.0)
    spent = float_column(loop, "loop_ns")
    usual = float(np.nanmax(step, initial=0.0))
    without = step < _FAR_LESS * usual
    share = ratio(total(spent[without]), total(spent))
    if usual < _LEAST_STEP_NS or not share >= _LEAST_SHARE:
        return SteplessPasses()
    return SteplessPasses(int(without.sum()), len(loop), share)
