"""Measures how close the strategies of `lotus balance` come to the best split, on simulated jobs.

    PYTHONPATH=. python tools/bench/ranks/balance_simulated.py [--ranks 4 64 1024] [--repeat 5]

The true costs of each rank are drawn at random: step and input of b samples take (fixed + slope x
b) times gamma noise. From them a trace with equal batches is drawn. Each strategy splits the global
batch using that trace alone (`lotus` also with a second trace of half the batch, and with both but
only their means), and the cluster simulator runs the job with the true costs. The oracle knows the
true costs: it is the best, in the simulator, of the exact splits of the means and of noise-adjusted
means, improved by local search. Printed is samples per second in % of the oracle's, because `bno`
does not keep the global batch.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lotus.balance import bno_quantities, plain_splits
from lotus.balance.least_time import least
from lotus.balance.minmax import split
from lotus.balance.rank_measurements import Job, Rank
from lotus.balance.time_fit import curve
from lotus.common.numbers.array_types import Floats
from lotus.tune.simulation.job_simulation import Member, simulate
from tools.bench import provenance

MS = 1e6
STRATEGIES = ("equal", "random", "bno", "lotus", "lotus, two sizes", "means only")
COLLECTIVE_NS = 3 * MS
DRAWN = 1500  # times of each rank that the simulator draws from


@dataclass(frozen=True)
class Truth:
    """One rank: fixed and slope of step and of a worker's fetch (ns), noise, workers."""

    step: tuple[float, float]
    fetch: tuple[float, float]
    variation: float
    workers: int

    def times(self, size: int, count: int, random: np.random.Generator) -> tuple[Floats, Floats]:
        shape = 1.0 / self.variation**2
        rough = random.gamma(shape, 1.0 / shape, (2, count))
        step, fetch = (fixed + slope * size for fixed, slope in (self.step, self.fetch))
        return step * rough[0], fetch * rough[1]


def truths(kind: str, count: int, random: np.random.Generator) -> list[Truth]:
    """compute: every second rank has half the speed. input: every fourth has few workers. mixed:
    speeds, inputs, fixed parts and noise are all drawn."""
    made = []
    for rank in range(count):
        slope, fixed, fetch, workers, variation = 1.0 * MS, 4.0 * MS, 0.5 * MS, 2, 0.1
        if kind == "compute" and rank % 2:
            slope, fixed = 2.0 * slope, 2.0 * fixed
        if kind == "input" and rank % 4 == 3:
            fetch, workers = 2.5 * MS, 1
        if kind == "mixed":
            slope *= random.lognormal(0.0, 0.4)
            fixed *= random.uniform(0.0, 2.0)
            fetch *= random.lognormal(0.3, 0.6)
            workers, variation = int(random.integers(1, 4)), random.uniform(0.05, 0.3)
        made.append(Truth((fixed, slope), (0.0, fetch), variation, workers))
    return made


def traced(
    made: Sequence[Truth], sizes: Sequence[int], steps: int, random: np.random.Generator
) -> Job:
    """Return what `lotus.balance.rank_measurements.measure` would return for these ranks."""
    ranks = []
    for number, (rank, size) in enumerate(zip(made, sizes, strict=True)):
        step, fetch = rank.times(size, steps, random)
        whole = np.full(steps, float(size))
        ranks.append(
            Rank(
                rank=number,
                host="",
                batch=size,
                workers=rank.workers,
                prefetch=2,
                sizes=whole,
                step_ns=step,
                key=np.arange(steps),
                fetch_sizes=whole,
                fetch_ns=fetch,
                whole_ns=0.0,
                after_ns=COLLECTIVE_NS,
            )
        )
    return Job(tuple(ranks), "simulated", None, True, COLLECTIVE_NS, 0.0)


def both(first: Job, two: Job) -> Job:
    """One job with the steps of two traces, as --also does it."""
    names = ("sizes", "step_ns", "fetch_sizes", "fetch_ns")
    ranks = [
        replace(a, **{name: np.concatenate((getattr(a, name), getattr(b, name))) for name in names})
        for a, b in zip(first.ranks, two.ranks, strict=True)
    ]
    return replace(first, ranks=tuple(ranks))


def rate(made: Sequence[Truth], sizes: Sequence[int], steps: int, seed: int) -> tuple[float, float]:
    """(samples per second, ms of a step) of the true job, the same noise for every split."""
    members = []
    for number, (rank, size) in enumerate(zip(made, sizes, strict=True)):
        step, fetch = rank.times(size, DRAWN, np.random.default_rng((seed, number)))
        members.append(Member(step, fetch, float(size), rank.workers, 2))
    simulated = simulate(members, steps=steps, collective_ns=COLLECTIVE_NS, seed=seed)
    return simulated.samples_per_s, simulated.step_s * 1e3


def oracle(
    made: Sequence[Truth], total: int, steps: int, seed: int, tries: int
) -> tuple[list[int], float, float]:
    """Return the best split found: (sizes, samples per second, ms of a step)."""
    tried = []
    for level in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0):
        lines = []
        for rank in made:
            up, lanes = 1.0 + level * rank.variation, rank.workers
            step, fetch = (rank.step[0] * up, rank.step[1] * up), rank.fetch
            lines.append([step, (fetch[0] / lanes, fetch[1] / lanes)])
        sizes = split(lines, total, [None] * len(made))
        tried.append((rate(made, sizes, steps, seed), sizes))
    best, sizes = max(tried)
    random = np.random.default_rng(seed)
    noise = np.array([rank.variation for rank in made])
    few = max(len(made) // 8, 1)
    for _ in range(tries):
        # From those whose noise costs most to those whose noise costs least, or at random.
        if random.random() < 0.5:
            order = np.argsort(noise + random.normal(0, 0.05, len(made)))
        else:
            order = random.permutation(len(made))
        moved = list(sizes)
        for giver, taker in zip(order[-few:].tolist(), order[:few].tolist(), strict=True):
            if moved[giver] > 1 and giver != taker:
                moved[giver] -= 1
                moved[taker] += 1
        reached = rate(made, moved, steps, seed)
        if reached[0] > best[0]:
            sizes, best = moved, reached
    return sizes, *best


def splits(made: Sequence[Truth], each: int, steps: int, seed: int) -> dict[str, list[int]]:
    """Return the splits that every strategy makes of a trace."""
    random = np.random.default_rng(seed)
    count = len(made)
    total = each * count
    job = traced(made, [each] * count, steps, random)
    two = both(job, traced(made, [max(each // 2, 1)] * count, steps, random))
    none = [None] * count
    return {
        "equal": plain_splits.equal(total, count),
        "random": plain_splits.at_random(total, count, seed),
        "bno": list(bno_quantities.run(bno_quantities.quantities(job)).sizes),
        "lotus": least(job, [curve(rank) for rank in job.ranks], none),
        "lotus, two sizes": least(two, [curve(rank) for rank in two.ranks], none),
        "means only": split([curve(rank).lines() for rank in two.ranks], total, none),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 64, 1024])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--batch", type=int, default=32, help="of a rank, on average")
    parser.add_argument("--traced", type=int, default=100, help="steps in a trace")
    parser.add_argument("--steps", type=int, default=400, help="simulated")
    parser.add_argument("--tries", type=int, default=60, help="of the oracle's local search")
    args = parser.parse_args()
    print(provenance.header(np))
    print(
        f"traces   of {args.traced} steps, batches of {args.batch} a rank; {args.repeat} jobs each;"
        f" {args.steps} steps simulated; the oracle tried {args.tries} moves"
    )
    print("samples/s against the oracle's: median (least to most); ms of a step: median")
    for count in args.ranks:
        for kind in ("compute", "input", "mixed"):
            began = time.perf_counter()
            results: dict[str, list[tuple[float, float]]] = {name: [] for name in STRATEGIES}
            best_ms = []
            for seed in range(args.repeat):
                made = truths(kind, count, np.random.default_rng((seed, count)))
                _, best, took = oracle(made, args.batch * count, args.steps, seed, args.tries)
                best_ms.append(took)
                for name, sizes in splits(made, args.batch, args.traced, seed).items():
                    per_s, ms = rate(made, sizes, args.steps, seed)
                    results[name].append((per_s / best, ms))
            print(
                f"\n{count} ranks, {kind}: oracle {statistics.median(best_ms):.1f} ms a step "
                f"({time.perf_counter() - began:.0f} s)"
            )
            for name, values in results.items():
                shares_of, ms = ([pair[k] for pair in values] for k in (0, 1))
                print(
                    f"  {name:17} {statistics.median(shares_of):6.1%}  "
                    f"({min(shares_of):6.1%} to {max(shares_of):6.1%})  "
                    f"{statistics.median(ms):7.1f} ms"
                )


if __name__ == "__main__":
    main()
