"""The rate of a setting, as far as its trials show it."""

from __future__ import annotations

from dataclasses import dataclass

from lotus.settings.space import Observed, Setting


@dataclass(frozen=True)
class KnownRate:
    """The rate of one setting, combined from all its blocks."""

    setting: Setting
    rate: float  # samples/s over an epoch
    error: float  # standard deviation of its logarithm
    observed: Observed | None
