"""Judges whether a simulation can be trusted, by its error on the recorded run itself."""

from __future__ import annotations

import math

# Relative errors of the simulated rate against the measured one, in either direction.
FAR_OFF = 0.10  # a larger error is reported
TOO_FAR_OFF = 0.15  # with a larger error nothing is predicted


def predicts(error: float) -> bool:
    """Return True if a simulation with this relative error on the run may be used; not if NaN.

    `error` is a share: -0.2 means that the simulated rate is 20 % below the measured one.
    """
    return abs(error) <= TOO_FAR_OFF


def far_off(error: float) -> str:
    """Return a note on predictions that may be far off; "" if there is no need or no prediction."""
    if not predicts(error) or abs(error) <= FAR_OFF:
        return ""
    return (
        f"the simulation of the run itself is {error:+.0%} off the measured rate; other "
        "predictions may be as far off"
    )


def no_answer(error: float) -> str:
    """Return why nothing is predicted, or "" if predictions can be made."""
    if predicts(error):
        return ""
    if math.isnan(error):
        return "this run cannot be predicted: it has no measured rate to check a simulation with"
    return (
        f"this run cannot be predicted: the simulation of the run itself is {error:+.0%} off the "
        f"measured rate, more than {TOO_FAR_OFF:.0%}"
    )
