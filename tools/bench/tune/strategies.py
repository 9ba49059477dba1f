"""Measures regret, settings tried and seconds of strategies on simulated loaders and tables.

    PYTHONPATH=. python tools/bench/tune/strategies.py [--seeds 5] [--first 1000] [--tables]

Workloads of eleven kinds are drawn by seed, each on 2, 4, 16 and 64 cores. A trial has what a real
one would have: a block of about a second from anywhere in a long simulation, with 3 % noise
(--noise, independent for each figure); its rate combines set-up and time per batch as
`Measurement.samples_per_s` does. The truth is the simulation of a whole epoch, so that errors of a
steady rate about a short epoch count as regret. Regret is the loss against the best of the whole
grid. `random` has the seconds that `lotus` took, `adapt` as many as it wants. With --tables, lotus
sees only rates, without `observed`.

The simulator is not the model with which lotus predicts, but both share their costs and much of
their structure: this shows that the search works, not that it is accurate on real programs, which
comparison.py measures.
"""

import argparse
import math
import random
import statistics
import time
from dataclasses import dataclass, replace
from datetime import date

import numpy as np

from lotus.inside.tune.candidates.trial_requests import TrialBlock
from lotus.settings.space import Measurement, Observed, Setting, Space
from lotus.tune.search.trials.trial_rates import needed, rate
from lotus.tune.simulation import epoch_time as epochs
from lotus.tune.simulation.loader_simulation import simulate
from lotus.tune.simulation.simulation_types import Machine, Work
from lotus.tune.strategies import make
from lotus.tune.strategies.problem import Problem
from tools.bench import provenance

NOISE = 0.03
SIZE = 32.0  # samples of a batch
LONG = 1200  # batches of which blocks are cut
RECORDED = 256  # batches whose costs differ; they come again in the same order
BLOCK_S = 1.0
LEAST = 10  # batches of a block
BUDGET_S = 60.0
COUNTS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64)
CORES = (2, 4, 16, 64)


@dataclass(frozen=True)
class Crowded(Machine):
    """A machine whose cores are slowed by each other in pairs as well, so that more can be less."""

    coherence: float = 0.0

    def pace(self, demand: float) -> float:
        busy = min(demand, self.cores)
        return super().pace(demand) / (1.0 + self.coherence * busy * max(busy - 1.0, 0.0))


@dataclass(frozen=True)
class Case:
    kind: str
    work: Work
    machine: Machine
    batches: int
    own: Setting
    space: Space


def draw(kind, cores, seed):
    """A workload of a kind."""
    chance = np.random.default_rng([seed, cores, *kind.encode()])
    ms = 1e6

    def between(low, high):
        return float(np.exp(chance.uniform(np.log(low), np.log(high))))

    cpu, wait, step, variation = between(20, 400), 0.0, 0.0, between(0.03, 0.3)
    pickle, get, boot = between(0.2, 2), between(0.05, 0.5), between(10, 100)
    batches, read, bandwidth = int(between(100, 700)), 0.0, math.inf
    contention, coherence = between(0.01, 0.5) / cores, 0.0
    if kind == "latency":
        cpu, wait = between(1, 8), between(30, 500)
    elif kind == "mixed":
        wait = cpu * between(0.3, 5)
    elif kind == "tailed":
        variation = between(0.6, 1.2)
    elif kind == "consumer":
        step = cpu / max(cores * between(0.15, 0.8), 1.0)
    elif kind == "tiny":
        cpu, get, pickle = between(0.3, 2), between(0.05, 0.2), between(0.05, 0.2)
    elif kind == "arrays":
        cpu, pickle, get = between(10, 60), between(5, 20), between(2, 12)
    elif kind == "short":
        batches, boot = int(between(8, 60)), between(50, 2000)
    elif kind == "storage":
        cpu, read = between(5, 40), 1e6
        bandwidth = read / (cpu / between(1.5, 1.2 * cores)) * 1e3
    elif kind == "crowded":
        coherence = between(0.1, 2) / cores**2
    count = RECORDED
    times = chance.lognormal(0.0, math.sqrt(math.log1p(variation**2)), count)
    if (
        kind == "bursts"
    ):  # now and then a batch waits, for about as long as the steps up to the next
        period = int(chance.choice([8, 16, 32]))
        cpu, step = between(0.5, 4), between(5, 30)
        wait = step * between(0.5, 2)
        times = np.where(np.arange(count) % period == 0, period, 0.01)
    times /= times.mean()
    times = np.tile(times, 8)
    count = len(times)  # enough for all that is asked for: the simulator must not draw again
    steps = chance.lognormal(0.0, 0.03, count)
    work = Work(
        np.full(count, SIZE), cpu * ms * times, wait * ms * times, step * ms * steps,
        np.full(count, 1e6), np.full(count, read), step_cores=float(chance.choice([0.0, 1.0])),
        pickle_ns=pickle * ms, get_ns=get * ms, iter_ns=1 * ms, spawn_ns=between(1, 8) * ms,
        boot_ns=boot * ms, first_ns=between(1, 20) * ms, shutdown_ns=between(1, 20) * ms,
    )  # fmt: skip
    machine = Crowded(cores, contention, bandwidth=bandwidth, coherence=coherence)
    most = max(min(4 * cores, 64), 16)
    counts = tuple(count for count in COUNTS if count <= most)
    space = Space(counts, (1, 2, 4, 8), (False,), (False, True))
    own = Setting(int(chance.choice([0, 0, 1, 2, 4, cores // 2, cores])), 2).normal()
    return Case(kind, work, machine, batches, own, space)


KINDS = (
    "decode", "latency", "mixed", "tailed", "consumer",
    "tiny", "arrays", "short", "storage", "crowded", "bursts",
)  # fmt: skip


class Oracle:
    """The truth of a case, and trials of it."""

    def __init__(self, case, seed, noise=NOISE):
        self.case, self.chance, self.noise = case, random.Random(seed), noise
        self.rates, self.looks, self.outcomes = {}, {}, {}
        self.opened = set()
        self.variation = 0.0  # the most that a trial told

    def rate(self, setting):
        """Samples per second of a whole epoch after the first one."""
        setting = setting.normal()
        if setting not in self.rates:
            batches = self.case.batches
            seconds = self.outcome(setting, batches).seconds
            if setting.persistent_workers:
                seconds = self.outcome(setting, batches, epochs=2).seconds - seconds
                if batches <= 2 * setting.num_workers:
                    # Some workers were still starting in the first epochs.
                    late, later = (self.outcome(setting, batches, epochs=n) for n in (4, 8))
                    seconds = (later.seconds - late.seconds) / 4
            self.rates[setting] = batches * SIZE / seconds
        return self.rates[setting]

    def outcome(self, setting, batches, step=True, epochs=1):
        key = (setting, batches, step, epochs)
        if key not in self.outcomes:
            work = self.case.work if step else replace(self.case.work, step_ns=np.zeros(1))
            machine = self.case.machine
            self.outcomes[key] = simulate(work, setting, machine, batches=batches, epochs=epochs)
        return self.outcomes[key]

    def long(self, setting, step=True):
        """So many batches that blocks may be taken from anywhere in between."""
        return self.outcome(setting, LONG + 2 * self.edge(setting), step)

    def edge(self, setting):
        """Batches that may lie ready when the first is taken, or when no more are asked for."""
        return (1 + (setting.prefetch_factor or 0)) * max(setting.num_workers, 1)

    def block(self, out, longer=True):
        """Times of batches that follow each other, of about a second, from anywhere."""
        edge, workers = self.edge(out.setting), max(out.setting.num_workers, 1)
        times = np.diff(out.timeline.taken_ns[edge:-edge]) / 1e9
        more = needed(self.variation, float(times.mean()), BLOCK_S) if longer else 0
        count = int(min(max(BLOCK_S / times.mean(), LEAST, workers, more), len(times)))
        start = self.chance.randrange(len(times) - count + 1)
        return times[start : start + count]

    def grid(self):
        return max(self.rate(setting) for setting in self.case.space.settings())

    def look(self, setting):
        """Return the times from which blocks are cut: with steps, without, and mean figures."""
        if setting not in self.looks:
            self.looks[setting] = self._look(setting)
        return self.looks[setting]

    def _look(self, setting):
        work, workers = self.case.work, setting.num_workers
        out = self.long(setting, step=False)
        stepped = self.long(setting) if work.step_ns.any() else out
        count = len(out.timeline.taken_ns)
        edges = work.spawn_ns + work.boot_ns + work.first_ns + work.shutdown_ns
        cpu = (out.cores * out.seconds - (work.iter_ns + edges * workers) / 1e9) / count
        got = queued = 0.0
        if workers:
            got = work.get_ns / 1e9
            cpu -= got
            alive = (out.seconds - work.iter_ns / 1e9) * workers / count
            queued = max((1.0 - out.idle_share - out.waiting_share) * alive - cpu, 0.0)
        seen = Observed(
            capacity_s=out.seconds / count, cpu_s=max(cpu, 0.0), queued_s=queued, get_s=got,
            variation=0.0, startup_s=out.first_batch_s,
            iter_s=(work.iter_ns + work.spawn_ns * workers) / 1e9,
            shutdown_s=out.seconds - float(out.timeline.taken_ns.max()) / 1e9 if workers else 0.0,
            samples=SIZE,
        )  # fmt: skip
        return stepped, out, seen

    def trial(self, setting, observed=True):
        case, workers = self.case, setting.num_workers
        stepped, free, seen = self.look(setting.normal())

        def noisy(value):
            return value * math.exp(self.chance.gauss(0.0, self.noise))

        stepping = bool(case.work.step_ns.any())
        alone = self.block(free, longer=not stepping)
        whole = len(alone) // max(workers, 1) * max(workers, 1)
        bursts = alone[:whole].reshape(-1, max(workers, 1)).sum(axis=1)
        seen = replace(
            seen,
            **{
                name: noisy(getattr(seen, name))
                for name in ("cpu_s", "queued_s", "get_s", "startup_s", "shutdown_s")
            },
            capacity_s=noisy(float(alone.mean())),
            variation=float(bursts.std() / bursts.mean()) if len(bursts) > 2 else 0.0,
        )
        self.variation = max(self.variation, seen.variation)
        # Without steps one block tells all.
        times = self.block(stepped) if stepping else alone
        measured = rate_of_times(times, workers)
        seconds = float(times.sum())
        if setting not in self.opened:
            self.opened.add(setting)
            ready = workers * (setting.normal().prefetch_factor or 0)
            seconds += seen.startup_s + seen.shutdown_s + float(alone.sum()) * stepping
            seconds += ready * seen.capacity_s
        factor = noisy(1.0)
        first, end = seen.startup_s, seen.shutdown_s
        if setting.persistent_workers or not workers:
            first = end = 0.0
        step_s = float(case.work.step_ns.mean()) / 1e9
        paces = [
            epochs.observed_pace(workers, sample_s * factor, seen, step_s)
            for sample_s in (
                measured.sample_s,
                measured.high_s,
                max(measured.low_s, measured.sample_s / 10),
            )
        ]
        samples_per_s, low, high = (
            epochs.rate(pace, SIZE, case.batches, first, end) for pace in paces
        )
        # What no block can tell by itself: the noise that it has as a whole.
        wide = math.exp(math.hypot(1.96 * self.noise, math.log(high / low) / 2))
        return Measurement(
            setting, samples_per_s, samples_per_s / wide, samples_per_s * wide, seconds,
            observed=seen if observed else None,
        )  # fmt: skip


@dataclass
class Result:
    regret: float
    settings: int
    blocks: int
    seconds: float
    thinking: float
    chosen: Setting
    trail: list


def rate_of_times(times, workers):
    """Mean seconds of a batch and its 95 % interval."""
    nothing = (0.0,) * len(times)
    return rate(TrialBlock(tuple(times.tolist()), nothing, (1,) * len(times), *[0] * 9), workers)


def run(name, case, oracle, seed, seconds=None, observed=True):
    steps = float(case.work.step_ns.mean()) / 1e9
    problem = Problem(
        case.space, case.own, case.machine.cores, case.batches, SIZE, steps,
        case.work.step_cores, seed=seed, budget_s=BUDGET_S,
    )  # fmt: skip
    oracle.opened.clear()
    oracle.variation = 0.0
    began = time.perf_counter()
    strategy = make(name, case.space, seed=seed, problem=problem)
    spent, trail, thinking = 0.0, [], 0.0
    while seconds is None or spent < seconds:
        setting = strategy.ask()
        thinking += time.perf_counter() - began
        if setting is None:
            break
        trial = oracle.trial(setting, observed)
        spent += trial.seconds
        trail.append((setting, trial.samples_per_s, oracle.rate(setting), strategy.reason()))
        began = time.perf_counter()
        strategy.tell(trial)
    chosen = strategy.best().setting
    regret = 1.0 - oracle.rate(chosen) / oracle.grid()
    return Result(
        regret, len({trial[0] for trial in trail}), len(trail), spent, thinking, chosen, trail
    )


def percent(values):
    values = sorted(values)
    at = min(math.ceil(0.95 * len(values)) - 1, len(values) - 1)
    return f"{statistics.median(values):7.1%} {values[at]:7.1%} {values[-1]:7.1%}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--noise", type=float, default=NOISE, help="of trials (default: 0.03)")
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--cores", nargs="*", type=int, default=CORES)
    parser.add_argument("--strategies", nargs="*", default=("lotus", "random", "adapt"))
    parser.add_argument("--worst", type=int, default=0, help="show so many of lotus's worst")
    options = parser.parse_args()
    print(f"{provenance.cpus()}, commit {provenance.commit()}, {date.today()}")
    results = {}
    for kind in options.kinds:
        for cores in options.cores:
            for seed in range(options.first, options.first + options.seeds):
                case = draw(kind, cores, seed)
                oracle = Oracle(case, seed, options.noise)
                seconds = None
                for name in options.strategies:
                    limit = seconds if name == "random" else None
                    search = run(name, case, oracle, seed, limit, not options.tables)
                    if name == "lotus":
                        seconds = search.seconds
                    results.setdefault(name, []).append((kind, cores, seed, case, oracle, search))
    print("strategy  kind       median    95 %     max | settings blocks seconds thinking")
    for name, rows in results.items():
        for kind in (*options.kinds, "all"):
            some = [row[-1] for row in rows if kind in ("all", row[0])]
            print(
                f"{name:9} {kind:9} {percent([r.regret for r in some])} |"
                f" {statistics.fmean(r.settings for r in some):6.1f} (max"
                f" {max(r.settings for r in some)}) {statistics.fmean(r.blocks for r in some):6.1f}"
                f" {statistics.median(r.seconds for r in some):7.1f}"
                f" {statistics.fmean(r.thinking for r in some):6.2f}"
            )
    worst = sorted(results.get("lotus", ()), key=lambda row: -row[-1].regret)[: options.worst]
    for kind, cores, seed, case, oracle, search in worst:
        best = max(case.space.settings(), key=oracle.rate)
        print(f"\n{kind} {cores} cores seed {seed}: regret {search.regret:.1%}, own {case.own}")
        print(
            f"  best {best} {oracle.rate(best):.1f}, chosen {search.chosen}; {case.batches} batches"
        )
        for setting, per_s, true, why in search.trail[:8]:
            print(
                f"  {setting.num_workers:3} {setting.prefetch_factor} "
                f"{'p' if setting.persistent_workers else '-'} {per_s:9.1f} {true:9.1f} {why}"
            )


if __name__ == "__main__":
    main()
