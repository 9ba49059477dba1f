"""How much of the training step another thread of the program held the interpreter lock (GIL)."""

from lotus.analysis.common.scope import Scope
from lotus.analysis.machine.device_share import device_share
from lotus.analysis.observations.looks import LEAST_LOCKED, LOCK, looks_at_step, python_threads
from lotus.analysis.observations.own_code import running_beside


def held_part_of_step(scope: Scope) -> float:
    """The part of the step that waited for a lock of its process while another Python thread of the
    program ran, 0 to 1.

    0.0 where that is not known, and for steps on a device, which wait for locks of torch's own.
    """
    looks = looks_at_step(scope)
    held = looks.shares.get(LOCK, 0.0)
    if not looks.tell or held < LEAST_LOCKED or python_threads(scope) < 1:
        return 0.0
    if running_beside(scope.own_code) is None or device_share(scope) is not None:
        return 0.0
    return held
