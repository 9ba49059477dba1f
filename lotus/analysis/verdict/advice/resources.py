"""Memory, open files and /dev/shm while a loader was iterated: what was used, and what was left."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, int_column, ratio
from lotus.analysis.common.scope import Scope
from lotus.analysis.machine.machine_readings import least_memory_share, within_loops


@dataclass(frozen=True)
class Resources:
    """Use of the machine's memory and of what a process may have only so much of."""

    descriptors: float = math.nan  # open in a process at a time, at most; NaN: not known
    descriptor_limit: float = math.nan  # the highest of a process; NaN: none, or not known
    shm_share: float = math.nan  # of /dev/shm that was filled, at most; NaN: not known
    swapped_bytes: float = 0.0  # in and out while it was iterated; 0.0: none, or not known
    # In which some thread waited for memory then; 0.0: none, or not known.
    memory_stall_ns: float = 0.0
    memory_left: float = math.nan  # the least share of the memory, 0 to 1; NaN: not known
    affordable: float = math.inf  # workers that the machine's memory is enough for; inf: not known


def resources(scope: Scope) -> Resources:
    """Return what a loader's tables tell of them."""
    return Resources(
        descriptors=_most(scope.resources, "descriptors"),
        descriptor_limit=_descriptor_limit(scope),
        shm_share=ratio(_most(scope.resources, "shm"), scope.shm_bytes),
        swapped_bytes=within_loops(scope, "swapped_bytes"),
        memory_stall_ns=within_loops(scope, "memory_stall_ns"),
        memory_left=least_memory_share(scope.machine, scope.memory_bytes),
        affordable=_affordable(scope),
    )


def _affordable(scope: Scope) -> float:
    """Return how many workers there could be if new ones may take half of the memory left."""
    of_workers = int_column(scope.memory, "worker") >= 0
    each = np.nanmax(float_column(scope.memory, "private")[of_workers], initial=0.0)
    left = np.nanmin(float_column(scope.machine, "available_bytes"), initial=math.inf)
    if not each > 0 or not 0 <= left < math.inf:
        return math.inf
    return max(scope.num_workers, 1) + float(left) / 2 / float(each)


def _descriptor_limit(scope: Scope) -> float:
    limits = float_column(scope.memory, "descriptor_limit")
    return float(limits.max()) if limits.size and (limits > 0).all() else math.nan


def _most(frame: pd.DataFrame, name: str) -> float:
    return (
        float(np.nanmax(float_column(frame, name), initial=-math.inf)) if len(frame) else math.nan
    )
