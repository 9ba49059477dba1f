"""Loader settings, spaces of settings, and measurements of a setting."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from lotus.common.storage import declared
from lotus.common.storage.declared import OneOf, Range
from lotus.common.text.formatting import plural
from lotus.common.torch_defaults import TORCH_PREFETCH

START_METHODS = ("fork", "spawn", "forkserver")

Value = int | bool | str | None
Positive = Annotated[int, Range(1)]


@functools.total_ordering
@dataclass(frozen=True)
class Setting:
    """A loader's settings, ordered by cost: fewer workers first, then less prefetching.

    `torch_threads` is not of the loader, but of the process that iterates it: training threads and
    workers compete for the same cores.

    None means torch's default of 2 for `prefetch_factor`, and for others the program's own value.
    Raises ValueError for values that no loader can have.
    """

    num_workers: Annotated[
        Annotated[int, Range(0)], "Worker processes; 0: the main process makes the batches."
    ]
    prefetch_factor: Annotated[
        Positive | None, "Batches each worker makes ahead; null: torch's default, 2, or no workers."
    ] = None
    pin_memory: Annotated[bool, "Whether batches are copied to pinned memory."] = False
    persistent_workers: Annotated[bool, "Whether workers stay between epochs."] = False
    start_method: Annotated[
        Annotated[str, OneOf(START_METHODS)] | None,
        "How workers start: fork, spawn or forkserver; null: as the program has it.",
    ] = None
    in_order: Annotated[
        bool | None,
        "Whether batches are handed out in order (torch 2.6 and later); null: as the program has "
        "it.",
    ] = None
    threads: Annotated[
        Positive | None,
        "Threads of torch, OpenMP and cv2 in each worker; null: as the program has it.",
    ] = None
    torch_threads: Annotated[
        Positive | None, "Threads of torch in the training process; null: as the program has them."
    ] = None

    def __post_init__(self) -> None:
        declared.check(self)

    def normal(self) -> Setting:
        """Return the canonical setting: settings that make the same loader become equal."""
        if self.num_workers == 0:
            return Setting(0, pin_memory=self.pin_memory, torch_threads=self.torch_threads)
        if self.prefetch_factor is None:
            return dataclasses.replace(self, prefetch_factor=TORCH_PREFETCH)
        return self

    def words(self) -> str:
        """Describe the setting: "4 workers x prefetch 2, pinned, persistent"."""
        value = self.normal()
        text = plural(value.num_workers, "worker") if value.num_workers else "no workers"
        if value.num_workers:
            text += f" x prefetch {value.prefetch_factor or TORCH_PREFETCH}"
        for is_so, word in ((value.pin_memory, "pinned"), (value.persistent_workers, "persistent")):
            text += f", {word}" if is_so else ""
        if value.start_method is not None:
            text += f", {value.start_method}"
        if value.in_order is False:
            text += ", not in order"
        if value.threads is not None:
            text += f", {plural(value.threads, 'thread')} each"
        if value.torch_threads is not None:
            text += f", {plural(value.torch_threads, 'torch thread')}"
        return text

    def kwargs(self) -> dict[str, Any]:
        """Return arguments of torch.utils.data.DataLoader that replace the program's own.

        Without workers, arguments that torch then refuses are None, so that they also replace the
        program's. `threads` and `torch_threads` are not arguments of a loader.
        """
        made = self.normal()
        arguments: dict[str, Any] = {
            "num_workers": made.num_workers,
            "prefetch_factor": made.prefetch_factor,
            "pin_memory": made.pin_memory,
            "persistent_workers": made.persistent_workers,
        }
        if made.num_workers == 0:
            arguments["multiprocessing_context"] = None
        elif made.start_method is not None:
            arguments["multiprocessing_context"] = made.start_method
        if made.in_order is not None:
            arguments["in_order"] = made.in_order
        return arguments

    def as_json(self) -> dict[str, Value]:
        """Return all fields as JSON types."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: object) -> Setting:
        """Return a setting from JSON; fields may be absent. Raises ValueError for unknown ones."""
        return declared.read_as(cls, data, "the setting")

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Setting):
            return NotImplemented
        return self._order() < other._order()

    def _order(self) -> tuple[tuple[bool, Any], ...]:
        """Return a sort key that puts None before all values."""
        values = (getattr(self, name) for name in PARAMETERS)
        return tuple((value is not None, 0 if value is None else value) for value in values)


PARAMETERS = tuple(field.name for field in dataclasses.fields(Setting))
# Parameters that trials can measure: they emulate the training step, and no emulation knows how the
# step scales with threads.
LOADER_PARAMETERS = tuple(name for name in PARAMETERS if name != "torch_threads")


@dataclass(frozen=True)
class Space:
    """The values that each parameter of a loader may take, in all combinations.

    Raises ValueError.
    """

    num_workers: tuple[int, ...]
    prefetch_factor: tuple[int | None, ...] = (None,)
    pin_memory: tuple[bool, ...] = (False,)
    persistent_workers: tuple[bool, ...] = (False,)
    start_method: tuple[str | None, ...] = (None,)
    in_order: tuple[bool | None, ...] = (None,)
    threads: tuple[int | None, ...] = (None,)

    def __post_init__(self) -> None:
        for name in LOADER_PARAMETERS:
            values = tuple(getattr(self, name))
            object.__setattr__(self, name, values)
            if not values:
                raise ValueError(f"{name} has no value to choose from")
            if len(set(values)) < len(values):
                raise ValueError(f"{name} has a value twice")
            for value in values:
                fields: dict[str, Any] = {"num_workers": 1, name: value}
                Setting(**fields)  # raises ValueError for invalid values

    def values(self, name: str) -> tuple[Value, ...]:
        """Return the values of a parameter in their order. Raises KeyError."""
        if name not in LOADER_PARAMETERS:
            raise KeyError(name)
        chosen: tuple[Value, ...] = getattr(self, name)
        return chosen

    def varied(self) -> tuple[str, ...]:
        """Return the parameters with more than one value."""
        return tuple(name for name in LOADER_PARAMETERS if len(self.values(name)) > 1)

    def size(self) -> int:
        """Return the number of combinations, including those that make the same loader."""
        return math.prod(len(self.values(name)) for name in LOADER_PARAMETERS)

    def settings(self) -> Iterator[Setting]:
        """Yield all distinct settings, normalised, the last parameter changing fastest."""
        seen: set[Setting] = set()
        for values in itertools.product(*(self.values(name) for name in LOADER_PARAMETERS)):
            fields: dict[str, Any] = dict(zip(LOADER_PARAMETERS, values, strict=True))
            setting = Setting(**fields).normal()
            if setting not in seen:
                seen.add(setting)
                yield setting

    def __contains__(self, setting: object) -> bool:
        """Return True if a combination of the space makes the same loader as this setting."""
        if not isinstance(setting, Setting):
            return False
        wanted = setting.normal()
        if wanted.torch_threads is not None:
            return False
        if wanted.num_workers == 0:
            return 0 in self.num_workers and wanted.pin_memory in self.pin_memory
        prefetches = {TORCH_PREFETCH if p is None else p for p in self.prefetch_factor}
        return wanted.prefetch_factor in prefetches and all(
            getattr(wanted, name) in self.values(name)
            for name in LOADER_PARAMETERS
            if name != "prefetch_factor"
        )


@dataclass(frozen=True)
class Observed:
    """Observations of a trial besides its rate: seconds per batch, without training steps.

    `cpu_s` and `queued_s` are sums over all workers: their CPU time, and their run-queue delay. If
    workers are never idle, their waiting for storage or anything else but a core is
    capacity_s x workers - cpu_s - queued_s. Raises ValueError for impossible values.
    """

    capacity_s: float  # mean time between batches that are taken at once
    cpu_s: float
    queued_s: float
    get_s: float  # CPU time of the main process in `next`
    variation: float  # standard deviation of whole batches' times over their mean
    startup_s: float  # from `iter()` to the first batch
    iter_s: float  # the part of startup_s in `iter()`, which starts the workers
    shutdown_s: float  # of the whole loader
    samples: float  # mean number per batch

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} is {value}: it must be finite and at least 0")
        if not (self.capacity_s > 0 and self.samples > 0):
            raise ValueError("a batch takes some time and has samples")


@dataclass(frozen=True)
class Measurement:
    """The result of one trial of a setting. A failed trial has the rate 0 and a reason.

    `samples_per_s` is the rate over a whole epoch. It includes set-up (first batch, end of the
    workers) unless the workers are persistent or the number of batches is not known.
    """

    setting: Setting
    samples_per_s: float
    low: float  # the 95 % interval of samples_per_s
    high: float
    seconds: float  # duration of the trial, including start-up
    first_batch_s: float | None = None
    memory_bytes: int | None = None
    failed: str = ""
    observed: Observed | None = None

    def __post_init__(self) -> None:
        if self.failed and (self.samples_per_s or self.low or self.high):
            raise ValueError("a trial that failed has no rate")

    @classmethod
    def failure(cls, setting: Setting, why: str, seconds: float = 0.0) -> Measurement:
        """Return the measurement of a failed trial."""
        if not why:
            raise ValueError("a failure needs its reason")
        return cls(setting, 0.0, 0.0, 0.0, seconds, failed=why)
