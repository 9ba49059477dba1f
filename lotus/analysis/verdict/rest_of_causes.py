"""What a list of causes leaves of the loop's time and of its waits, so that it adds up."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lotus.analysis.common.columns import ratio
from lotus.analysis.verdict.causes.run.outside import OUTSIDE
from lotus.analysis.verdict.verdict import Cause

_ROUNDED_OFF = 0.005  # of the loop, or of its waits


@dataclass(frozen=True)
class RestOfCauses:
    """A last row of a list of causes, with the fields of a `Cause` that such a list shows."""

    share: float
    wait_share: float  # NaN: nothing is waited for
    ns: float
    title: str = "the rest"
    low: float = math.nan
    high: float = math.nan


def left_share(causes: Iterable[Cause]) -> float:
    """Return the share of the loop that is left beside these causes, 0 to 1."""
    return max(1.0 - sum(cause.share for cause in causes if is_of_loop(cause)), 0.0)


def rest_of(causes: Iterable[Cause]) -> RestOfCauses | None:
    """Return what these causes leave; None if that is no more than what is rounded off."""
    mine = [cause for cause in causes if is_of_loop(cause)]
    if not mine:
        return None
    waits = [cause.wait_share for cause in mine if math.isfinite(cause.wait_share)]
    of_waits = max(1.0 - sum(waits), 0.0) if any(waits) else math.nan
    of_loop = left_share(mine)
    if np.fmax(of_loop, of_waits) < _ROUNDED_OFF:
        return None
    largest = max(mine, key=lambda cause: cause.share)
    return RestOfCauses(of_loop, of_waits, of_loop * ratio(largest.ns, largest.share))


def is_of_loop(cause: Cause) -> bool:
    """Return True if its share is one of the loop's time."""
    return cause.kind != OUTSIDE.kind and not cause.is_silent
