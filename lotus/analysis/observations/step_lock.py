"""The part of a step in which another thread of the program held the interpreter lock (GIL)."""

from dataclasses import dataclass

from lotus.analysis.batches.components import LEAST_HELPERS
from lotus.analysis.common.columns import float_column, ratio, total
from lotus.analysis.common.scope import Scope
from lotus.analysis.machine.device_share import device_share
from lotus.analysis.observations.looks import (
    LEAST_LOCKED,
    LOCK,
    at_lock,
    looks_at_step,
    python_threads,
    ready_share,
)
from lotus.analysis.observations.own_code import HotFunction, running_beside

_LEAST_BESIDE = 0.15  # of the looks, where a thread was seen running Python code meanwhile


@dataclass(frozen=True)
class StepLock:
    """Observations of the step at a lock: their `share` of `looks`, 0 to 1, while `running` ran.

    `running` is None where no stacks were sampled. It ran in one of `threads`; None: they were not
    counted, as in a loop that was interrupted.
    """

    share: float
    looks: int
    threads: int | None
    running: HotFunction | None


def step_lock(scope: Scope, held_in_next: bool) -> StepLock | None:
    """Return what is known of the lock in the step; None: nothing.

    None also for steps on a device, which wait for locks of torch's own. `held_in_next`: True if a
    thread is known to hold it in `next`; else one must have been seen running during the steps.
    """
    looks = looks_at_step(scope)
    ready = ready_share(scope.waits, "step_run_delay_ns", "step_ns")
    threads = python_threads(scope)
    running = running_beside(scope.own_code)
    least = LEAST_LOCKED if running is None else _LEAST_BESIDE
    if not at_lock(looks, ready, least) or threads == 0 or _computes_alone(scope):
        return None
    if (running is None and not held_in_next) or device_share(scope) is not None:
        return None
    return StepLock(looks.shares[LOCK], looks.count, threads if threads > 0 else None, running)


def _computes_alone(scope: Scope) -> bool:
    """Return True if the main thread uses nearly all of its process's CPU time in the step."""
    own, everything = (
        total(float_column(scope.waits, name)) for name in ("step_cpu_ns", "step_process_cpu_ns")
    )
    return ratio(own, everything) > 1.0 - LEAST_HELPERS
