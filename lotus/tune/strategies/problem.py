"""What a strategy that predicts must know of the program besides what trials tell."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from lotus.settings.space import Setting, Space


def anything(setting: Setting) -> str:
    """Refuses no setting."""
    return ""


@dataclass(frozen=True)
class Problem:
    """One loader that is tuned. Times are seconds."""

    space: Space
    own: Setting  # the program's own
    cores: float  # that it may use
    batches: int | None = None  # of an epoch; None: not known
    samples: float = 1.0  # mean of a batch
    step_s: float = 0.0  # of the consumer, a batch; 0: only the loader's throughput counts
    step_cores: float = 1.0  # that the step keeps busy; 0: it computes elsewhere
    accelerator: bool = False  # there is one to pin memory for
    iterable: bool = False
    allowed: Callable[[Setting], str] = anything  # "", or why a setting must never be tried
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
