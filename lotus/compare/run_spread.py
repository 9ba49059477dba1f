"""How much a single run may differ from others of its program, as far as its recording tells.

Other programs on the cores slow a run down, and differently each time. Their part of the time in
which threads lacked a core is an estimate, so all of it is taken for a standard deviation. Equal
programs differ by some per cent even on a machine of their own.
"""

import math

from lotus.analysis.common.columns import float_column, ratio, total
from lotus.analysis.common.scope import Scope
from lotus.analysis.machine.core_use import core_use

UNDISTURBED = 0.03  # standard deviation of the logarithm of a loop's time, between equal runs
_MOST = 0.95  # of the time


def run_spread(scope: Scope) -> float:
    """Return the standard deviation of the logarithm of a loop's time between such runs.

    Where others' use of the cores was not measured, they may have caused all the delays.
    """
    use = core_use(scope)
    waits, steps = (total(float_column(scope.waits, f"{name}_ns")) for name in ("wait", "step"))
    of_step, of_making = use.others_part_of_step, use.others_part_of_making
    if math.isnan(use.others_share):
        of_step = of_making = 1.0
    in_waits = ratio(waits, waits + steps)
    taken = of_making * _known(use.fetch.lost_share) * in_waits
    taken += of_step * _known(use.step.lost_share) * (1.0 - in_waits)
    return math.hypot(UNDISTURBED, -math.log1p(-min(taken, _MOST)))


def _known(share: float) -> float:
    return share if math.isfinite(share) else 0.0
