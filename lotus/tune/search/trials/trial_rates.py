"""Computes rates of trials from their batches, with 95 % intervals.

Successive batches are not independent, and workers deliver in bursts of one batch each. So an
interval is computed from means of sub-blocks, which consist of whole bursts if there are enough.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from lotus.common.numbers.statistics import t_quantile
from lotus.inside.tune.candidates.trial_requests import Opened, TrialBlock
from lotus.settings.space import Observed, Setting

LEAST_PARTS = 4  # sub-blocks, unless a block has fewer batches
_MOST_PARTS = 10
_PRECISE = 0.02  # intended standard error of a block's mean
_LONGER = 3.0
_TELLS_NOTHING = 100.0  # times the lower end of an interval


@dataclass(frozen=True)
class Rate:
    """Seconds per sample with the 95 % interval of the mean, which is infinite for one part."""

    sample_s: float
    low_s: float
    high_s: float
    samples: float  # mean of a batch


def rate(block: TrialBlock, workers: int) -> Rate:
    """Return the mean time per sample in steady state, waits and steps together.

    A block begins with an empty queue. This is not typical of a loop with training steps, so the
    first batch does not count there. Raises ValueError without batches that take time.
    """
    times = [wait + step for wait, step in zip(block.waits_s, block.steps_s, strict=True)]
    first = 1 if workers and any(block.steps_s) and len(times) > LEAST_PARTS else 0
    last = first + whole(len(times) - first, workers)
    times, sizes = times[first:last], block.sizes[first:last]
    if not times or sum(times) <= 0 or sum(sizes) <= 0:
        raise ValueError("a rate needs batches that have samples and take time")
    mean = sum(times) / sum(sizes)
    spread = _spread(times, sizes, workers)
    return Rate(mean, max(mean - spread, 0.0), mean + spread, sum(sizes) / len(sizes))


def whole(count: int, workers: int) -> int:
    """Return how many of `count` batches form whole bursts; all if there is no whole one."""
    return count - count % workers if workers > 1 and count >= workers else count


def _spread(times: Sequence[float], sizes: Sequence[int], workers: int) -> float:
    """Return half the width of the interval, from means of parts."""
    means = means_of_parts(times, sizes, workers)
    if len(means) < 2:
        return math.inf
    return t_quantile(len(means) - 1) * statistics.stdev(means) / math.sqrt(len(means))


def means_of_parts(times: Sequence[float], sizes: Sequence[int], workers: int) -> list[float]:
    """Return seconds per sample in parts of about equal size, of whole bursts if possible."""
    burst = workers if workers > 1 and len(times) >= LEAST_PARTS * workers else 1
    units = len(times) // burst
    parts = min(_MOST_PARTS, units)
    edges = [units * part // parts * burst for part in range(parts + 1)]
    edges[-1] = len(times)
    means = []
    for start, end in itertools.pairwise(edges):
        samples = sum(sizes[start:end])
        if samples:
            means.append(sum(times[start:end]) / samples)
    return means


def needed(variation: float, batch_s: float, block_s: float) -> int:
    """Return how many batches a block needs for a precise mean, within `_LONGER` blocks' time.

    `variation` is the standard deviation of batch times over their mean.
    """
    if not batch_s > 0:
        return 0
    return int(min((variation / _PRECISE) ** 2, _LONGER * block_s / batch_s))


def observed(block: TrialBlock, opened: Opened, workers: int, shutdown_s: float) -> Observed:
    """Return what a block without steps shows; `shutdown_s` is that of the whole loader.

    Batches taken in turn hide how much their times vary, so `variation` is that of bursts, and 0
    for fewer than three bursts.
    """
    count = len(block.waits_s)
    kept = whole(count, workers)
    capacity = sum(block.waits_s[:kept]) / kept
    burst = max(workers, 1)
    bursts = [sum(block.waits_s[at : at + burst]) for at in range(0, kept - burst + 1, burst)]
    varies = len(bursts) > 2 and statistics.mean(bursts) > 0
    return Observed(
        capacity_s=max(capacity, 1e-9),  # the clock's grain
        cpu_s=max(block.worker_cpu_s, 0.0) / count,
        queued_s=max(block.worker_queued_s, 0.0) / count,
        get_s=max(block.main_cpu_s, 0.0) / count,
        variation=statistics.stdev(bursts) / statistics.mean(bursts) if varies else 0.0,
        startup_s=opened.first_batch_s,
        iter_s=opened.iter_s,
        shutdown_s=shutdown_s,
        samples=max(sum(block.sizes) / count, 1e-9),
    )


@dataclass(frozen=True)
class Speedup:
    """The rate relative to that of the program's own setting, with its 95 % interval."""

    mean: float
    low: float
    high: float
    pairs: int  # pairs of blocks measured next to each other; 0: from separate trials

    @property
    def precision(self) -> float:
        """Half the width of the interval, relative to the mean."""
        return (self.high - self.low) / 2 / self.mean

    @property
    def tells_nothing(self) -> bool:
        """True if its interval holds any result: what was measured differs too much."""
        return self.pairs != 1 and self.high > _TELLS_NOTHING * self.low

    @property
    def is_significant(self) -> bool:
        """True if its whole interval lies above 1."""
        return self.low > 1

    def shows(self, worth: float) -> bool:
        """Return True if a gain of at least `worth`, 0.05 for 5 %, was shown."""
        return self.is_significant and self.mean >= 1 + worth


@dataclass(frozen=True)
class Checked:
    """The comparison of a setting with the own one in the program's own training."""

    setting: Setting
    speedup: Speedup  # over the own setting, for an epoch
    batches: int  # measured with the setting
    own_batches: int  # measured with the own setting


def compared(pairs: Sequence[tuple[float, float]]) -> Speedup:
    """Return the speed-up from pairs of rates (new, own); drift affects both rates of a pair."""
    return speedup([new / own for new, own in pairs])


def speedup(ratios: Sequence[float], variance: tuple[float, int] | None = None) -> Speedup:
    """Return the speed-up from the ratios of pairs; one pair has no interval.

    `variance` is that of a ratio's logarithm and its degrees of freedom, where more is known of it
    than from these pairs.
    """
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.mean(logs)
    if len(logs) < 2:
        return Speedup(math.exp(mean), 0.0, math.inf, len(logs))
    square, freedom = variance or (statistics.variance(logs), len(logs) - 1)
    spread = t_quantile(freedom) * math.sqrt(square / len(logs))
    low, high = (
        math.exp(max(min(bound, 700.0), -700.0)) for bound in (mean - spread, mean + spread)
    )
    return Speedup(math.exp(mean), low, high, len(logs))
