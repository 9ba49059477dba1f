"""Training steps that had a core all of their time: how long a step takes without rivals.

Threads of a step wait for each other, each busily on its core. Where one of them lacks a core, all
wait, so the CPU time of the step grows with its duration and does not tell what it needs. Steps
that happened to have no rival do.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, median

_DELAY_SHARE, _DELAY_NS = 0.05, 20e3  # of a step, or in all: it hardly lacked a core
_LEAST, _LEAST_SHARE = 16, 0.03  # steps, and of all steps, that lacked none


@dataclass(frozen=True)
class UndelayedStep:
    """The median of steps that hardly lacked a core, in nanoseconds.

    `steps`: the number of all steps whose duration is known.
    """

    took_ns: float
    process_cpu_ns: float  # of all threads of the process
    steps: int

    @property
    def all_took_ns(self) -> float:
        """What all steps would take if each were as this one."""
        return self.steps * self.took_ns

    @property
    def all_process_cpu_ns(self) -> float:
        """The CPU time that all of these would use, with all threads of the process."""
        return self.steps * self.process_cpu_ns


def undelayed_step(waits: pd.DataFrame) -> UndelayedStep | None:
    """Return the typical step among those that hardly lacked a core; None: these are too few.

    `waits` is a table as `Run.waits`.
    """
    took, delay, cpu = (
        float_column(waits, f"step_{name}ns") for name in ("", "run_delay_", "process_cpu_")
    )
    known = (took > 0) & np.isfinite(delay + cpu)
    free = known & (delay <= np.maximum(_DELAY_SHARE * took, _DELAY_NS))
    if free.sum() < max(_LEAST, _LEAST_SHARE * known.sum()):
        return None
    return UndelayedStep(median(took[free]), median(cpu[free]), int((took > 0).sum()))
