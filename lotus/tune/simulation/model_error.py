"""How far a simulation's answers can be relied on, by how far it is off on the run itself."""

from __future__ import annotations

import math

# Relative errors of the simulated run against the measured one, in either direction.
FAR_OFF = 0.10  # beyond that it is said
TOO_FAR_OFF = 0.15  # beyond that nothing is predicted


def predicts(error: float) -> bool:
    """Whether a simulation with this relative error on the run itself may answer; NaN: it may not.

    `error` is a share, as -0.2 where the simulation is 20 % below what was measured.
    """
    return abs(error) <= TOO_FAR_OFF


def far_off(error: float) -> str:
    """The note on answers that may be far off; "" where none is needed, or nothing is answered."""
    if not predicts(error) or abs(error) <= FAR_OFF:
        return ""
    return (
        f"the simulation of the run itself is {error:+.0%} off what was measured: its other "
        "answers may be as far off"
    )


def no_answer(error: float) -> str:
    """Why there is no answer; "" where there is one."""
    if predicts(error):
        return ""
    if math.isnan(error):
        return "this run cannot be predicted: it has no measured rate to hold a simulation against"
    return (
        f"this run cannot be predicted: simulated as it was, it is {error:+.0%} off what was "
        f"measured, more than {TOO_FAR_OFF:.0%}"
    )
