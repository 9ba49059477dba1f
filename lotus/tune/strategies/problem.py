"""The knowledge of a program that a predictive strategy needs besides its trials."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from lotus.settings.space import Setting, Space


def anything(setting: Setting) -> str:
    """Allow every setting."""
    return ""


@dataclass(frozen=True)
class Problem:
    """The loader to tune. Times are seconds. Raises ValueError for impossible values."""

    space: Space
    own: Setting  # the program's own setting
    cores: float  # cores that the program may use
    batches: int | None = None  # per epoch; None: not known
    samples: float = 1.0  # mean number per batch
    step_s: float = 0.0  # the training step per batch; 0: only the loader's throughput counts
    step_cores: float = 1.0  # cores that the step keeps busy; 0: it computes elsewhere
    accelerator: bool = False  # whether there is one to pin memory for
    iterable: bool = False
    allowed: Callable[[Setting], str] = anything  # returns "", or why a setting is not allowed
    seed: int = 0
    budget_s: float = 60.0  # for all trials

    def __post_init__(self) -> None:
        if self.batches is not None and self.batches < 1:
            raise ValueError("an epoch has at least one batch")
        for name in ("cores", "samples", "budget_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be finite and above 0")
        for name in ("step_s", "step_cores"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be finite and at least 0")
