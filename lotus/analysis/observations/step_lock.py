"""How much of the training step another thread of the program held the interpreter lock (GIL)."""

from dataclasses import dataclass

from lotus.analysis.common.scope import Scope
from lotus.analysis.machine.device_share import device_share
from lotus.analysis.observations.looks import (
    LOCK,
    at_lock,
    looks_at_step,
    python_threads,
    ready_share,
)
from lotus.analysis.observations.own_code import HotFunction, running_beside


@dataclass(frozen=True)
class StepLock:
    """`share`: of `looks` at the step, 0 to 1, that found it at a lock while `running` ran."""

    share: float
    looks: int
    running: HotFunction


def step_lock(scope: Scope) -> StepLock | None:
    """What is known of it; None: nothing.

    Nor for steps on a device, which wait for locks of torch's own.
    """
    looks = looks_at_step(scope)
    ready = ready_share(scope.waits, "step_run_delay_ns", "step_ns")
    if not at_lock(looks, ready) or python_threads(scope) < 1:
        return None
    running = running_beside(scope.own_code)
    if running is None or device_share(scope) is not None:
        return None
    return StepLock(looks.shares[LOCK], looks.count, running)
