"""What the options of `lotus sweep` ask for: a new sweep, or one that continues as planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lotus.common.errors import LotusError
from lotus.settings import tuned_file
from lotus.settings.space import Value
from lotus.sweep.sweep_plan import WITHOUT_WORKERS, SweepPlan, combined

if TYPE_CHECKING:  # pandas
    from lotus.sweep.sweep_record import Sweep

REPEAT = 3
COUNTERS = "auto"
_OPTIONS = {
    "num_workers": "--workers",
    "prefetch_factor": "--prefetch",
    "pin_memory": "--pin-memory",
    "persistent_workers": "--persistent",
    "start_method": "--start-method",
}


@dataclass(frozen=True)
class SweepRequest:
    """The options that were given; None or False: not given.

    `values` has the values of each parameter that can be varied. `loader` is a loader's number or
    the class of its data set. `counters` are as for `lotus trace --counters`, or "none".
    """

    values: Mapping[str, Sequence[Value] | None]
    repeat: int | None = None
    seed: int | None = None
    loader: int | str | None = None
    batches: str | None = None
    counters: str | None = None
    perf: bool = False
    iterable_safe: bool = False
    output: Path | None = None

    @property
    def target(self) -> dict[str, Any] | None:
        """The loader, in the words of `LOTUS_SETTINGS`; None: every loader."""
        if self.loader is None:
            return None
        return {"number" if isinstance(self.loader, int) else "dataset": self.loader}

    def plan(self) -> SweepPlan:
        """Return the plan of a new sweep, with defaults for what was not given."""
        varied = {name: values for name, values in self.values.items() if values is not None}
        if "num_workers" not in varied:
            varied = {"num_workers": worker_counts(int(tuned_file.machine()["cores"])), **varied}
        return SweepPlan(
            settings=combined(varied),
            varied=tuple(varied),
            repeat=REPEAT if self.repeat is None else self.repeat,
            loader=self.target,
            batches=self.batches,
            counters=None if self.counters == "none" else self.counters or COUNTERS,
            perf=self.perf,
            iterable_safe=self.iterable_safe,
        )

    def check_resumed(self, sweep: Sweep) -> None:
        """Raise LotusError if an option differs from the sweep that is to be continued."""
        compared = {**self._compared_values(sweep), **self._compared_options(sweep)}
        differing = [option for option, (asked, planned) in compared.items() if asked != planned]
        if differing:
            raise LotusError(
                f"{', '.join(differing)}: not as in the sweep of {sweep.path}, which continues "
                "unchanged; leave it out, or begin another sweep with -o"
            )

    def _compared_values(self, sweep: Sweep) -> dict[str, tuple[object, object]]:
        """Return (values asked for, the sweep's) by option, of the parameters that were given."""
        compared: dict[str, tuple[object, object]] = {}
        for name, values in self.values.items():
            if values is None:
                continue
            always = name in WITHOUT_WORKERS
            settings = [setting for setting in sweep.settings() if always or setting.num_workers]
            planned = {getattr(setting, name) for setting in settings}
            compared[_OPTIONS[name]] = set(values), planned if name in sweep.varied else set()
        return compared

    def _compared_options(self, sweep: Sweep) -> dict[str, tuple[object, object]]:
        """Return (value asked for, the sweep's) of the other options that were given."""
        known = sweep.manifest.get("plan")
        plan = known if isinstance(known, dict) else {}
        options: tuple[tuple[str, object, object], ...] = (
            ("--repeat", self.repeat, plan.get("repeat")),
            ("--seed", self.seed, sweep.manifest.get("seed")),
            ("--loader", self.target, plan.get("loader")),
            ("--batches", self.batches, plan.get("batches")),
            ("--counters", self.counters, plan.get("counters") or "none"),
            ("--perf", self.perf or None, plan.get("perf")),
            ("--iterable-safe", self.iterable_safe or None, plan.get("iterable_safe")),
            ("--output", self.output and self.output.resolve(), sweep.path.resolve()),
        )
        return {option: (asked, planned) for option, asked, planned in options if asked is not None}


def worker_counts(cores: int) -> tuple[int, ...]:
    """Return 1, 2, 4, ... and the number of cores."""
    powers = [1 << power for power in range(20) if 1 << power < cores]
    return (*powers, max(cores, 1))
