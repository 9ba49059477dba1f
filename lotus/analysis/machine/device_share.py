"""The share of a loop in which an accelerator was idle, by its own clock."""

from dataclasses import dataclass

import numpy as np

from lotus.analysis.common.columns import flag, float_column, ratio, total
from lotus.analysis.common.scope import Scope
from lotus.analysis.common.warm_up import WARM_UP


@dataclass(frozen=True)
class DeviceShare:
    """The device's part of the steps that were timed on it, without a warm-up; sums of all ranks.

    Idle time between kernels of a step counts as busy: idle_share is a lower bound.
    """

    steps: int
    taken: int  # batches that the loop took
    idle_ns: float  # nothing to do while the program waited for data
    busy_ns: float  # at most, in the steps
    idle_share: float  # of the two together
    wait_share: float  # of the same steps with their waits, that the program waited


def device_share(scope: Scope) -> DeviceShare | None:
    """Return the device's part of a loop; None where no device was timed."""
    waits = scope.waits
    idle, busy = (float_column(waits, f"device_{name}_ns") for name in ("idle", "busy"))
    known = ~np.isnan(idle + busy) & ~(float_column(waits, WARM_UP) > 0)
    if not known.any():
        return None
    idle_ns, busy_ns = total(idle[known]), total(busy[known])
    wait_ns = total(float_column(waits, "wait_ns")[known])
    step_ns = total(float_column(waits, "step_ns")[known])
    return DeviceShare(
        steps=int(known.sum()),
        taken=int((~flag(waits, "failed")).sum()),
        idle_ns=idle_ns,
        busy_ns=busy_ns,
        idle_share=ratio(idle_ns, idle_ns + busy_ns),
        wait_share=ratio(wait_ns, wait_ns + step_ns),
    )
