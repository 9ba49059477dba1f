"""The time of epochs without a planned cache, while they fill it, and with all samples from it.

Pure: the blocks that were measured come from cache_blocks.py; whole epochs follow from them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lotus.common.numbers.statistics import t_quantile

LEAST_ROUNDS = 4
_MOST_SUMMED = 1000  # epochs
_WIDEST = 0.5  # half an interval's width, of logarithms: more says little


@dataclass(frozen=True)
class EpochShares:
    """The shares of an epoch's samples that come from the cache, and that are written to it."""

    hits: float
    written: float


@dataclass(frozen=True)
class EpochRound:
    """Seconds of a whole epoch: without a cache, filling one, and with all samples from it.

    waiting  the part of an epoch without a cache in which the program waits for data
    """

    plain_s: float
    filling_s: float
    cached_s: float
    waiting: float = 0.0

    def seconds(self, shares: EpochShares) -> float:
        """Return those of an epoch with such parts, as a mean of the three."""
        rest = 1 - shares.hits - shares.written
        return rest * self.plain_s + shares.written * self.filling_s + shares.hits * self.cached_s


@dataclass(frozen=True)
class Ratio:
    """A ratio, or seconds, with the 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class CacheTiming:
    """The times of a cache, as `lotus.tune.session.subprocess_tuning.Measured`.

    batches  that were timed, in all blocks; whole epochs are computed from them
    start_s  of an epoch's seconds those that its workers take to start
    over  whether an epoch was over meanwhile, and its samples were read again
    ended  why no more rounds were timed, as a clause; "" if that was planned
    """

    rounds: tuple[EpochRound, ...]
    batches: int
    epoch_batches: int
    seconds: float
    first: EpochShares
    later: EpochShares
    start_s: float = 0.0
    over: bool = False
    interrupted: bool = False
    ended: str = ""

    @property
    def failure(self) -> str:
        """The reason for which nothing was timed, as a clause; "" if something was."""
        return "" if self.rounds else self.ended or "no block was timed"

    @property
    def waiting(self) -> float:
        """The part of an epoch without a cache that is the wait for data; 0 if unknown."""
        return statistics.mean(each.waiting for each in self.rounds) if self.rounds else 0.0

    @property
    def plain_s(self) -> Ratio | None:
        """Seconds of an epoch without a cache, with the interval of a further one."""
        return _of_a_further_one([each.plain_s for each in self.rounds])

    @property
    def later_s(self) -> Ratio | None:
        """The same of an epoch from the second on."""
        return _of_a_further_one([each.seconds(self.later) for each in self.rounds])

    @property
    def first_s(self) -> Ratio | None:
        """The same of the first epoch, which writes."""
        return _of_a_further_one([each.seconds(self.first) for each in self.rounds])

    @property
    def speedup(self) -> Ratio | None:
        """The speed-up of a further epoch from the second on; None: not predictable."""
        return _predictable([each.plain_s / each.seconds(self.later) for each in self.rounds])

    @property
    def first_longer(self) -> Ratio | None:
        """The time of the first epoch over one without a cache; None: not predictable."""
        return _predictable([each.seconds(self.first) / each.plain_s for each in self.rounds])

    def saving(self, epochs: int) -> Ratio | None:
        """Return which part of the time of so many epochs is saved; None: too few were timed.

        The interval is for a training that is like a further round. Its epochs follow each other
        under one load, so they do not even each other out: the interval of the mean, which assumes
        that they do, was too narrow where the load changed.
        """
        saved = []
        for each in self.rounds:
            cached_s = each.seconds(self.first) + (epochs - 1) * each.seconds(self.later)
            saved.append(1 - cached_s / (epochs * each.plain_s))
        saving = _of_a_further_one(saved)
        # More than all cannot be saved, even if the interval of a few rounds is wider.
        return saving and replace(saving, high=min(saving.high, 1.0))

    def break_even(self, epochs: int) -> int | None:
        """Return after how many epochs it has been shown to save more than it cost.

        None: not within the first of so many.
        """
        for count in range(1, min(epochs, _MOST_SUMMED) + 1):
            saving = self.saving(count)
            if saving is not None and saving.low > 0:
                return count
        return None

    def why_unknown(self) -> str:
        """Return why no gain is predicted, as a clause; "" if one is."""
        if self.failure:
            return self.failure
        if len(self.rounds) < LEAST_ROUNDS:
            few = (
                f"only {len(self.rounds)} of at least {LEAST_ROUNDS} rounds of blocks were timed "
                f"in {self.seconds:.0f} s"
            )
            return f"{few}: {self.ended}" if self.ended else few
        if self.speedup is None or self.first_longer is None:
            return "blocks differ too much, as where other programs use the cores"
        return ""


def _of_a_further_one(values: Sequence[float]) -> Ratio | None:
    """Return the mean, and the 95 % interval of a further value; None: there are too few."""
    if len(values) < LEAST_ROUNDS:
        return None
    mean, count = statistics.mean(values), len(values)
    half = t_quantile(count - 1) * statistics.stdev(values) * math.sqrt(1 + 1 / count)
    return Ratio(mean, mean - half, mean + half)


def _predictable(ratios: Sequence[float]) -> Ratio | None:
    """Return what a further ratio is; None: its interval would say little."""
    logs = _of_a_further_one([math.log(ratio) for ratio in ratios])
    if logs is None or logs.high - logs.mean > _WIDEST:
        return None
    return Ratio(math.exp(logs.mean), math.exp(logs.low), math.exp(logs.high))
