"""The facts that advice depends on beside its cause: the loader's settings and its machine."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from lotus.analysis.batches.components import core_taken
from lotus.analysis.batches.long_steps import long_steps
from lotus.analysis.batches.stepless_passes import SteplessPasses, stepless_passes
from lotus.analysis.batches.wait_spread import wait_spread
from lotus.analysis.common.columns import flag, float_column, int_column, median, ratio, total
from lotus.analysis.common.scope import Scope
from lotus.analysis.data.data_shares import DataShares
from lotus.analysis.data.repeated_samples import divided_data
from lotus.analysis.data.sent_values import SentValues, sent_values
from lotus.analysis.data.sent_views import sent_views
from lotus.analysis.machine.core_use import (
    CoreUse,
    allowed_cores,
    cores_are_few,
    left_cores,
    workers_are_bound,
)
from lotus.analysis.observations.own_code import (
    HotFunction,
    hot_callee,
    hot_functions,
    hot_lines,
)
from lotus.analysis.observations.step_stacks import IN_INNER_LOOP, IN_LONG_STEP, in_phases
from lotus.analysis.replay.gain_prediction import GainPrediction
from lotus.analysis.samples.later_crops import later_crops
from lotus.analysis.verdict.advice.resources import Resources, resources
from lotus.analysis.verdict.loop_time.batch_making import core_shared
from lotus.common.machine import py_spy_program


@dataclass(frozen=True)
class Circumstances:
    """Facts about a loader beside its charges."""

    workers: int
    cores: float  # that workers may use; NaN: not known
    needed: float  # workers that would keep up with the training step; NaN: not known
    batches: float  # of the longest epoch: more workers have nothing to do; inf: not known
    idle_share: float  # of the workers' time
    shared: float  # of the time that the making of batches was off a core: others had it
    prefetch: int
    pinned: bool
    persistent: bool
    in_order: bool
    times_created: int  # how many times the program created it
    call_site: str  # file:line that made it; "": not known
    hot: list[HotFunction]  # in the data set's own code, as hot_functions has them
    hot_in_sampler: list[HotFunction]
    hot_in_step: list[HotFunction]  # the program's own lines, as hot_lines has them
    spawned: bool
    level: str
    partial: bool  # not every batch was to be recorded
    batch_bytes: float
    pipe_bytes: float
    iterable: bool
    in_sequence: bool  # the sampler takes the samples in their order
    paths: dict[int, str]
    use: CoreUse
    wait_spread: tuple[float, float]  # as wait_spread has it
    resources: Resources
    shares: DataShares  # of the data, among the workers
    epochs: int = 0  # 0: not known
    taken: int = 0  # batches, in all of them; 0: not known
    left: bool = False  # each of several iterations was left before its end
    machine_cores: float = math.nan  # NaN: not known
    few_cores: float = math.nan  # that the program may use, all ranks; NaN: all, or not known
    torch_threads: int = -1  # in which torch computes in the main process; -1: not known
    worker_torch_threads: int = -1  # the same of the workers, at most: 1 unless something sets more
    timeout: bool = False  # the loader gives a worker up after some time
    threads_set_at: str = ""  # `file:line` at which the program sets them; "": not known
    library_threads_set: str = ""  # what gives other libraries several, with its place
    workers_needed_at: str = ""  # `file:line` of code that works in workers only; "": none seen
    hot_in_collate: list[HotFunction] = field(default_factory=list)
    called_in_step: HotFunction | None = None  # as hot_callee has it
    hot_in_long_steps: list[HotFunction] = field(default_factory=list)  # as hot_in_step
    inner_loop: str = ""  # over which most time of the long steps passed: its loader's title
    no_stacks: str = ""  # why there are no stack samples, as `Run.no_stacks`; "": not known
    dataset: str = ""  # name of its class; "": not known
    sampler: str = ""  # class that draws the indices, also if it makes batches; "": not known
    samples: int = 0  # length of the data set; 0: not known
    # The operation within each that has most of its time, by its name; "": none has.
    inner: Mapping[str, str] = field(default_factory=dict)
    crops: Mapping[str, str] = field(default_factory=dict)  # as later_crops has them
    views: tuple[float, float] = (math.nan, math.nan)  # as sent_views has them
    values: SentValues = field(default_factory=SentValues)
    stepless: SteplessPasses = field(default_factory=SteplessPasses)
    replayed: GainPrediction | None = None  # None: batches were not recorded

    @property
    def times_read(self) -> float:
        """The number of times that an epoch has each sample, on average."""
        return self.shares.times_read

    @property
    def threads_are_set(self) -> bool:
        """True if the program sets torch's threads: it was seen to, or they exceed the cores."""
        in_workers = self.worker_torch_threads > 1 and self.torch_threads == self.machine_cores
        seen = self.threads_set_at and self.torch_threads != 1 and not in_workers
        return bool(seen) or self.torch_threads > self.machine_cores

    @property
    def stacks_fix(self) -> str:
        """What would let stacks be sampled, if that was not possible; else ""."""
        return py_spy_program.FIXES.get(self.no_stacks, "")

    @property
    def predict(self) -> GainPrediction | None:
        """Predictions of gains; None if other programs had the cores: gains depend on them then."""
        return None if self.use.rivals else self.replayed


def circumstances_of(scope: Scope, use: CoreUse, shares: DataShares | None = None) -> Circumstances:
    """Gather the circumstances from a loader's tables; `use` and `shares` are of its account.

    `shares` None: they are computed.
    """
    batches, settings = scope.batches, scope.settings
    fetch, step = float_column(batches, "fetch_ns"), float_column(scope.waits, "step_ns")
    idle = total(float_column(batches, "idle_in_loop_ns"))
    step_ns = median(step)
    long = long_steps(scope)
    inner = scope.titles.get(long.inner[0], "") if long and long.is_inner_loop else ""
    stacks = in_phases(scope, long)
    # More workers do not give back the time in which others had the cores.
    measured = (fetch - core_taken(batches, np.nan_to_num(fetch)))[~np.isnan(fetch)]
    mean = float(measured.mean()) if measured.size else float("nan")
    return Circumstances(
        workers=scope.num_workers,
        cores=scope.worker_cores if workers_are_bound(scope) else scope.cores,
        needed=ratio(mean, step_ns),
        batches=_most_batches(scope),
        idle_share=ratio(idle, idle + total(fetch)),
        shared=core_shared(scope, use),
        prefetch=scope.prefetch_factor,
        pinned=bool(settings.get("pin_memory")),
        persistent=bool(settings.get("persistent_workers")),
        in_order=settings.get("in_order") is not False,
        times_created=scope.times_created,
        call_site=str(settings.get("call_site") or ""),
        hot=hot_functions(scope.own_code, "fetch"),
        hot_in_sampler=hot_functions(scope.own_code, "sampler"),
        hot_in_collate=hot_functions(scope.own_code, "collate"),
        hot_in_step=hot_lines(stacks, "step"),
        called_in_step=hot_callee(stacks, "step"),
        hot_in_long_steps=hot_lines(stacks, IN_INNER_LOOP if inner else IN_LONG_STEP),
        inner_loop=inner,
        no_stacks=scope.no_stacks,
        spawned=settings.get("start_method") in ("spawn", "forkserver"),
        level=scope.level,
        partial=scope.partial,
        batch_bytes=median(float_column(batches, "bytes")),
        pipe_bytes=median(float_column(batches, "send_bytes")),
        iterable=settings.get("dataset_kind") == "iterable",
        in_sequence=settings.get("sampler") == "SequentialSampler",
        paths=_paths(scope.paths),
        use=use,
        wait_spread=wait_spread(scope),
        resources=resources(scope),
        shares=divided_data(scope) if shares is None else shares,
        epochs=scope.epoch_count,
        taken=int((~flag(scope.waits, "failed")).sum()),
        left=scope.each_is_left,
        machine_cores=scope.machine_cores,
        few_cores=allowed_cores(scope) if cores_are_few(scope) else math.nan,
        torch_threads=int(max(int_column(scope.epochs, "torch_threads"), default=-1)),
        worker_torch_threads=int(max(int_column(scope.workers, "torch_threads"), default=-1)),
        timeout=float(settings.get("timeout") or 0.0) > 0,
        threads_set_at=str(settings.get("threads_set_at") or ""),
        dataset=str(settings.get("dataset") or ""),
        sampler=_sampler(settings),
        samples=int(settings.get("dataset_length") or 0),
        library_threads_set=str(settings.get("library_threads_set") or ""),
        workers_needed_at=str(settings.get("workers_needed_at") or ""),
        inner={name: scope.calls.mostly(name) for name in scope.calls.outermost},
        crops=later_crops(scope),
        views=sent_views(scope),
        values=sent_values(scope),
        stepless=stepless_passes(scope),
        replayed=GainPrediction(scope, left_cores(scope, use)),
    )


def _sampler(settings: Mapping[str, object]) -> str:
    of_batches = str(settings.get("batch_sampler") or "BatchSampler")
    return of_batches if of_batches != "BatchSampler" else str(settings.get("sampler") or "")


def _paths(paths: pd.DataFrame) -> dict[int, str]:
    """Return the files of samples, by sample."""
    names: Iterable[str] = paths["path"].astype(str) if "path" in paths else []
    return dict(zip(int_column(paths, "sample").tolist(), names, strict=True))


def _most_batches(scope: Scope) -> float:
    """Return the most batches of an epoch that came to its end, on one rank; inf: none did."""
    batches = float_column(scope.epochs, "batches")[flag(scope.epochs, "exhausted")]
    return float(np.nanmax(batches, initial=0.0)) or math.inf
