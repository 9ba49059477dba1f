"""Finds the knee of a sweep: the number of workers beyond which more hardly help.

The knee is the fewest workers whose mean throughput is within NEAR of the best mean. Its interval
comes from a bootstrap over repeats. As two to five repeats of one setting say little about their
spread, the residuals of all settings are pooled: logarithms of a run's throughput less the mean of
its setting, widened by sqrt(n / (n - 1)). Each resample gives every setting as many residuals as it
has repeats, as factors of its mean, and has its own knee; the interval contains 95 % of these
knees. Means are arithmetic, as in reports.

This assumes that throughput varies by the same share at every setting. In simulations of five
settings with two to five repeats and 1 to 6 % noise, the interval contained the true knee in 94 to
100 % of cases. (Davison and Hinkley, Bootstrap Methods and their Application, 1997, 6.3: residual
resampling.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lotus.common.numbers.array_types import Floats, Ints

NEAR = 0.05  # relative gain that makes more workers worth while
RESAMPLES = 4000


@dataclass(frozen=True)
class Knee:
    """The knee: `workers` reach the share `of_best` of the throughput of `best_workers`.

    `low` and `high` are the 95 % interval; None if no setting was run twice. `shares` maps workers
    to the share of resamples with that knee. `last`: the knee is at the largest number of workers
    tried, so it may lie beyond. `undecided`: the interval contains all numbers tried.
    """

    workers: int
    best_workers: int
    of_best: float
    low: int | None
    high: int | None
    shares: dict[int, float]
    last: bool
    undecided: bool


def knee(rates: Mapping[int, Sequence[float]], near: float = NEAR, seed: int = 0) -> Knee | None:
    """Return the knee of `rates` (workers -> samples/s of each repeat); None without two settings.

    Rates that are not above 0 count as not measured.
    """
    logs = {
        workers: np.log([rate for rate in rates[workers] if rate > 0]) for workers in sorted(rates)
    }
    logs = {workers: values for workers, values in logs.items() if len(values)}
    if len(logs) < 2:
        return None
    workers = np.array(list(logs), np.int64)
    means = np.array([np.exp(values).mean() for values in logs.values()])
    place = int(_knees(means[None, :], near)[0])
    best = int(np.argmax(means))
    low = high = None
    shares: dict[int, float] = {}
    residuals = _residuals(list(logs.values()))
    if residuals.size:
        resampled = workers[
            _resampled(means, [len(values) for values in logs.values()], residuals, near, seed)
        ]
        low, high = (
            int(bound) for bound in np.quantile(resampled, (0.025, 0.975), method="nearest")
        )
        values, counts = np.unique(resampled, return_counts=True)
        shares = {
            int(number): float(count / len(resampled))
            for number, count in zip(values, counts, strict=True)
        }
    return Knee(
        workers=int(workers[place]),
        best_workers=int(workers[best]),
        of_best=float(means[place] / means[best]),
        low=low,
        high=high,
        shares=shares,
        last=place == len(workers) - 1,
        undecided=bool(low == workers[0] and high == workers[-1]),
    )


def _knees(means: Floats, near: float) -> Ints:
    """Return, for each row, the first column whose mean is near the row's largest."""
    enough = means >= means.max(axis=1, keepdims=True) * (1 - near)
    places: Ints = np.argmax(enough, axis=1).astype(np.int64)
    return places


def _residuals(logs: Sequence[Floats]) -> Floats:
    several = [repeats for repeats in logs if len(repeats) > 1]
    if not several:
        return np.zeros(0)
    parts = [
        (repeats - repeats.mean()) * np.sqrt(len(repeats) / (len(repeats) - 1))
        for repeats in several
    ]
    return np.concatenate(parts)


def _resampled(
    means: Floats, repeats: Sequence[int], residuals: Floats, near: float, seed: int
) -> Ints:
    dice = np.random.default_rng(seed)
    factors = np.exp(residuals) / np.exp(residuals).mean()
    drawn = [
        mean * dice.choice(factors, (RESAMPLES, count)).mean(axis=1)
        for mean, count in zip(means, repeats, strict=True)
    ]
    return _knees(np.stack(drawn, axis=1), near)
