"""Compares `adapt` with what the ADaPT paper reports: settings tried, ratio to the grid, regret.

    PYTHONPATH=. python tools/bench/tune/paper.py [--surfaces 300] [--published adapt_table1.csv]

The paper's ranges (1,584 settings) are searched on synthetic smooth surfaces of four kinds with
random parameters; no program is measured. The number of settings tried depends on where the maxima
lie: the median is 84 where they lie as in the paper (the first kind), and higher where they lie
anywhere. Each surface is searched with and without noise (the standard deviation of the rate's
logarithm). Printed are the settings tried; the regret, which is the loss against the true maximum;
and `seconds`, the time of the grid divided by that of the search if a trial is 1,000 samples
without start-up. `random` has as many trials as `adapt`.

With --published the paper's table is compared as well: columns batch_size, method, exec_time_ms,
search_time_s, num_workers, prefetch_factor, persistent_workers, pin_memory.
"""

import argparse
import math
import random
import statistics
from collections.abc import Callable, Iterator

import pandas as pd

from lotus.settings.space import Space
from lotus.tune.strategies.adapt import Adapt, Tree
from lotus.tune.strategies.random_search import RandomSearch
from tools.bench import provenance
from tools.bench.tune.strategy_replay import Timings, replay

NOISES = (0.0, 0.02, 0.05, 0.10)
# What the paper's Table 1 gives for batches of 8, 128 and 2,048: grid's search time / adapt's.
PUBLISHED_RATIOS = (13.29, 19.35, 7.17)
# The foot of a hill: at 0 workers the paper has 2.6 % of the best speed (batches of 2,048).
WORST = 0.026
# The ranges of section 4.1, 33 x 12 x 2 x 2 = 1,584 settings: workers are 1, then 2, 4, 6 to 64,
# the threads of the paper's processor.
SPACE = Space(
    num_workers=(1, *range(2, 65, 2)),
    prefetch_factor=tuple(1 << power for power in range(12)),
    pin_memory=(False, True),
    persistent_workers=(False, True),
)
Surface = Callable[[int, int], float]


def hill(chance: random.Random) -> Surface:
    """A hill in log2 workers and log2 prefetch, round or slanted: both matter, and together."""
    top = chance.uniform(0, 6), chance.uniform(0, 11)
    wide = chance.uniform(1, 3), chance.uniform(2, 6)
    slant = chance.uniform(-0.5, 0.5)

    def rate(workers: int, prefetch: int) -> float:
        across = (math.log2(workers) - top[0]) / wide[0]
        along = (math.log2(prefetch) - top[1]) / wide[1]
        apart = across**2 + along**2 + 2 * slant * across * along
        return WORST + (1 - WORST) * math.exp(-apart / 2)

    return rate


def near_the_papers(chance: random.Random) -> Surface:
    """Hills topped at 10 to 34 workers: the paper found 10 to 30 to be best, on its 32 cores."""
    top = chance.uniform(10, 34), chance.uniform(0, 11)

    def rate(workers: int, prefetch: int) -> float:
        across, along = (workers - top[0]) / 20, (math.log2(prefetch) - top[1]) / 4
        return WORST + (1 - WORST) * math.exp(-(across**2) - along**2)

    return rate


def contention(chance: random.Random) -> Surface:
    """Gunther's universal scalability law in workers; prefetch saves waits and costs memory."""
    alpha = chance.uniform(0, 0.2)
    peak = math.exp(chance.uniform(math.log(2), math.log(80)))
    beta = (1 - alpha) / peak**2
    depth, cost, free = chance.uniform(0.3, 3), chance.uniform(0, 0.0075), chance.uniform(0, 8)

    def rate(workers: int, prefetch: int) -> float:
        scaled = workers / (1 + alpha * (workers - 1) + beta * workers * (workers - 1))
        over = max(0.0, math.log2(workers * prefetch) - free)
        return scaled * (1 - math.exp(-depth * prefetch)) * math.exp(-cost * over**2)

    return rate


def consumer_bound(chance: random.Random) -> Surface:
    """Rises with the workers to what the consumer takes; each one more costs a little."""
    enough = math.exp(chance.uniform(math.log(2), math.log(32)))
    worker_cost, batch_cost = chance.uniform(0.0005, 0.005), chance.uniform(0, 0.01)
    depth, sharp = chance.uniform(0.3, 3), chance.uniform(2, 6)

    def rate(workers: int, prefetch: int) -> float:
        fed = (1 + (enough / workers) ** sharp) ** (-1 / sharp)
        lost = worker_cost * workers + batch_cost * math.log2(prefetch)
        return fed * (1 - math.exp(-depth * prefetch)) * math.exp(-lost)

    return rate


KINDS: tuple[Callable[[random.Random], Surface], ...] = (
    near_the_papers,
    hill,
    contention,
    consumer_bound,
)


def surfaces(kind: Callable[[random.Random], Surface], count: int) -> Iterator[Timings]:
    """Timings of all settings; pinned memory and persistent workers change each by up to 10 %."""
    for number in range(count):
        chance = random.Random(number)
        rate = kind(chance)
        pin, keep = chance.uniform(-0.1, 0.1), chance.uniform(-0.1, 0.1)
        yield Timings(
            {
                setting: 1000
                * max(rate(setting.num_workers, setting.prefetch_factor or 1), 1e-6)
                * math.exp(pin * setting.pin_memory + keep * setting.persistent_workers)
                for setting in SPACE.settings()
            }
        )


def run_kind(kind: Callable[[random.Random], Surface], count: int) -> list[dict[str, object]]:
    """A row a search: its noise, trials, times fewer trials and seconds than the grid, regrets."""
    rows: list[dict[str, object]] = []
    for number, timings in enumerate(surfaces(kind, count)):
        whole = sum(1000 / timings.rate(setting) for setting in SPACE.settings())
        for noise in NOISES:
            adapt = Adapt(SPACE)
            trials = replay(adapt, timings, noise=noise, seed=number)
            drawn = RandomSearch(SPACE, number)
            replay(drawn, timings, noise=noise, seed=number, trials=len(trials))
            rows.append(
                {
                    "noise": noise,
                    "tried": len(trials),
                    "ratio": SPACE.size() / len(trials),
                    "seconds": whole / trials.seconds.sum(),
                    "regret": lost(adapt, timings),
                    "random": lost(drawn, timings),
                }
            )
    return rows


def lost(strategy: Adapt | RandomSearch, timings: Timings) -> float:
    best = strategy.best()
    return timings.regret(best.setting if best else None)


def show(name: str, rows: pd.DataFrame) -> None:
    for noise, some in rows.groupby("noise"):
        tried, ratio = some.tried, some.ratio
        print(
            f"{name:15} {noise:6.0%} {tried.median():7.0f} {tried.min():5}-{tried.max():<5}"
            f"{ratio.median():6.1f}x {ratio.quantile(0.05):5.1f}-{ratio.quantile(0.95):<5.1f}"
            f"{some.seconds.median():6.1f}x"
            f"{some.regret.median():8.1%} {(some.regret > 0.05).mean():8.0%}"
            f"{some['random'].median():9.1%} {(some['random'] > 0.05).mean():8.0%}"
        )


def trail(tree: Tree, value: object) -> list[object] | None:
    """The values of one tree that a search ending at this value tries; None if it has it not."""
    node, tried = tree.root, [tree.value(tree.root)]
    position = tree.values.index(value) if value in tree.values else None
    while position is not None:
        tried += [tree.value(child) for child in node.children()]
        if node.value == position:
            return tried
        below = node.left if position < node.value else node.right
        if below is None:
            return None
        node = below
    return None


def published(path: str) -> None:
    table = pd.read_csv(path)
    trees = {tree.parameter: tree for tree in Adapt(SPACE).trees}
    print(f"\nthe published table, {path}")
    print("  a search that went the same way in all trees would try `one way` settings; `at equal")
    print("  cost` is 1,584 / the published ratio, which counts seconds; possible are 36 to 308")
    print(
        f"{'batch':>6} {'grid':>8} {'adapt':>7} {'ratio':>7} {'at equal cost':>14} {'one way':>8}"
        f" {'found':>16} {'slower than best':>17} {'best was on its way':>20}"
    )
    for size, rows in table.groupby("batch_size"):
        best = rows[rows.method == "optimal"].iloc[0]
        adapt = rows[rows.method == "adapt"].iloc[0]
        names = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers")
        trails = {name: trail(trees[name], getattr(adapt, name)) for name in names}
        reached = all(each is not None for each in trails.values())
        one_way = math.prod(len(each or ()) for each in trails.values())
        on_way = all(getattr(best, name) in (trails[name] or ()) for name in names)
        ratio = best.search_time_s / adapt.search_time_s
        where = f"{adapt.num_workers} x {adapt.prefetch_factor}"
        print(
            f"{size:6} {best.search_time_s:6.0f} s {adapt.search_time_s:5.0f} s {ratio:6.2f}x"
            f" {SPACE.size() / ratio:14.0f} {one_way if reached else 'none':>8}"
            f" {where + ('' if reached else ' (no node)'):>16}"
            f" {adapt.exec_time_ms / best.exec_time_ms - 1:17.1%} {'yes' if on_way else 'no':>20}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--surfaces", type=int, default=300)
    parser.add_argument("--published", help="the paper's Table 1 as CSV")
    args = parser.parse_args()
    print(provenance.header(pd))
    for tree in Adapt(SPACE).trees:
        if len(tree.values) > 1:
            print(f"tree     {tree.parameter}: {len(tree.values)} values,", end=" ")
            print(f"root {int(tree.value(tree.root) or 0)}, height {tree.root.height}")
    print(f"{args.surfaces} surfaces of each kind; {SPACE.size()} settings; median, [least-most]")
    print(
        f"{'surface':15} {'noise':>6} {'tried':>7} {'range':^11}{'grid/tried':>6} {'5-95 %':^9}"
        f"{'seconds':>8}{'regret':>8} {'over 5 %':>8}{'random':>9} {'over 5 %':>8}"
    )
    everything = []
    for kind in KINDS:
        rows = pd.DataFrame(run_kind(kind, args.surfaces))
        show(kind.__name__, rows)
        everything.append(rows)
    together = pd.concat(everything)
    show("all", together)
    quiet = together[together.noise == 0]
    within = quiet.ratio.between(min(PUBLISHED_RATIOS), max(PUBLISHED_RATIOS)).mean()
    print(
        f"grid/tried without noise: median {statistics.median(quiet.ratio):.1f}, in the paper's"
        f" {min(PUBLISHED_RATIOS)} to {max(PUBLISHED_RATIOS)} on {within:.0%} of the surfaces"
    )
    if args.published:
        published(args.published)


if __name__ == "__main__":
    main()
