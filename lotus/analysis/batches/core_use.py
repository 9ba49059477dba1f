"""Who had the cores while a loader was iterated: its own threads, or other programs.

From what the kernel counts for each batch, `next` and training step: time on a core, time ready to
run without one, and the time on cores of all threads of the process.
"""

import math
from dataclasses import dataclass

import numpy as np

from lotus.analysis.batches.waits import loop_times
from lotus.analysis.common.columns import Bools, Floats, integer, number, ratio, total
from lotus.analysis.common.scope import Scope

# Less waiting for a core than this share of the time says nothing: every machine has a little.
LEAST_DELAY = 0.1
# A process whose other threads use less than this share of its CPU time computes in one thread.
LEAST_HELPERS = 0.2
# The cores are full where the program itself uses more than this share of them.
_FULL = 0.7


@dataclass(frozen=True)
class Threads:
    """Threads that made batches, or took training steps. Shares are 0 to 1; NaN: not measured."""

    delay_share: float  # of the time: ready to run, without a core
    blocked_share: float  # of the time: waiting for something else
    helper_share: float  # of the process's CPU time: of its other threads
    cores: float  # that one process used, on average

    @property
    def crowded(self) -> bool:
        """Whether several threads of a process compute, and cores are missing."""
        return self.helper_share >= LEAST_HELPERS and self.delay_share >= LEAST_DELAY

    @property
    def affordable(self) -> int:
        """How many threads the cores that one process was given are enough for; at least 1."""
        return max(1, int(self.cores)) if math.isfinite(self.cores) else 1


@dataclass(frozen=True)
class CoreUse:
    """The cores during a loop. `own_share`: of all cores' time, used by the program; or NaN."""

    fetch: Threads
    step: Threads
    own_share: float

    @property
    def full(self) -> bool:
        """Whether the program itself keeps its cores busy."""
        return self.own_share > _FULL

    @property
    def others_share(self) -> float:
        """Part of the cores' time that others used, where threads waited for cores; else 0.0."""
        if self.full or not self.fetch.delay_share >= LEAST_DELAY:
            return 0.0
        return max(1.0 - self.own_share, 0.0) if math.isfinite(self.own_share) else 0.0


def core_use(scope: Scope) -> CoreUse:
    """Who had the cores during the loops of a loader."""
    batches, waits = scope.batches, scope.waits
    fetch = _threads(*(number(batches, name) for name in _columns("fetch_ns", "")))
    step = _threads(*(number(waits, name) for name in _columns("step_ns", "step_")))
    in_workers = integer(batches, "worker") >= 0
    made = number(batches, "process_cpu_ns")[in_workers]
    # Of a partly recorded loop the mean stands for all batches.
    workers = _mean(made) * len(waits) if made.size else 0.0
    main = sum(total(number(waits, f"{part}_process_cpu_ns")) for part in ("wait", "step"))
    known = np.isfinite(number(waits, "wait_process_cpu_ns")).any()
    loop = total(number(loop_times(scope.epochs, waits), "loop_ns"))
    own = ratio(workers + main, loop * scope.cores) if known else math.nan
    return CoreUse(fetch=fetch, step=step, own_share=own)


def _columns(wall: str, prefix: str) -> tuple[str, ...]:
    return (wall, *(f"{prefix}{name}" for name in ("cpu_ns", "run_delay_ns", "process_cpu_ns")))


def _threads(wall: Floats, cpu: Floats, delay: Floats, process: Floats) -> Threads:
    known: Bools = np.isfinite(wall) & np.isfinite(cpu) & np.isfinite(delay) & np.isfinite(process)
    took, on, ready, all_threads = (total(part[known]) for part in (wall, cpu, delay, process))
    return Threads(
        delay_share=ratio(ready, took),
        blocked_share=ratio(max(took - on - ready, 0.0), took),
        helper_share=ratio(max(all_threads - on, 0.0), all_threads),
        cores=ratio(all_threads, took),
    )


def _mean(values: Floats) -> float:
    measured = values[np.isfinite(values)]
    return float(measured.mean()) if measured.size else math.nan
