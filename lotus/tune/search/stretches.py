"""Trains with several settings in turn, and compares their speeds over an epoch."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lotus.common.statistics import t_quantile
from lotus.inside.tune.candidates.trial_requests import Reply, Request, Train, TrainedBatches
from lotus.settings.space import TORCH_PREFETCH, Setting
from lotus.tune.program.program import TrialFailed, Watched
from lotus.tune.search.trial_rates import LEAST_PARTS, Checked, Speedup, means_of_parts

_STRETCH_S = 2.5  # intended duration of a stretch
_LONGEST = 1.5  # times that duration, where settings differ in threads
_SHORTEST_S = 1.2  # of a stretch, so that several settings fit into the time
_LEAST, _MOST = 8, 400  # batches of a stretch
_FEW = LEAST_PARTS + 1  # batches that a stretch needs where the time of others runs out
_PRECISE = 0.03  # half the interval's width over the mean, at which the check ends
_STRETCHES = 4  # of each setting
_LONG, _RARE = 3.0, 0.05  # a long step exceeds 3 medians; long steps are rare up to this share
_MUCH = 0.9  # of the rate of another setting: one below is not trained with again
_ALIKE = 0.9  # upper limit of the correlation of adjacent parts


class Trains(Protocol):
    """A program that can train on for a while, as
    `lotus.tune.session.subprocess_tuning.PipedProgram` does.
    """

    watched: Watched
    problem: str  # why it has ended, or ""

    def perform(self, setting: Setting, request: Request[Reply]) -> Reply: ...


@dataclass
class _Seen:
    """The measurements of one setting over all its stretches."""

    times: list[float] = dataclasses.field(default_factory=list)  # seconds of each batch
    steps: list[float] = dataclasses.field(default_factory=list)  # the same without the wait
    samples: list[int] = dataclasses.field(default_factory=list)
    # Seconds per sample in parts of each stretch, see trial_rates.py.
    stretches: list[list[float]] = dataclasses.field(default_factory=list)
    startups: list[float] = dataclasses.field(default_factory=list)  # seconds
    counts: list[tuple[int, int]] = dataclasses.field(default_factory=list)  # batches, workers
    # (wait, step, samples) of batches of stretches that were too short; the next one gets them.
    kept: list[tuple[float, float, int]] = dataclasses.field(default_factory=list)

    def add(self, stretch: TrainedBatches, workers: int) -> None:
        self.startups += [stretch.startup_s] if stretch.startup_s is not None else []
        self.kept += zip(stretch.waits_s, stretch.steps_s, stretch.sizes, strict=True)
        if len(self.kept) >= LEAST_PARTS:
            kept, self.kept = self.kept, []
            times = [wait + step for wait, step, _ in kept]
            self._count(
                times, [step for _, step, _ in kept], [size for _, _, size in kept], workers
            )

    def _count(
        self, times: list[float], steps: list[float], sizes: list[int], workers: int
    ) -> None:
        self.times += times
        self.steps += steps
        self.samples += sizes
        self.stretches.append(means_of_parts(times, sizes, workers))
        self.counts.append((len(times), workers))

    def excess(self, limit_s: float) -> list[float]:
        """The extra time of each batch with a step above the limit, over the mean of others."""
        usual_s = self._usual(limit_s)
        batches = zip(self.times, self.steps, strict=True)
        return [time - usual_s for time, step in batches if step > limit_s]

    def shared(self, limit_s: float, each_s: float) -> _Seen:
        """A copy with long batches shortened to the mean, and `each_s` added to every batch."""
        made, at, usual_s = _Seen(startups=self.startups), 0, self._usual(limit_s)
        for count, workers in self.counts:
            here = slice(at, at + count)
            steps = self.steps[here]
            batches = zip(self.times[here], steps, strict=True)
            times = [(usual_s if step > limit_s else time) + each_s for time, step in batches]
            made._count(times, steps, self.samples[here], workers)
            at += count
        return made

    def _usual(self, limit_s: float) -> float:
        batches = zip(self.times, self.steps, strict=True)
        return statistics.mean([time for time, step in batches if step <= limit_s] or self.times)

    @property
    def parts(self) -> list[float]:
        return [part for parts in self.stretches for part in parts]

    def independent(self) -> float:
        """The effective number of independent parts, as successive steps are correlated."""
        parts = self.parts
        mean, squares = statistics.mean(parts), statistics.variance(parts) * (len(parts) - 1)
        if not squares > 0:
            return len(parts)
        pairs = [pair for parts in self.stretches for pair in itertools.pairwise(parts)]
        likeness = sum((a - mean) * (b - mean) for a, b in pairs) / squares
        likeness = (likeness + 1 / len(parts)) * len(parts) / max(len(pairs), 1)  # remove its bias
        likeness = min(max(likeness, 0.0), _ALIKE)
        return max(len(parts) * (1 - likeness) / (1 + likeness), 2.0)

    def is_enough(self) -> bool:
        return len(self.parts) >= LEAST_PARTS and sum(self.times) > 0 and sum(self.samples) > 0


class Stretches:
    """Stretches of training with the own setting and others, in turn.

    `settings` are compared in this order, the own one among them; a setting that proves slower than
    another one is not trained with again. `until` is a time of the clock.
    """

    def __init__(
        self,
        settings: Sequence[Setting],
        own: Setting,
        program: Trains,
        until: float,
        clock: Callable[[], float],
    ) -> None:
        self.settings, self.own, self.program = list(settings), own, program
        self.until, self.clock = until, clock
        self.seen = {setting: _Seen() for setting in settings}
        self.stretches = 0
        watched = program.watched
        self.left = left_of(watched)
        self.in_flight = _in_flight(own)
        times = [wait + step for wait, step in zip(watched.waits_s, watched.steps_s, strict=False)]
        self.batch_s = statistics.median(times) if times else 0.0  # an estimate with warm-up
        self.stretch_s = _stretch_s(len(settings), until - clock())

    def beyond_epoch(self) -> bool:
        """Return whether the program was given more batches than its epoch has."""
        return self.program.watched.endless and self.left < 0

    def untried(self) -> list[Setting]:
        """Return the settings that have not been trained with."""
        return [setting for setting, seen in self.seen.items() if not seen.times]

    def replace(self, setting: Setting, other: Setting) -> None:
        """Train with `other` in place of an untried setting."""
        if other not in self.seen:
            self.settings = [other if each == setting else each for each in self.settings]
            self.seen = {other if key == setting else key: seen for key, seen in self.seen.items()}

    def step_s(self, setting: Setting) -> float | None:
        """Return the median seconds of a step with a setting; None if none was measured."""
        steps = self.seen[setting].steps
        return statistics.median(steps) if steps else None

    def run(
        self,
        on_stretch: Callable[[Setting], object] | None,
        measured: Callable[[Setting], object] | None = None,
    ) -> None:
        """Train with each setting in turn, until the ratios to the own one are precise.

        `on_stretch` is called with a setting before it is trained with, `measured` afterwards.
        """
        most, took = _STRETCHES * len(self.settings), 0.0
        turn = 0
        while self.stretches < most:
            setting = self.settings[turn]
            start = self.clock()
            if start + took >= self.until:
                return
            batches = self._batches(setting)
            if batches < LEAST_PARTS:
                return
            if on_stretch is not None:
                on_stretch(setting)
            seconds = min(self.until - start, self._longest_s(setting))
            request = Train(batches, discard=setting.num_workers, seconds=seconds)
            stretch = self.program.perform(setting, request)
            if stretch.refused:
                raise TrialFailed(stretch.refused)
            self.stretches += 1
            took = self.clock() - start
            self.left -= stretch.passed
            self.in_flight = _in_flight(setting)
            self.seen[setting].add(stretch, setting.num_workers)
            if measured is not None:
                measured(setting)
            if stretch.over:
                return
            if self.stretches > len(self.seen) and self._is_precise():
                return
            turn += 1
            if turn == len(self.settings):
                self._drop_slower()
                turn = 0

    def _longest_s(self, setting: Setting) -> float:
        """The longest duration of a stretch.

        Other work on the machine makes steps with many threads many times as long. A stretch of
        them must leave time to the settings with fewer threads.
        """
        if all(each.torch_threads is None for each in self.seen):
            return math.inf
        longest_s = max(_LONGEST * self.stretch_s, _FEW * self.batch_s)
        return longest_s * (2 if setting.num_workers else 1)  # workers have to start

    def _is_precise(self) -> bool:
        shown = [self.compared(setting) for setting in self.settings if setting != self.own]
        return all(each is not None and each.speedup.precision <= _PRECISE for each in shown)

    def _drop_slower(self) -> None:
        """Leave out settings that are much slower than another one, so that others get the time."""
        if len(self.seen) <= 2:
            return
        shown = {
            setting: self.compared(setting) for setting in self.settings if setting != self.own
        }
        lows = [each.speedup.low for each in shown.values() if each is not None]
        for setting, each in shown.items():
            if each is not None and each.speedup.high < _MUCH * max([1.0, *lows]):
                self.settings.remove(setting)

    def _batches(self, setting: Setting) -> int:
        """The number of batches of the next stretch, limited by its time and by the epoch."""
        seen = self.seen[setting].times
        mean = statistics.mean(seen) if seen else self.batch_s
        wanted = max(_LEAST, min(int(self.stretch_s / mean), _MOST)) if mean > 0 else _LEAST
        spare = self.left - self.in_flight - 1 - setting.num_workers
        first = self.stretches < len(self.seen)
        if first:  # leave as many for those that follow
            later = self.settings[self.stretches + 1 :]
            spare = (spare - _passed(setting, later)) / (1 + len(later))
        if self.program.watched.endless and (not first or spare < _LEAST):
            spare = math.inf
        return int(min(wanted, max(spare, 0)))

    def compared(self, setting: Setting, other: Setting | None = None) -> Checked | None:
        """The speed-up over the own setting, or another one, over an epoch.

        None if too little was measured.
        """
        other = self.own if other is None else other
        new, own = self.seen[setting], self.seen[other]
        if not new.is_enough() or not own.is_enough():
            return None
        new, own = _alike_in_rare_steps(new, own)
        batches = self.program.watched.batches
        took = [_epoch(setting, new, batches), _epoch(other, own, batches)]
        ratio = took[1][0] / took[0][0]
        error = math.hypot(*(spread / mean for mean, spread in took))
        spread = min(t_quantile(min(len(new.parts), len(own.parts)) - 1) * error, 100.0)
        speedup = Speedup(ratio, ratio * math.exp(-spread), ratio * math.exp(spread), 0)
        return Checked(setting, speedup, len(new.times), len(own.times))


def affordable(
    settings: Sequence[Setting], optional: Sequence[Setting], watched: Watched, seconds: float
) -> list[Setting]:
    """Return `settings` and the first of `optional` for which time and epoch suffice."""
    taken, left = list(settings), left_in(watched)
    times = [wait + step for wait, step in zip(watched.waits_s, watched.steps_s, strict=False)]
    least_s = _FEW * (statistics.median(times) if times else 0.0)
    for setting in optional:
        several = [*taken, setting]
        passed = _passed(watched.setting, several) + len(several) * _LEAST
        if passed > left or len(several) * max(_SHORTEST_S, least_s) > seconds:
            break
        taken = several
    return taken


def _stretch_s(settings: int, seconds: float) -> float:
    """The duration of a stretch, so that there are two of each of several settings."""
    return _STRETCH_S if settings <= 2 else min(_STRETCH_S, seconds / (2 * settings + 1))


def _passed(before: Setting, later: Sequence[Setting]) -> int:
    """Batches that pass uncounted before the stretches of settings, one after the other."""
    pairs = itertools.pairwise([before, *later])
    return sum(_in_flight(former) + 1 + setting.num_workers for former, setting in pairs)


def _alike_in_rare_steps(new: _Seen, own: _Seen) -> tuple[_Seen, _Seen]:
    """Distribute rare long steps, such as validation, evenly over both settings.

    They are not due to either setting and fall on one of them by chance.
    """
    steps = new.steps + own.steps
    limit_s = _LONG * statistics.median(steps)
    longer = new.excess(limit_s) + own.excess(limit_s)
    if not 0 < len(longer) <= _RARE * len(steps):
        return new, own
    each_s = sum(longer) / len(steps)
    return new.shared(limit_s, each_s), own.shared(limit_s, each_s)


def left_of(watched: Watched) -> float:
    """The number of batches left of the epoch that the program is in; inf: not known."""
    if watched.batches is None:
        return math.inf
    return max(watched.batches - len(watched.waits_s) - len(watched.alone_s), 0)


def left_in(watched: Watched) -> float:
    """The number of batches until the epoch ends; inf: not known, or it begins again at its end."""
    return math.inf if watched.endless else left_of(watched)


def fitting(best: Setting, own: Setting, watched: Watched) -> Setting:
    """The setting to compare with the own one: with less prefetching if the epoch is short."""
    passed = _in_flight(own) + _in_flight(best) + 2 + best.num_workers + own.num_workers
    if not best.num_workers or left_in(watched) >= passed + 2 * _LEAST:
        return best
    fewer = min(best.prefetch_factor or TORCH_PREFETCH, TORCH_PREFETCH)
    return dataclasses.replace(best, prefetch_factor=fewer)


def _in_flight(setting: Setting) -> int:
    """Batches requested from the workers before the first is taken."""
    return setting.num_workers * (setting.prefetch_factor or TORCH_PREFETCH)


def _epoch(setting: Setting, seen: _Seen, batches: int | None) -> tuple[float, float]:
    """(seconds of an epoch, or of a sample if the length is not known; its standard error)."""
    sample_s = sum(seen.times) / sum(seen.samples)
    error = statistics.stdev(seen.parts) / math.sqrt(seen.independent())
    if not batches:
        return sample_s, error
    samples = statistics.mean(seen.samples) * batches
    return _startup(setting, seen) + samples * sample_s, samples * error


def _startup(setting: Setting, seen: _Seen) -> float:
    """Seconds from an epoch's start to its first batch, beyond a batch in steady state."""
    batch_s = statistics.mean(seen.times)
    if not setting.num_workers:
        return 0.0
    if setting.persistent_workers:  # each worker makes its first batch after the epoch's start
        return (setting.num_workers - 1) * batch_s
    return max(statistics.mean(seen.startups) - batch_s, 0.0)
