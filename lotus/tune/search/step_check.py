"""Checks the result of a search in real training, alternating between it and the own setting.

Trials emulate the program's step: they know its duration, but not its effect on caches and memory.
The check uses the real step, on batches that the program would train on anyway.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from lotus.common.statistics import t_quantile
from lotus.inside.tune.candidates.trial_requests import Reply, Request, Train, TrainedBatches
from lotus.settings.space import TORCH_PREFETCH, Setting
from lotus.tune.program.program import TrialFailed, Watched
from lotus.tune.search import search_notes
from lotus.tune.search.decision import WORTH, is_faster
from lotus.tune.search.result import Result
from lotus.tune.search.trial_rates import LEAST_PARTS, Checked, Speedup, means_of_parts

_STRETCH_S = 2.5  # intended duration of a stretch
_LEAST, _MOST = 8, 400  # batches of a stretch
_PRECISE = 0.03  # half the interval's width over the mean, at which the check ends
_STRETCHES = 8
_LONG, _RARE = 3.0, 0.05  # a long step exceeds 3 medians; long steps are rare up to this share
_NO_SLOWER = 0.05  # accepted loss of a cheaper setting at the lower end of its interval
_ALIKE = 0.9  # upper limit of the correlation of adjacent parts


class Trains(Protocol):
    """A program that can train on for a while, as
    `lotus.tune.session.subprocess_tuning.PipedProgram` does.
    """

    watched: Watched
    problem: str  # why it has ended, or ""

    def perform(self, setting: Setting, request: Request[Reply]) -> Reply: ...


def check(
    result: Result,
    program: Trains,
    seconds: float,
    on_stretch: Callable[[Setting], object] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """Check a result in the program's own training, within `seconds`, and return it updated.

    If the check does not show that the setting is faster, the result recommends the program's own
    setting. A result that recommends that already is returned unchanged. If the check is not
    possible, a note says so. `on_stretch` is called with each setting before the program trains
    with it.
    """
    if result.best.normal() == result.own.normal():
        return result
    why = _unchecked(result, seconds)
    if why:
        return without_check(result, why)
    tried = _fitting(result.best.normal(), result.own.normal(), program.watched)
    comparison = _Check(tried, result.own.normal(), program, clock() + seconds, clock)
    why, stopped = "", False
    try:
        comparison.run(on_stretch)
    except TrialFailed as error:
        why = str(error)
    except KeyboardInterrupt:
        stopped = True
    checked = comparison.compared()
    if checked is None:
        reason = program.problem or ("interrupted" if stopped else why or search_notes.FEW_LEFT)
        result = without_check(result, reason)
    else:
        result = judged(result, checked)
    return dataclasses.replace(result, interrupted=stopped and not program.problem)


def _unchecked(result: Result, seconds: float) -> str:
    """Return why a result is not checked, or "" if it is."""
    if result.interrupted:
        return "interrupted"
    if result.objective != "train":
        return f"--objective {result.objective} leaves out the step"
    return "--check 0s" if seconds <= 0 else ""


def judged(result: Result, checked: Checked) -> Result:
    """Return the result updated by the comparison in the program's own steps.

    A setting recommended as faster must be faster over the whole interval. A cheaper setting must
    not be slower by more than `_NO_SLOWER`.
    """
    trials, shown = result.speedup, checked.speedup
    result = dataclasses.replace(result, checked=checked)
    if is_faster(shown):
        return result if trials is not None else _by_check(result, shown)
    cheaper = trials is not None and not result.benefit
    if cheaper and shown.low >= 1 - _NO_SLOWER and shown.mean >= 1 - WORTH:
        return result
    if trials is None or shown.high < trials.low:
        return _refused(result, search_notes.refuted(result.best, trials, checked))
    return _refused(result, search_notes.not_shown(result.best, trials, checked))


def without_check(result: Result, why: str) -> Result:
    """Return the result with a note on why the program's own steps could not be measured.

    Trials alone are enough for a recommendation only if they compared it with the own setting.
    """
    if result.best.normal() == result.own.normal():
        return result
    if result.speedup is None:
        return _refused(result, search_notes.nothing_shown(result.best, why))
    return dataclasses.replace(result, notes=(search_notes.not_checked(why), *result.notes))


def _by_check(result: Result, shown: Speedup) -> Result:
    return dataclasses.replace(result, speedup=shown, benefit=True)


def _refused(result: Result, note: str) -> Result:
    """The result with the program's own setting as the recommendation."""
    watched = result.watched
    of_best = search_notes.augmentations(
        result.best.normal(), result.own.normal(), watched.iterable
    )
    return dataclasses.replace(
        result,
        best=result.own,
        speedup=Speedup(1.0, 1.0, 1.0, 0),
        benefit=False,
        notes=(note, *(text for text in result.notes if text != of_best)),
    )


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

    def add(self, stretch: TrainedBatches, workers: int) -> None:
        self.startups += [stretch.startup_s] if stretch.startup_s is not None else []
        times = [a + b for a, b in zip(stretch.waits_s, stretch.steps_s, strict=True)]
        if len(times) >= LEAST_PARTS:
            self._count(times, list(stretch.steps_s), list(stretch.sizes), workers)

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


class _Check:
    def __init__(
        self,
        best: Setting,
        own: Setting,
        program: Trains,
        until: float,
        clock: Callable[[], float],
    ) -> None:
        self.best, self.own, self.program = best, own, program
        self.until, self.clock = until, clock
        self.seen = {best: _Seen(), own: _Seen()}
        self.stretches = 0
        watched = program.watched
        self.left = _left(watched)
        self.in_flight = _in_flight(own)
        times = [wait + step for wait, step in zip(watched.waits_s, watched.steps_s, strict=False)]
        self.batch_s = statistics.median(times) if times else 0.0  # an estimate with warm-up

    def run(self, on_stretch: Callable[[Setting], object] | None) -> None:
        """Train with the best setting and the own one in turn, until the ratio is precise."""
        setting, took = self.best, 0.0
        while self.stretches < _STRETCHES:
            start = self.clock()
            if start + took >= self.until:
                return
            batches = self._batches(setting)
            if batches < LEAST_PARTS:
                return
            if on_stretch is not None:
                on_stretch(setting)
            request = Train(batches, discard=setting.num_workers, seconds=self.until - start)
            stretch = self.program.perform(setting, request)
            if stretch.refused:
                raise TrialFailed(stretch.refused)
            self.stretches += 1
            took = self.clock() - start
            self.left -= stretch.passed
            self.in_flight = _in_flight(setting)
            seen = self.seen[setting]
            seen.add(stretch, setting.num_workers)
            if stretch.over:
                return
            checked = self.compared()
            if checked is not None and self.stretches > 2 and checked.speedup.precision <= _PRECISE:
                return
            setting = self.own if setting == self.best else self.best

    def _batches(self, setting: Setting) -> int:
        """The number of batches of the next stretch, limited by its time and by the epoch."""
        seen = self.seen[setting].times
        mean = statistics.mean(seen) if seen else self.batch_s
        wanted = max(_LEAST, min(int(_STRETCH_S / mean), _MOST)) if mean > 0 else _LEAST
        spare = self.left - self.in_flight - 1 - setting.num_workers
        if not self.stretches:  # leave as many for the other setting
            spare = (spare - _in_flight(setting) - 1 - self.own.num_workers) / 2
        return int(min(wanted, max(spare, 0)))

    def compared(self) -> Checked | None:
        """The speed-up over an epoch; None if too little was measured."""
        new, own = self.seen[self.best], self.seen[self.own]
        if not new.is_enough() or not own.is_enough():
            return None
        new, own = _alike_in_rare_steps(new, own)
        batches = self.program.watched.batches
        took = [_epoch(self.best, new, batches), _epoch(self.own, own, batches)]
        ratio = took[1][0] / took[0][0]
        error = math.hypot(*(spread / mean for mean, spread in took))
        spread = min(t_quantile(min(len(new.parts), len(own.parts)) - 1) * error, 100.0)
        speedup = Speedup(ratio, ratio * math.exp(-spread), ratio * math.exp(spread), 0)
        return Checked(self.best, speedup, len(new.times), len(own.times))


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


def _left(watched: Watched) -> float:
    """The number of batches left in the epoch."""
    if watched.batches is None:
        return math.inf
    return max(watched.batches - len(watched.waits_s) - len(watched.alone_s), 0)


def _fitting(best: Setting, own: Setting, watched: Watched) -> Setting:
    """The setting to compare with the own one: with less prefetching if the epoch is short."""
    passed = _in_flight(own) + _in_flight(best) + 2 + best.num_workers + own.num_workers
    if not best.num_workers or _left(watched) >= passed + 2 * _LEAST:
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
