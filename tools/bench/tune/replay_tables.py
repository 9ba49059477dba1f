"""The tables on which comparison.py replays searches: recorded ones, and simulated ones.

The simulated ones are the recorded workloads on a machine of 64 cores: the costs of their batches
were measured in one process (measure.py); the slow-down of cores by each other and the
duration of the step are drawn by seed. The truth is a simulation of whole epochs
(lotus/tune/simulation/loader_simulation.py). A trial gives the rate and, as real ones do, mean
times of its batches (`Observed`), all with noise; the recorded tables have only rates. `lotus`
predicts with lotus/tune/simulation/formula_model.py from what trials give it; it sees neither those
costs nor the simulator, but the two models of a loader are similar.
"""

import itertools
import math
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lotus.settings.space import Observed, Setting, Space
from lotus.tune.simulation.loader_simulation import simulate
from lotus.tune.simulation.simulation_types import Machine, Work
from lotus.tune.strategies.problem import Problem
from tools.bench.tune.strategy_replay import Timings

CORES = 64
COUNTS = (0, 1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 63, 64, 96, 128)
PREFETCHES = (1, 2, 4)
NOISE = 0.03  # of a simulated trial: standard deviation of the rate's logarithm
LONGER = 4  # times as many batches as recorded, as 64 cores would have more to do
MOST = 600  # batches of a simulated epoch, or as many as fill all queues DEEP times
DEEP = 4
BLOCK_S = 1.0  # of a simulated trial, or LEAST batches
LEAST = 10
NOISY = ("capacity_s", "cpu_s", "queued_s", "get_s", "startup_s", "shutdown_s", "variation")


class Table(Timings):
    """Timings where another block of a setting costs no start, as its loader is open already.

    `observed`: what else a trial shows, by setting without `persistent_workers`.
    """

    def __init__(self, table, observed=None):
        super().__init__(table)
        self.observed = observed or {}
        self.opened = set()

    def trial(self, setting, noise, chance):
        trial = super().trial(setting, noise, chance)
        seen = self.observed.get(replace(setting.normal(), persistent_workers=False))
        if seen is not None and not trial.failed:
            times = {
                name: getattr(seen, name) * math.exp(chance.gauss(0.0, noise)) for name in NOISY
            }
            trial = replace(trial, observed=replace(seen, **times))
        again = setting.normal() in self.opened
        self.opened.add(setting.normal())
        if not again or trial.first_batch_s is None:
            return trial
        return replace(trial, seconds=max(trial.seconds - trial.first_batch_s, 0.0))


@dataclass(frozen=True)
class Case:
    """One workload on one machine."""

    workload: str
    table: Table
    problem: Problem
    noise: float = 0.0  # beyond what the table's repetitions have


def recorded(grid, facts, cores):
    """A case for each workload of the recorded grid."""
    cases = []
    for workload, rows in grid.groupby("workload", sort=False):
        known = facts[workload]
        space = Space(
            num_workers=tuple(sorted(int(count) for count in rows.num_workers.unique())),
            prefetch_factor=tuple(sorted(int(p) for p in rows.prefetch_factor.dropna().unique())),
            persistent_workers=(False, True),
        )
        cases.append(Case(workload, Table(rows), problem(known, space, cores)))
    return cases


def problem(known, space, cores):
    """Return the problem that a search gets for a workload, from its recorded facts."""
    return Problem(
        space,
        Setting(**{"num_workers": 0, **known["own"]}),
        cores,
        known["batches"],
        known["size"],
        float(np.mean(known["step_ns"])) / 1e9,
        known["step_cores"],
        iterable=known["iterable"],
    )


def simulated(facts, draws):
    """Cases of 64 cores, `draws` for each workload."""
    jobs = list(itertools.product(facts.items(), range(draws)))
    with ProcessPoolExecutor() as pool:
        return list(pool.map(_simulated, jobs))


def _simulated(job):
    (workload, known), draw = job
    chance = np.random.default_rng([draw, *workload.encode()])
    slower = math.exp(chance.uniform(math.log(0.1), math.log(1.0))) / CORES
    quicker = math.exp(chance.uniform(0.0, math.log(CORES)))
    count = len(known["cpu_ns"])
    step = np.array(known["step_ns"], float) / quicker
    spread = {name: float(known[name]) for name in ("pickle_ns", "get_ns", "spawn_ns", "boot_ns")}
    work = Work(
        np.full(count, float(known["size"])),
        np.array(known["cpu_ns"], float),
        np.array(known["wait_ns"], float),
        step,
        np.full(count, 1e6),
        np.zeros(count),
        step_cores=min(known["step_cores"], 1.0),
        shutdown_ns=float(known["shutdown_ns"]),
        **spread,
    )
    machine = Machine(CORES, slower)
    batches = known["batches"] * LONGER
    space = Space(COUNTS, PREFETCHES, persistent_workers=(False, True))
    rows, observed = [], {}
    for setting in Space(COUNTS, PREFETCHES).settings():
        rows += _rows(work, setting, machine, batches)
        observed[setting] = _observed(work, setting, machine, rows[-1]["first_batch_s"])
    facts = {**known, "batches": batches, "step_ns": step}
    name = f"{workload} {draw + 1}"
    return Case(name, Table(pd.DataFrame(rows), observed), problem(facts, space, CORES), NOISE)


def _rows(work, setting, machine, batches):
    """A row for each of `persistent_workers`. Of long epochs the rest goes on as it was."""
    depth = setting.num_workers * (setting.prefetch_factor or 0)
    count = min(batches, _long(setting))
    once = simulate(work, setting, machine, batches=count)
    each = float(work.size[0]) / once.steady_samples_per_s
    seconds = once.first_batch_s + max(BLOCK_S, LEAST * each) + depth * each
    took = {False: once.seconds}
    if setting.num_workers:
        seconds += work.shutdown_ns * setting.num_workers / 1e9
        kept = replace(setting, persistent_workers=True)
        # The first of such epochs starts the workers, the last ends them: that is once. Where
        # epochs are short some workers are still starting in the first ones.
        few, many = (4, 8) if count <= 2 * setting.num_workers else (1, 2)
        less = once if few == 1 else simulate(work, kept, machine, batches=count, epochs=few)
        more = simulate(work, kept, machine, batches=count, epochs=many)
        took[True] = (more.seconds - less.seconds) / (many - few)
    rest = (batches - count) * each
    return [
        {
            **setting.as_json(),
            "persistent_workers": persistent,
            "samples_per_s": batches * float(work.size[0]) / (took[persistent] + rest),
            "first_batch_s": once.first_batch_s,
            "seconds": seconds,
        }
        for persistent in took
    ]


def _long(setting):
    """Batches after which a loader of this setting runs evenly, and some more."""
    return max(MOST, DEEP * setting.num_workers * (setting.prefetch_factor or 0))


def _observed(work, setting, machine, startup_s):
    """Return the result of a trial: the second half of a long run without steps."""
    idle = replace(work, step_ns=np.zeros(1))
    more = _long(setting) // 2
    half = simulate(idle, setting, machine, batches=more)
    whole = simulate(idle, setting, machine, batches=2 * more)
    workers = setting.num_workers
    got = work.get_ns / 1e9 if workers else 0.0
    cpu = max((whole.cores * whole.seconds - half.cores * half.seconds) / more - got, 0.0)
    queued = 0.0
    if workers:
        alive = [(seen.seconds - work.iter_ns / 1e9) * workers for seen in (half, whole)]
        at_work, waited = (
            [time * share(seen) for time, seen in zip(alive, (half, whole), strict=True)]
            for share in (lambda seen: 1.0 - seen.idle_share, lambda seen: seen.waiting_share)
        )
        queued = max((at_work[1] - at_work[0] - waited[1] + waited[0]) / more - cpu, 0.0)
    ended = whole.seconds - float(whole.timeline.taken_ns.max()) / 1e9
    fetch = work.cpu_ns + work.wait_ns
    return Observed(
        capacity_s=(whole.seconds - half.seconds) / more,
        cpu_s=cpu,
        queued_s=queued,
        get_s=got,
        variation=float(fetch.std() / (fetch.mean() + (work.pickle_ns if workers else 0.0))),
        startup_s=startup_s,
        iter_s=(work.iter_ns + work.spawn_ns * workers) / 1e9,
        shutdown_s=ended if workers else 0.0,
        samples=float(work.size[0]),
    )
