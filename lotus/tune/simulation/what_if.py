"""Simulates a recorded run under another setting, on another machine or with faster parts."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lotus.common.errors import LotusError
from lotus.common.text.formatting import plain, plural
from lotus.reading.run import load
from lotus.settings.space import Setting
from lotus.tune.simulation import model_error
from lotus.tune.simulation.bottleneck import Binding, binding
from lotus.tune.simulation.loader_simulation import simulate
from lotus.tune.simulation.run_profile import Figures, RunProfile, contention, profile
from lotus.tune.simulation.simulation_types import LoaderOutcome, Machine, Work


@dataclass(frozen=True)
class WhatIfQuestion:
    """The changes to simulate; None or empty: as in the run."""

    num_workers: int | None = None
    prefetch_factor: int | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None
    in_order: bool | None = None
    cores: float | None = None  # other programs then use none of them
    speedups: Mapping[str, float] = dataclasses.field(default_factory=dict)
    latency_ns: float | None = None  # per sample, replaces the measured waiting
    bandwidth: float | None = None  # bytes per second, shared by all readers
    sample_bytes: float | None = None  # bytes read for a sample; None: as measured
    epochs: int | None = None
    batches: int | None = None
    contention: float = 0.0  # of both the recorded and the simulated machine


@dataclass(frozen=True)
class WhatIfAnswer:
    """Simulations of the run as it was (`today`) and with the changes (`then`)."""

    profile: RunProfile
    today: LoaderOutcome
    today_binding: Binding
    then: LoaderOutcome
    then_binding: Binding
    machine: Machine  # of `then`
    contention: float
    notes: list[str]

    @property
    def measured(self) -> Figures:
        """The run as it was."""
        return self.profile.measured

    @property
    def error(self) -> float:
        """Relative error of the simulated rate of the run itself; NaN: unknown."""
        measured = self.measured.samples_per_s
        return self.today.samples_per_s / measured - 1.0 if measured > 0 else math.nan

    @property
    def times(self) -> float | None:
        """The speed-up; None if the simulation is too far off on the run itself."""
        if not model_error.predicts(self.error):
            return None
        return self.then.samples_per_s / self.today.samples_per_s

    @property
    def steady_times(self) -> float | None:
        """The speed-up after warm-up; None if the simulation of that is too far off."""
        measured = self.measured.steady_samples_per_s
        error = self.today.steady_samples_per_s / measured - 1.0 if measured > 0 else math.nan
        if self.times is None or not model_error.predicts(error):
            return None
        return self.then.steady_samples_per_s / max(self.today.steady_samples_per_s, 1e-9)


def answer_of_run(
    path: Path,
    question: WhatIfQuestion,
    loader: int | None = None,
    step_cores: float = 1.0,
    also: Path | None = None,
) -> WhatIfAnswer:
    """Read a run and answer a question about one of its loaders.

    `loader` and `step_cores` are as for `profile`. `also` is a run of the same program with another
    number of workers; it replaces the contention of `question`. Raises LotusError.
    """
    made = profile(load(path), loader, step_cores)
    if also is not None:
        measured = contention(made, profile(load(also), loader, step_cores))
        question = dataclasses.replace(question, contention=measured)
    elif question == WhatIfQuestion():
        raise LotusError(
            "no change was asked for; try: lotus whatif "
            f"{plain(shlex.quote(str(path)))} --workers 2"
        )
    return answer(made, question)


def answer(profile: RunProfile, question: WhatIfQuestion) -> WhatIfAnswer:
    """Simulate the run as it was and with the changes of `question`.

    Raises LotusError for changes that cannot be simulated.
    """
    contention = question.contention
    notes = list(profile.notes)
    base, machine_of_run = profile.work(contention=contention), profile.machine(contention)
    work = profile.work(question.speedups, contention)
    setting, machine = profile.setting, machine_of_run
    changes = {
        name: getattr(question, name)
        for name in (
            "num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "in_order",
        )
        if getattr(question, name) is not None
    }  # fmt: skip
    try:
        setting = dataclasses.replace(setting, **changes).normal()
        if question.cores is not None:
            machine = dataclasses.replace(machine, cores=question.cores, others=0.0)
        work, machine = _storage(work, machine, profile, question)
    except ValueError as error:
        raise LotusError(str(error)) from None
    if bool(setting.num_workers) != bool(profile.setting.num_workers):
        notes.append(
            "only workers collate into new shared memory, which the main process frees: this is "
            f"estimated to cost {work.shared_ns / 1e6:.1f} + {work.free_ns / 1e6:.1f} ms per "
            "batch; a run with that many workers would show the real cost"
        )
    if setting.pin_memory and not work.pin_ns:
        notes.append(
            "the run pinned no batches (that takes an accelerator): pinning is assumed to cost "
            "nothing"
        )
    if not contention and profile.setting.num_workers != setting.num_workers:
        notes.append(
            "busy cores are assumed not to slow each other down; a second run with another number "
            "of workers (--also RUN) shows how much they do"
        )
    batches = profile.batches if question.batches is None else question.batches
    epochs = profile.epochs if question.epochs is None else question.epochs
    today = simulate(
        base, profile.setting, machine_of_run, batches=profile.batches, epochs=profile.epochs
    )
    then = simulate(work, setting, machine, batches=batches, epochs=epochs)
    made = WhatIfAnswer(
        profile=profile,
        today=today,
        today_binding=binding(
            base, today, machine_of_run, batches=profile.batches, epochs=profile.epochs
        ),
        then=then,
        then_binding=binding(work, then, machine, batches=batches, epochs=epochs),
        machine=machine,
        contention=contention,
        notes=notes,
    )
    if model_error.far_off(made.error):
        notes.insert(0, model_error.far_off(made.error))
    return made


def _storage(
    work: Work, machine: Machine, profile: RunProfile, question: WhatIfQuestion
) -> tuple[Work, Machine]:
    """Replace the measured waiting by the storage that `question` describes."""
    if question.sample_bytes is not None and question.bandwidth is None:
        raise LotusError("--sample-bytes needs --bandwidth, such as --bandwidth 200MB/s")
    latency = question.latency_ns
    if question.bandwidth is not None:
        read = profile.read_bytes
        if question.sample_bytes is not None:
            read = profile.size * question.sample_bytes
        if not read.any():
            raise LotusError(
                "the kernel counted no reads from storage (the files were in the page cache, or on "
                "a network file system): give the size of a sample with --sample-bytes"
            )
        work = dataclasses.replace(work, read_bytes=read)
        latency = latency or 0.0
        machine = dataclasses.replace(machine, bandwidth=question.bandwidth)
    return work, dataclasses.replace(machine, latency_ns=latency)


def setting_words(setting: Setting) -> str:
    """Describe a setting: "4 workers, prefetch 2, pinned"."""
    if not setting.num_workers:
        return "no workers" + (", pinned" if setting.pin_memory else "")
    parts = [plural(setting.num_workers, "worker"), f"prefetch {setting.prefetch_factor}"]
    parts += ["pinned"] if setting.pin_memory else []
    parts += ["persistent"] if setting.persistent_workers else []
    parts += ["not in order"] if setting.in_order is False else []
    return ", ".join(parts)
