"""Makes the simulator's input from a run: the cost of each batch, operation by operation.

It keeps the costs of every batch instead of means, because slow batches make a loader stall.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lotus.analysis.batches.waits import loop_times
from lotus.analysis.common.columns import float_column, int_column, ratio, total
from lotus.analysis.common.remade_loaders import merged, number_of
from lotus.analysis.common.scope import RunLike, Scope, iterated, scopes, table
from lotus.common.errors import LotusError
from lotus.common.numbers.array_types import Bools, Floats
from lotus.inside.trace.log.log_format import FAILED, STOPPED
from lotus.settings.space import START_METHODS, Setting
from lotus.tune.simulation.batch_parts import (
    COLLATE,
    ENOUGH,
    costs,
    least_crowding,
    own_waiting,
    waiting,
)
from lotus.tune.simulation.loader_simulation import simulate, steady_rate
from lotus.tune.simulation.loop_edges import (
    first_extra,
    first_of_process,
    handover,
    memory,
    shared_memory,
    start_and_end,
)
from lotus.tune.simulation.simulation_types import LoaderOutcome, Machine, Work

STEP = "step"  # the training step, which --speedup accepts like a part
# The most times the recorded batches that an epoch may have; a damaged log may contain any number.
_MOST_TIMES = 10
# Load of other programs per core from which a note says so.
_FOREIGN = 0.1


@dataclass(frozen=True)
class Figures:
    """Measured figures of a run, named as in `LoaderOutcome`; NaN: not known."""

    samples_per_s: float
    steady_samples_per_s: float
    first_batch_s: float
    wait_share: float
    seconds: float


@dataclass(frozen=True)
class RunProfile:
    """Costs of one loader's batches on one rank, in ns.

    `cpu` and `wait` have a row per batch and a column per part (operations, the data set's own
    code, collate). `wait` is time off the core without the waiting for busy cores.
    """

    loader: int
    title: str
    setting: Setting
    cores: float
    epochs: int
    batches: int  # per epoch
    parts: tuple[str, ...]
    size: Floats
    cpu: Floats
    wait: Floats
    nested: Mapping[str, Floats]  # time in operations inside others, whose time includes it
    bytes: Floats
    read_bytes: Floats
    step_ns: Floats
    step_cores: float
    fixed: Mapping[str, float]  # the other fields of Work
    crowding: float  # wall time of computing per CPU time
    busy: float  # cores busy while a worker computes, itself included
    others: float  # see Machine
    measured: Figures
    notes: tuple[str, ...]

    def names(self) -> list[str]:
        """Return names of the parts that can be made faster."""
        return [*dict.fromkeys((*self.parts, *self.nested)), STEP]

    def work(self, speedups: Mapping[str, float] | None = None, contention: float = 0.0) -> Work:
        """Return the simulator's input, with parts made faster by the factors in `speedups`.

        The effect of `contention`, that of the measured machine, is removed from the times.
        Raises LotusError for a part that the run does not have.
        """
        known = self.names()
        faster = dict(speedups or {})
        for name, factor in faster.items():
            if name not in known:
                raise LotusError(f"the run has no {name!r}; it has: {', '.join(known)}")
            if not 0 < factor < math.inf:
                raise LotusError(f"{name}={factor}: a speed-up must be above 0")
        scale = np.array([1.0 / faster.get(name, 1.0) for name in self.parts])
        alone = 1.0 / (1.0 + contention * max(self.busy - 1.0, 0.0))
        cpu = self.cpu @ scale
        wait = self.wait @ scale
        for name, inner in self.nested.items():
            saved = inner * (1.0 - 1.0 / faster.get(name, 1.0))
            cpu = np.maximum(cpu - saved, 0.0)
        steps, shared = self.step_ns, self.fixed["shared_ns"]
        if not self.setting.num_workers:  # Work has the times with workers
            cpu = cpu + shared
            steps = steps + self.fixed["free_ns"]
        freed = self.fixed["free_ns"] * (self.crowding if self.setting.num_workers else 1.0)
        fixed = {**self.fixed, "shared_ns": shared * alone, "free_ns": freed}
        step = steps / faster.get(STEP, 1.0) * (alone if self.step_cores else 1.0)
        try:
            return Work(
                size=self.size,
                cpu_ns=cpu * alone,
                wait_ns=wait,
                step_ns=step,
                bytes=self.bytes,
                read_bytes=np.zeros(len(self.size)),
                step_cores=self.step_cores,
                **fixed,
            )
        except ValueError as error:  # a damaged run
            raise LotusError(
                f"the run's times cannot be replayed: {error}; record it again with: "
                "lotus trace --level op+cpu -- COMMAND"
            ) from None

    def machine(self, contention: float = 0.0) -> Machine:
        """Return the machine on which the run was recorded."""
        return Machine(self.cores, contention, others=self.others)

    def replay(self, contention: float = 0.0) -> LoaderOutcome:
        """Simulate the run itself."""
        return simulate(
            self.work(contention=contention),
            self.setting,
            self.machine(contention),
            batches=self.batches,
            epochs=self.epochs,
        )


def profile(run: RunLike, loader: int | None = None, step_cores: float = 1.0) -> RunProfile:
    """Return the profile of a loader (default: the one with the most samples) on its first rank.

    `step_cores` is the number of cores that the training step keeps busy; a run does not record it.
    Raises LotusError if the run has no such loader, or no batch of it was taken.
    """
    run = merged(run)
    known = iterated(run)
    loader = None if loader is None else number_of(run, loader)
    if loader is not None and loader not in known:
        names = ", ".join(str(number) for number in sorted(known)) or "none"
        raise LotusError(f"there is no loader {loader} in this run; there are: {names}")
    if not known:
        raise LotusError(
            "no DataLoader was iterated in this run: there is nothing to replay; record one with: "
            "lotus trace --level op+cpu -- COMMAND"
        )
    scope = scopes(run, [known[0] if loader is None else loader])[0]
    return _profile(scope, table(run, "resources"), step_cores)


def _profile(scope: Scope, resources: pd.DataFrame, step_cores: float) -> RunProfile:
    notes: list[str] = []
    rank = scope.ranks[0] if scope.ranks else 0
    if len(scope.ranks) > 1:
        notes.append(f"of {len(scope.ranks)} ranks, rank {rank} is replayed on its share of cores")
    own = {
        name: frame[int_column(frame, "rank") == rank].reset_index(drop=True)
        for name in ("ops", "batches", "waits", "epochs", "workers")
        for frame in [getattr(scope, name)]
    }
    batches = _made(own["batches"])
    steps = float_column(own["waits"], "step_ns")
    steps = steps[~np.isnan(steps)]
    if not len(batches) or not len(steps):
        raise LotusError(
            "the run has too few batches to replay: record at least two of a loader, with: "
            "lotus trace --level op+cpu -- COMMAND"
        )
    cores = _cores(scope, notes)
    setting = _setting(scope.settings, scope.num_workers)
    # Its workers end with each.
    if scope.times_created > 1 and scope.times_created >= scope.epoch_count:
        setting = dataclasses.replace(setting, persistent_workers=False)
    workers = setting.num_workers
    parts, wall, cpu, nested = costs(own["ops"], batches, notes)

    loop = loop_times(own["epochs"], own["waits"])
    own_ns = own_waiting(wall, cpu, batches)
    runnable = float(wall.sum()) - own_ns if own_ns is not None else max(float(cpu.sum()), 1.0)
    demand = _demand(loop, runnable, workers, step_cores)
    crowding = _crowding(wall, cpu, own_ns, demand, cores)
    wait = waiting(wall, cpu, crowding)
    foreign = _foreign(crowding, demand / cores, notes)
    machine = Machine(cores, others=foreign)
    firsts = first_of_process(batches)
    first_ns = first_extra(batches, firsts)
    cpu = _without_first(cpu, firsts, first_ns)
    notes += _assumptions(scope, step_cores)
    each = float_column(own["epochs"], "batches")
    made_profile = RunProfile(
        loader=scope.loader,
        title=scope.title,
        setting=setting,
        cores=cores,
        epochs=max(len(loop), 1),
        batches=len(batches) if scope.partial else _per_epoch(each, len(batches)),
        parts=parts,
        size=float_column(batches, "size"),
        cpu=cpu,
        wait=wait,
        nested=nested,
        bytes=np.nan_to_num(float_column(batches, "bytes")),
        read_bytes=np.nan_to_num(float_column(batches, "read_bytes")),
        step_ns=steps,
        step_cores=step_cores,
        fixed={
            **start_and_end(own["epochs"], own["workers"], workers, machine, notes),
            **handover(batches, workers, machine, notes),
            **shared_memory(batches, cpu[:, parts.index(COLLATE)], workers, notes),
            **memory(resources, own["batches"], setting, notes),
            "first_ns": first_ns,
        },
        crowding=crowding,
        busy=min(demand, cores),
        others=foreign,
        measured=_figures(loop, batches, own["epochs"], setting, scope.partial),
        notes=tuple(notes),
    )
    return _own_steps(made_profile)


def _cores(scope: Scope, notes: list[str]) -> float:
    """Return how many cores the run had, or is assumed to have had."""
    if scope.cores > 0:
        return scope.cores
    notes.append("the run did not record how many cores it had: 1 is assumed")
    return 1.0


def _foreign(crowding: float, own: float, notes: list[str]) -> float:
    """Return the processes of other programs per core: contention beyond the loader's `own`."""
    foreign = max(crowding - max(own, 1.0), 0.0) / min(own, 1.0)
    if foreign > _FOREIGN:
        notes.append(
            f"other programs also used the cores: on average {foreign:.1f} processes per core"
        )
    return foreign


def _per_epoch(told: Floats, recorded: int) -> int:
    """Return how many batches an epoch has: the log's number, if it is plausible."""
    return int(min(max(np.nanmax(told, initial=0.0), 1.0), _MOST_TIMES * recorded))


def _made(batches: pd.DataFrame) -> pd.DataFrame:
    """Return the batches that hold samples and whose fetch is known."""
    made = ~np.isnan(float_column(batches, "fetch_ns")) & (float_column(batches, "size") > 0)
    made &= (int_column(batches, "flags", 0) & (FAILED | STOPPED)) == 0
    return batches[made].reset_index(drop=True)


def _demand(loop: pd.DataFrame, runnable_ns: float, workers: int, step_cores: float) -> float:
    """Return how many processes want a core while one of the workers does, itself included.

    `runnable_ns` is the time for which all workers together had or wanted a core. Raises LotusError
    where the loop took no time.
    """
    loop_ns = total(float_column(loop, "loop_ns"))
    if not loop_ns > 0:
        raise LotusError(
            "the run's times cannot be replayed as a loop; record it again with: "
            "lotus trace --level op+cpu -- COMMAND"
        )
    step_share = ratio(total(float_column(loop, "step_ns")), loop_ns)
    used = min(ratio(runnable_ns, loop_ns * max(workers, 1)), 1.0)
    return 1.0 + max(workers - 1, 0) * used + (step_cores * step_share if workers else 0.0)


def _without_first(cpu: Floats, firsts: Bools, first_ns: float) -> Floats:
    """Return CPU times without what the first batch of a process takes more than the others.

    The simulator adds it again wherever a process starts.
    """
    computing = cpu.sum(axis=1)
    over = np.where(firsts, np.minimum(first_ns, computing), 0.0)
    return np.asarray(cpu * (1.0 - over / np.maximum(computing, 1.0))[:, None])


def _crowding(
    wall: Floats, cpu: Floats, own_ns: float | None, demand: float, cores: float
) -> float:
    """Return how many times as long as its CPU time the computing took, for want of cores.

    `own_ns` is what batches waited for other things than a core; None where that is not known.
    """
    if own_ns is None:
        return least_crowding(wall, cpu, demand, cores)
    everything, computed = float(wall.sum()), max(float(cpu.sum()), 1.0)
    if everything - computed - own_ns < ENOUGH * everything:
        return 1.0  # within noise
    return (everything - own_ns) / computed


def _assumptions(scope: Scope, step_cores: float) -> Iterator[str]:
    """Say what a replay takes for granted of this loader."""
    if scope.partial:
        yield "not every batch was recorded, so the run's own rates are not known"
    if scope.times_created > 1 and scope.num_workers:
        yield (
            f"the program creates this loader {scope.times_created} times, and its workers start "
            "each time; --persistent assumes that it creates it once"
        )
    if scope.settings.get("dataset_kind") == "iterable":
        yield (
            "the data set is iterable: other numbers of workers assume that it shares its samples "
            "among them"
        )
    if step_cores:
        yield (
            f"a step is assumed to keep {step_cores:g} core{'s' if step_cores != 1 else ''} busy "
            "(--step-cores; use 0 if it waits for an accelerator)"
        )


def _setting(settings: Mapping[str, Any], workers: int) -> Setting:
    """Return the loader's recorded setting; values that were not recorded are torch's defaults."""
    prefetch = settings.get("prefetch_factor")
    method, in_order = settings.get("start_method"), settings.get("in_order")
    return Setting(
        num_workers=workers,
        prefetch_factor=prefetch if isinstance(prefetch, int) and prefetch > 0 else None,
        pin_memory=settings.get("pin_memory") is True,
        persistent_workers=settings.get("persistent_workers") is True,
        start_method=method if method in START_METHODS else None,
        in_order=in_order if isinstance(in_order, bool) else None,
    ).normal()


def _figures(
    loop: pd.DataFrame, batches: pd.DataFrame, epochs: pd.DataFrame, setting: Setting, partial: bool
) -> Figures:
    nan = math.nan
    time, step = total(float_column(loop, "loop_ns")), total(float_column(loop, "step_ns"))
    startup = float_column(epochs, "startup_ns")
    first = float(startup[0]) / 1e9 if len(startup) else nan
    if partial or not time > 0:
        return Figures(nan, nan, first, nan, nan)
    taken, size = float_column(batches, "taken_ns"), float_column(batches, "size")
    seen = ~np.isnan(taken)
    epoch = int_column(batches, "epoch")
    parts = []
    for chosen in np.unique(epoch[seen]):
        mine = np.flatnonzero(seen & (epoch == chosen))
        mine = mine[np.argsort(taken[mine], kind="stable")]
        parts.append((taken[mine], size[mine]))
    depth = max(setting.num_workers * (setting.prefetch_factor or 1), 1)
    return Figures(
        samples_per_s=float(size[seen].sum()) * 1e9 / time,
        steady_samples_per_s=steady_rate(parts, depth) or nan,
        first_batch_s=first,
        wait_share=1.0 - step / time,
        seconds=time / 1e9,
    )


def _own_steps(made: RunProfile) -> RunProfile:
    """Remove from the steps the time in which they waited for cores that workers used."""
    workers = made.setting.num_workers
    crowded = workers + made.step_cores > made.cores or made.others > 0
    if not made.step_cores or not workers or not crowded:
        return made
    measured = float(made.step_ns.mean())
    scale, low = 1.0, made.machine().pace(workers + made.step_cores)
    for _ in range(4):
        tried = dataclasses.replace(made, step_ns=made.step_ns * scale)
        outcome = tried.replay()
        taken = (1.0 - outcome.wait_share) * outcome.seconds * 1e9
        simulated = taken / len(outcome.timeline.order)
        if not simulated > 0:
            break
        scale = min(max(scale * measured / simulated, low), 1.0)
    return dataclasses.replace(made, step_ns=made.step_ns * scale)


def _middle(values: Floats) -> float:
    """Return the mean of the middle half, which a few slow batches do not affect."""
    ordered = np.sort(values)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def contention(first: RunProfile, second: RunProfile) -> float:
    """Return the relative slowdown of all cores for each further busy core, from two runs.

    It follows from the CPU time per sample and the number of busy cores, so the runs must have
    different numbers of workers. Raises LotusError if both kept about as many cores busy.
    """
    low, high = sorted((first, second), key=lambda run: run.busy)
    if high.busy - low.busy < 0.2:
        raise LotusError(
            "both runs kept about as many cores busy, which does not show contention: record one "
            "run with one worker and one with as many workers as there are cores"
        )
    costs = [_middle(run.cpu.sum(axis=1) / run.size) for run in (low, high)]
    growth = costs[1] / max(costs[0], 1e-9)
    # growth = (1 + c (high - 1)) / (1 + c (low - 1))
    below = (high.busy - 1.0) - growth * (low.busy - 1.0)
    return max((growth - 1.0) / below, 0.0) if below > 0 else 0.0
