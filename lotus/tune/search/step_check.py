"""What a search found, held against the program's own steps: it trains on, with either in turn.

In a trial something stands in for the program's step, which knows how long that takes alone, not
what it does to caches and to memory. Here the step is the real one, on batches that the program
would train on anyway.
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
from lotus.tune.search.result import Result
from lotus.tune.search.search import WORTH
from lotus.tune.search.trial_rates import LEAST_PARTS, Checked, Speedup, means_of_parts

_STRETCH_S = 2.5  # that a stretch is to take
_LEAST, _MOST = 8, 400  # batches of a stretch
_KNOWN = 0.03  # half the interval's width, over the mean, that is good enough
_STRETCHES = 8
_LONG, _RARE = 3.0, 0.05  # a step is, over the median; such steps are, of all
_NO_SLOWER = 0.05  # that what takes less may be, by the lower end of its interval
_ALIKE = 0.9  # the most that parts next to each other are taken to correlate


class Trains(Protocol):
    """A program that can train on for a while, as
    `lotus.tune.session.subprocess_tuning.PipedProgram` does.
    """

    watched: Watched
    problem: str  # why it is not there any more, or ""

    def perform(self, setting: Setting, request: Request[Reply]) -> Reply: ...


def check(
    result: Result,
    program: Trains,
    seconds: float,
    on_stretch: Callable[[Setting], object] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """The result, and how much quicker the program's own training was with it, within `seconds`.

    Where that does not show that it is faster, the program's own setting is the result. Nothing is
    checked of a result that changes nothing; where it cannot be, that is said. `on_stretch` is told
    each setting before the program goes on with it.
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
    """Why a result is not to be checked; "" where it is."""
    if result.interrupted:
        return "interrupted"
    if result.objective != "train":
        return f"--objective {result.objective} leaves its step out"
    return "--check 0s" if seconds <= 0 else ""


def judged(result: Result, checked: Checked) -> Result:
    """The result after the program's own steps have shown as much.

    What is recommended as faster must be so over the whole interval; what takes less and is as
    fast must not be slower by more than `_NO_SLOWER`.
    """
    trials, shown = result.speedup, checked.speedup
    result = dataclasses.replace(result, checked=checked)
    if shown.low > 1 and shown.mean >= 1 + WORTH:
        return result if trials is not None else _by_check(result, shown)
    cheaper = trials is not None and not result.benefit
    if cheaper and shown.low >= 1 - _NO_SLOWER and shown.mean >= 1 - WORTH:
        return result
    if trials is None or shown.high < trials.low:
        return _refused(result, search_notes.refuted(result.best, trials, checked))
    return _refused(result, search_notes.not_shown(result.best, trials, checked))


def without_check(result: Result, why: str) -> Result:
    """The result where the program's own steps could not show anything, with why that is.

    By trials alone something is recommended only where those compared it with the own setting.
    """
    if result.best.normal() == result.own.normal():
        return result
    if result.speedup is None:
        return _refused(result, search_notes.nothing_shown(result.best, why))
    return dataclasses.replace(result, notes=(search_notes.not_checked(why), *result.notes))


def _by_check(result: Result, shown: Speedup) -> Result:
    return dataclasses.replace(result, speedup=shown, benefit=True)


def _refused(result: Result, note: str) -> Result:
    """The program keeps its own setting."""
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
    """What was seen of a setting, over all its stretches."""

    times: list[float] = dataclasses.field(default_factory=list)  # seconds of each batch
    steps: list[float] = dataclasses.field(default_factory=list)  # of these, without the wait
    samples: list[int] = dataclasses.field(default_factory=list)
    # Seconds a sample in parts of each stretch, see trial_rates.py.
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
        """By how much each batch with a step above the limit took longer than the others' mean."""
        usual_s = self._usual(limit_s)
        batches = zip(self.times, self.steps, strict=True)
        return [time - usual_s for time, step in batches if step > limit_s]

    def shared(self, limit_s: float, each_s: float) -> _Seen:
        """With such batches as long as the others, and every batch so much longer."""
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
        """As how many independent parts those are: steps that follow each other are alike."""
        parts = self.parts
        mean, squares = statistics.mean(parts), statistics.variance(parts) * (len(parts) - 1)
        if not squares > 0:
            return len(parts)
        pairs = [pair for parts in self.stretches for pair in itertools.pairwise(parts)]
        likeness = sum((a - mean) * (b - mean) for a, b in pairs) / squares
        likeness = (likeness + 1 / len(parts)) * len(parts) / max(len(pairs), 1)  # it is too low
        likeness = min(max(likeness, 0.0), _ALIKE)
        return max(len(parts) * (1 - likeness) / (1 + likeness), 2.0)

    def known(self) -> bool:
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
        self.batch_s = statistics.median(times) if times else 0.0  # about; warm-up is in it

    def run(self, on_stretch: Callable[[Setting], object] | None) -> None:
        """Train on with the setting found and the own one in turn, until enough is known."""
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
            if checked is not None and self.stretches > 2 and checked.speedup.precision <= _KNOWN:
                return
            setting = self.own if setting == self.best else self.best

    def _batches(self, setting: Setting) -> int:
        """How many batches of a setting to count: as take its time, as the epoch has."""
        seen = self.seen[setting].times
        mean = statistics.mean(seen) if seen else self.batch_s
        wanted = max(_LEAST, min(int(_STRETCH_S / mean), _MOST)) if mean > 0 else _LEAST
        spare = self.left - self.in_flight - 1 - setting.num_workers
        if not self.stretches:  # as many must be left for the other one
            spare = (spare - _in_flight(setting) - 1 - self.own.num_workers) / 2
        return int(min(wanted, max(spare, 0)))

    def compared(self) -> Checked | None:
        """How many times as fast it was, over an epoch; None where too little was seen."""
        new, own = self.seen[self.best], self.seen[self.own]
        if not new.known() or not own.known():
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
    """Both with an equal part of rare long steps, as of validation: those are of neither setting.

    One such falls to the one or to the other by chance.
    """
    steps = new.steps + own.steps
    limit_s = _LONG * statistics.median(steps)
    longer = new.excess(limit_s) + own.excess(limit_s)
    if not 0 < len(longer) <= _RARE * len(steps):
        return new, own
    each_s = sum(longer) / len(steps)
    return new.shared(limit_s, each_s), own.shared(limit_s, each_s)


def _left(watched: Watched) -> float:
    """Batches of the epoch that the program has yet to train on."""
    if watched.batches is None:
        return math.inf
    return max(watched.batches - len(watched.waits_s) - len(watched.alone_s), 0)


def _fitting(best: Setting, own: Setting, watched: Watched) -> Setting:
    """The setting to be held against the own one: with less prefetched where the epoch is short."""
    passed = _in_flight(own) + _in_flight(best) + 2 + best.num_workers + own.num_workers
    if not best.num_workers or _left(watched) >= passed + 2 * _LEAST:
        return best
    fewer = min(best.prefetch_factor or TORCH_PREFETCH, TORCH_PREFETCH)
    return dataclasses.replace(best, prefetch_factor=fewer)


def _in_flight(setting: Setting) -> int:
    """Batches that its workers are asked for before one is taken."""
    return setting.num_workers * (setting.prefetch_factor or TORCH_PREFETCH)


def _epoch(setting: Setting, seen: _Seen, batches: int | None) -> tuple[float, float]:
    """(Seconds of an epoch, or of one sample where its length is not known; standard error)."""
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
    if setting.persistent_workers:  # each makes one; none does so before
        return (setting.num_workers - 1) * batch_s
    return max(statistics.mean(seen.startups) - batch_s, 0.0)
