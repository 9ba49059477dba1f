"""Compares settings by the batches of their stretches of training, paired by rounds.

Other work on the machine comes and goes, so stretches of one setting differ more than the batches
within one do. So settings are compared within each round.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from lotus.inside.tune.candidates.trial_requests import TrainedBatches
from lotus.settings.space import Setting
from lotus.tune.search.trials import trial_rates
from lotus.tune.search.trials.trial_rates import Speedup

LEAST_BATCHES = 4  # that a stretch needs to be one side of a pair
_MANY = 4  # rounds from which on the ratios of rounds tell their spread well enough
_LONG, _RARE = 3.0, 0.05  # a long step exceeds 3 medians; long steps are rare up to this share


@dataclass(frozen=True)
class Stretch:
    """The counted batches of a stretch of training; times are in seconds."""

    times: tuple[float, ...] = ()  # of each batch: the wait for it, and its step
    steps: tuple[float, ...] = ()  # the same without the wait
    samples: int = 0  # of all batches
    startup_s: float | None = None  # from the start of its workers to their first batch

    def joined(self, later: Stretch) -> Stretch:
        """Return both stretches as one."""
        return Stretch(
            self.times + later.times,
            self.steps + later.steps,
            self.samples + later.samples,
            self.startup_s if later.startup_s is None else later.startup_s,
        )

    def spread_over(self, limit_s: float, usual_s: float, each_s: float) -> Stretch:
        """Return it with `usual_s` for batches of long steps, and `each_s` added to every batch."""
        pairs = zip(self.times, self.steps, strict=True)
        times = tuple((usual_s if step > limit_s else time) + each_s for time, step in pairs)
        return replace(self, times=times)

    def epoch_s(self, setting: Setting, batches: int | None) -> float:
        """Return the seconds of an epoch, or of a sample if the length is not known."""
        if not batches:
            return sum(self.times) / self.samples
        # Batches need not have the same number of samples in each stretch; epochs do.
        return self._startup_s(setting) + batches * statistics.mean(self.times)

    def _startup_s(self, setting: Setting) -> float:
        """Return the time from an epoch's start to its first batch beyond a steady one, seconds."""
        batch_s = statistics.mean(self.times)
        if not setting.num_workers:
            return 0.0
        if setting.persistent_workers:  # each worker makes its first batch after the epoch's start
            return (setting.num_workers - 1) * batch_s
        return max((self.startup_s or 0.0) - batch_s, 0.0)


@dataclass
class Timings:
    """The stretches of one setting by round."""

    rounds: dict[int, Stretch] = field(default_factory=dict)
    # A stretch that was too short for a pair. The next one gets its batches.
    short: Stretch = field(default_factory=Stretch)

    def add(self, number: int, trained: TrainedBatches) -> None:
        """Add what the program trained in a round."""
        times = tuple(
            wait + step for wait, step in zip(trained.waits_s, trained.steps_s, strict=True)
        )
        new = Stretch(times, tuple(trained.steps_s), sum(trained.sizes), trained.startup_s)
        whole = self.short.joined(new)
        if len(whole.times) >= LEAST_BATCHES and sum(whole.times) > 0 and whole.samples > 0:
            self.rounds[number], self.short = whole, Stretch()
        else:
            self.short = whole

    @property
    def times(self) -> list[float]:
        """The seconds of each batch of all rounds."""
        return [time for stretch in self.rounds.values() for time in stretch.times]

    @property
    def steps(self) -> list[float]:
        """The seconds of each step of all rounds."""
        return [step for stretch in self.rounds.values() for step in stretch.steps]


def speedup(
    new: tuple[Setting, Timings], own: tuple[Setting, Timings], batches: int | None
) -> tuple[Speedup, list[int]] | None:
    """Return how many times as fast `new` is over an epoch, and the rounds that both trained in.

    None if there is no such round. With few rounds the interval comes from how much the stretches
    of each setting differ, which includes any drift of the machine, later from how much the ratios
    of the rounds do.
    """
    rounds = sorted(new[1].rounds.keys() & own[1].rounds.keys())
    if not rounds:
        return None
    sides = _alike_in_rare_steps(new[1], own[1])
    logs = [
        [math.log(side[number].epoch_s(setting, batches)) for number in rounds]
        for (setting, _), side in zip((new, own), sides, strict=True)
    ]
    ratios = [math.exp(own_s - new_s) for new_s, own_s in zip(*logs, strict=True)]
    if not 1 < len(rounds) < _MANY:
        return trial_rates.speedup(ratios), rounds
    variance = sum(statistics.variance(each) for each in logs)
    return trial_rates.speedup(ratios, (variance, 2 * (len(rounds) - 1))), rounds


def _alike_in_rare_steps(
    new: Timings, own: Timings
) -> tuple[Mapping[int, Stretch], Mapping[int, Stretch]]:
    """Distribute rare long steps, such as validation, evenly over the batches of both settings.

    They are not due to either setting and fall on one of them by chance.
    """
    steps = new.steps + own.steps
    limit_s = _LONG * statistics.median(steps)
    count = sum(step > limit_s for step in steps)
    if not 0 < count <= _RARE * len(steps):
        return new.rounds, own.rounds
    usual = [_usual(each, limit_s) for each in (new, own)]
    excess = sum(
        time - usual_s
        for each, usual_s in zip((new, own), usual, strict=True)
        for time, step in zip(each.times, each.steps, strict=True)
        if step > limit_s
    )
    each_s = excess / len(steps)
    spread = [
        {number: stretch.spread_over(limit_s, usual_s, each_s)
         for number, stretch in each.rounds.items()}
        for each, usual_s in zip((new, own), usual, strict=True)
    ]  # fmt: skip
    return spread[0], spread[1]


def _usual(timings: Timings, limit_s: float) -> float:
    """Return the mean seconds of the batches whose step is not long."""
    pairs = zip(timings.times, timings.steps, strict=True)
    return statistics.mean([time for time, step in pairs if step <= limit_s] or timings.times)
