"""What tuning chooses among: a loader's settings, the space of them, the measurement of one."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# What torch.utils.data.DataLoader takes where there are workers and nothing is said.
TORCH_PREFETCH = 2
START_METHODS = ("fork", "spawn", "forkserver")

Value = int | bool | str | None


@functools.total_ordering
@dataclass(frozen=True)
class Setting:
    """A loader's settings. Smaller means cheaper: fewer workers first, then less prefetched.

    None means torch's default, 2, for `prefetch_factor`, and elsewhere what the program itself has.
    """

    num_workers: int
    prefetch_factor: int | None = None  # batches each worker makes ahead; means nothing without one
    pin_memory: bool = False
    persistent_workers: bool = False
    start_method: str | None = None  # "fork", "spawn", "forkserver"
    in_order: bool | None = None  # torch >= 2.6
    threads: int | None = None  # of torch, OpenMP and cv2, in each worker

    def __post_init__(self) -> None:
        for name, least in (("num_workers", 0), ("prefetch_factor", 1), ("threads", 1)):
            value = getattr(self, name)
            if value is None and name != "num_workers":
                continue
            if type(value) is not int or value < least:
                raise ValueError(f"{name} is {value!r}: it must be a whole number from {least} on")
        for name in ("pin_memory", "persistent_workers", "in_order"):
            value = getattr(self, name)
            if type(value) is not bool and not (value is None and name == "in_order"):
                raise ValueError(f"{name} is {value!r}: it must be true or false")
        if self.start_method is not None and self.start_method not in START_METHODS:
            raise ValueError(
                f"start_method is {self.start_method!r}: it must be one of "
                + ", ".join(START_METHODS)
            )

    def normal(self) -> Setting:
        """What torch would really do: settings that make the same loader become equal."""
        if self.num_workers == 0:
            return Setting(0, pin_memory=self.pin_memory)
        if self.prefetch_factor is None:
            return dataclasses.replace(self, prefetch_factor=TORCH_PREFETCH)
        return self

    def kwargs(self) -> dict[str, Any]:
        """Arguments of torch.utils.data.DataLoader, to be put over the program's own as a whole.

        Those that torch refuses at 0 workers are then given as torch's "none", so that they also
        replace what the program passes. `threads` is no argument of a loader.
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
        """All fields, as JSON's own types."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: object) -> Setting:
        """The setting that `as_json` wrote; fields may be absent, unknown ones are a ValueError."""
        if not isinstance(data, Mapping):
            raise ValueError("a setting must be a JSON object")
        unknown = sorted(str(key) for key in data if key not in PARAMETERS)
        if unknown:
            raise ValueError(f"unknown in a setting: {', '.join(unknown)[:200]}")
        if "num_workers" not in data:
            raise ValueError("a setting must name num_workers")
        return cls(**data)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Setting):
            return NotImplemented
        return self._order() < other._order()

    def _order(self) -> tuple[tuple[bool, Any], ...]:
        """None before all values, as it cannot be compared with them."""
        values = (getattr(self, name) for name in PARAMETERS)
        return tuple((value is not None, 0 if value is None else value) for value in values)


PARAMETERS = tuple(field.name for field in dataclasses.fields(Setting))


@dataclass(frozen=True)
class Space:
    """The values that each parameter may take, all combined with all."""

    num_workers: tuple[int, ...]
    prefetch_factor: tuple[int | None, ...] = (None,)
    pin_memory: tuple[bool, ...] = (False,)
    persistent_workers: tuple[bool, ...] = (False,)
    start_method: tuple[str | None, ...] = (None,)
    in_order: tuple[bool | None, ...] = (None,)
    threads: tuple[int | None, ...] = (None,)

    def __post_init__(self) -> None:
        for name in PARAMETERS:
            values = tuple(getattr(self, name))
            object.__setattr__(self, name, values)
            if not values:
                raise ValueError(f"{name} has no value to choose from")
            if len(set(values)) < len(values):
                raise ValueError(f"{name} has a value twice")
            for value in values:
                fields: dict[str, Any] = {"num_workers": 1, name: value}
                Setting(**fields)  # refuses what no setting may have

    def values(self, name: str) -> tuple[Value, ...]:
        """Those of one parameter, in the order in which they were given."""
        if name not in PARAMETERS:
            raise KeyError(name)
        chosen: tuple[Value, ...] = getattr(self, name)
        return chosen

    def varied(self) -> tuple[str, ...]:
        """The parameters that have more than one value."""
        return tuple(name for name in PARAMETERS if len(self.values(name)) > 1)

    def size(self) -> int:
        """Combinations, those that torch would make the same loader of counted apart."""
        return math.prod(len(self.values(name)) for name in PARAMETERS)

    def settings(self) -> Iterator[Setting]:
        """All settings, normal, each once, the last parameter changing fastest."""
        seen: set[Setting] = set()
        for values in itertools.product(*(self.values(name) for name in PARAMETERS)):
            fields: dict[str, Any] = dict(zip(PARAMETERS, values, strict=True))
            setting = Setting(**fields).normal()
            if setting not in seen:
                seen.add(setting)
                yield setting

    def __contains__(self, setting: object) -> bool:
        """Whether a combination of the space makes the same loader as this setting."""
        if not isinstance(setting, Setting):
            return False
        wanted = setting.normal()
        if wanted.num_workers == 0:
            return 0 in self.num_workers and wanted.pin_memory in self.pin_memory
        prefetches = {TORCH_PREFETCH if p is None else p for p in self.prefetch_factor}
        return wanted.prefetch_factor in prefetches and all(
            getattr(wanted, name) in self.values(name)
            for name in PARAMETERS
            if name != "prefetch_factor"
        )


@dataclass(frozen=True)
class Observed:
    """What a trial showed besides its rate: seconds per batch, without steps between batches.

    `cpu_s` and `queued_s` are sums over all workers: their CPU time, and the time in which they
    were ready to run and had no core. Where workers never idle, what they waited for storage or
    anything else that is no core is capacity_s x workers - cpu_s - queued_s.
    """

    capacity_s: float  # mean, from one batch to the next, where the consumer takes at once
    cpu_s: float
    queued_s: float
    get_s: float  # CPU time of the main process in `next`
    variation: float  # standard deviation over mean of the times of whole batches
    startup_s: float  # from `iter()` to the first batch
    iter_s: float  # the part of it in `iter()`: the start of the workers
    shutdown_s: float  # of the whole loader
    samples: float  # mean of a batch

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} is {value}: it must be finite and at least 0")
        if not (self.capacity_s > 0 and self.samples > 0):
            raise ValueError("a batch takes some time and has samples")


@dataclass(frozen=True)
class Measurement:
    """What one trial of a setting gave. A trial that failed has the rate 0 and says why.

    `samples_per_s` is what a whole epoch brings, its set-up (first batch, end of the workers)
    included, unless the workers persist or the number of batches is not known.
    """

    setting: Setting
    samples_per_s: float
    low: float  # of the 95 % interval of samples_per_s
    high: float
    seconds: float  # what the trial cost, start-up included
    first_batch_s: float | None = None
    memory_bytes: int | None = None
    failed: str = ""
    observed: Observed | None = None

    def __post_init__(self) -> None:
        if self.failed and (self.samples_per_s or self.low or self.high):
            raise ValueError("a trial that failed has no rate")

    @classmethod
    def failure(cls, setting: Setting, why: str, seconds: float = 0.0) -> Measurement:
        """The measurement of a trial that did not work."""
        if not why:
            raise ValueError("a failure needs its reason")
        return cls(setting, 0.0, 0.0, 0.0, seconds, failed=why)
