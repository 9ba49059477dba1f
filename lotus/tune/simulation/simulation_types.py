"""The input and the result of a loader simulation: costs, machine, times of batches, shares.

Times are nanoseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lotus.common.numbers.array_types import Floats
from lotus.settings.space import Setting


@dataclass(frozen=True)
class Work:
    """Measured costs of batches on a core that is not shared; arrays have an element per batch.

    Batches are replayed in their order, then in random orders if more are simulated. Raises
    ValueError for arrays of different lengths, negative values and missing ones.
    """

    size: Floats  # samples
    cpu_ns: Floats  # CPU time of the fetch with its collate
    wait_ns: Floats  # time the fetch waits for storage or anything else but a core
    step_ns: Floats  # training steps; any number of elements
    bytes: Floats  # in memory
    read_bytes: Floats  # from storage, besides wait_ns; 0: wait_ns includes all reading
    step_cores: float = 1.0  # cores that the step keeps busy; 0: it computes elsewhere
    shared_ns: float = 0.0  # the part of cpu_ns for new shared memory, which only workers need
    free_ns: float = 0.0  # the part of step_ns for freeing a worker's shared memory
    pickle_ns: float = 0.0  # pickling in the worker, per batch
    get_ns: float = 0.0  # taking a batch from the pipe, in the main process or the pin thread
    pin_ns: float = 0.0  # copying a batch to pinned memory; 0: it is never pinned
    iter_ns: float = 0.0  # `iter()` besides the workers
    spawn_ns: float = 0.0  # time of the main process to start one worker
    boot_ns: float = 0.0  # CPU time of a worker until it asks for its first index
    first_ns: float = 0.0  # extra CPU time of the first batch of each process
    shutdown_ns: float = 0.0  # CPU time of a worker to end; the main process waits for all
    main_bytes: float = math.nan  # memory of the main process
    worker_bytes: float = math.nan  # memory that each worker adds

    def __post_init__(self) -> None:
        length = len(self.size)
        for name in ("size", "cpu_ns", "wait_ns", "bytes", "read_bytes", "step_ns"):
            values = getattr(self, name)
            if not len(values) or (name != "step_ns" and len(values) != length):
                raise ValueError(f"{name} has {len(values)} elements where there are {length}")
            if not (np.isfinite(values).all() and (values >= 0).all()):
                raise ValueError(f"{name} must not be negative or missing")


@dataclass(frozen=True)
class Machine:
    """The simulated machine. Raises ValueError for impossible values."""

    cores: float
    contention: float = 0.0  # relative slowdown of all cores for each further busy one
    others: float = 0.0  # mean number of processes of other programs per core
    speed: float = 1.0  # speed of a core, relative to the measured one
    latency_ns: float | None = None  # waiting per sample, replaces the measured waiting
    bandwidth: float = math.inf  # of the storage, in bytes per second

    def __post_init__(self) -> None:
        for name in ("cores", "speed", "bandwidth"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0")
        for name in ("contention", "others", "latency_ns"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name} must be at least 0")

    def pace(self, demand: float) -> float:
        """Return the speed of each of `demand` computations, relative to a measured idle core."""
        busy = min(demand, self.cores)
        slower = 1.0 + self.contention * max(busy - 1.0, 0.0)
        return self.speed / (self._crowded(demand) * slower)

    def used(self, demand: float) -> float:
        """Number of cores that `demand` concurrent computations occupy."""
        return demand / self._crowded(demand)

    def _crowded(self, demand: float) -> float:
        load = demand / self.cores
        return max(load, 1.0) + self.others * min(load, 1.0)


@dataclass(frozen=True)
class BatchTimeline:
    """Times of each batch, by its number over all epochs; NaN: it did not happen."""

    worker: npt.NDArray[np.int64]
    fetch_start_ns: Floats
    made_ns: Floats  # fetched, collated and pickled
    arrival_ns: Floats  # received by the main process
    taken_ns: Floats  # `next` returned it
    order: npt.NDArray[np.int64]  # batch numbers in the order in which they were taken


@dataclass(frozen=True)
class LoaderOutcome:
    """The simulated performance of one setting. Shares are of the whole time of the loops."""

    setting: Setting
    samples: int
    seconds: float  # of all epochs, from `iter()` to the end of the last `next`
    samples_per_s: float  # over `seconds`
    steady_samples_per_s: float  # after all batches prefetched at the start have been taken
    first_batch_s: float  # from `iter()` to the first batch of the first epoch
    wait_share: float  # everything but the training steps
    startup_share: float  # before the first batches and after the last ones
    cores: float  # mean number of cores kept busy
    cores_wanted: float  # the same with unlimited cores
    cores_share: float  # share of the machine's cores that is busy
    storage_share: float  # share of the time in which bytes were read
    idle_share: float  # share of the workers' time without an index to work on
    waiting_share: float  # share of the workers' time waiting for storage
    taking_share: float  # taking batches out of the pipe, in the main process or the pin thread
    peak_batches: int  # the most batches made and not yet taken
    in_flight_bytes: float  # bytes of these batches
    memory_bytes: float  # of all processes, including these batches; NaN: not known
    timeline: BatchTimeline
