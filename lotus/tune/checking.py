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

from lotus.tune import notes
from lotus.tune.rates import LEAST_PARTS, Checked, Speedup, means_of_parts, t95
from lotus.tune.result import Result
from lotus.tune.search import WORTH
from lotus.tune.space import TORCH_PREFETCH, Setting
from lotus.tune.trying import Stretch, TrialFailed, Watched

_STRETCH_S = 2.5  # that a stretch is to take
_LEAST, _MOST = 8, 400  # batches of a stretch
_KNOWN = 0.03  # half the interval's width, over the mean, that is good enough
_STRETCHES = 8
_LONG, _RARE = 3.0, 0.05  # a step is, over the median; such steps are, of all
_ALIKE = 0.9  # the most that parts next to each other are taken to correlate


class Trains(Protocol):
    """A program that can train on for a while, as `lotus.tuning.PipedProgram` does."""

    watched: Watched
    problem: str  # why it is not there any more, or ""

    def train(self, setting: Setting, *, batches: int, discard: int, seconds: float) -> Stretch: ...


def check(
    result: Result,
    program: Trains,
    seconds: float,
    on_stretch: Callable[[Setting], object] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """The result, and how much quicker the program's own training was with it, within `seconds`.

    Where that is less than the trials said and no gain, the program's own setting is the result.
    Nothing is checked of a result that changes nothing, or was found without steps. `on_stretch`
    is told each setting before the program goes on with it.
    """
    if (
        seconds <= 0
        or result.best.normal() == result.own.normal()
        or result.speedup is None
        or result.interrupted
        or result.objective != "train"
    ):
        return result
    tried = _fitting(result.best.normal(), result.own.normal(), program.watched)
    one = _Check(tried, result.own.normal(), program, clock() + seconds, clock)
    why, stopped = "", False
    try:
        one.run(on_stretch)
    except TrialFailed as error:
        why = str(error)
    except KeyboardInterrupt:
        stopped = True
    found = one.compared()
    if found is None:
        said = program.problem or ("interrupted" if stopped else why or notes.FEW_LEFT)
        result = dataclasses.replace(result, notes=(notes.not_checked(said), *result.notes))
    else:
        result = judged(result, found)
    return dataclasses.replace(result, interrupted=stopped and not program.problem)


def judged(result: Result, found: Checked) -> Result:
    """The result after the program's own steps have shown as much."""
    trials, shown = result.speedup, found.speedup
    assert trials is not None
    result = dataclasses.replace(result, checked=found)
    if shown.mean >= (1 + WORTH if result.benefit else 1 - WORTH):
        unsure = (notes.UNSURE,) if result.benefit and shown.low <= 1 else ()
        return dataclasses.replace(result, notes=(*unsure, *result.notes))
    if shown.high >= trials.low:
        return dataclasses.replace(result, notes=(notes.UNDECIDED, *result.notes))
    return dataclasses.replace(
        result,
        best=result.own,
        speedup=Speedup(1.0, 1.0, 1.0, 0),
        benefit=False,
        notes=(notes.refuted(result.best, trials, found), *result.notes),
    )


@dataclass
class _Seen:
    """What was seen of a setting, over all its stretches."""

    times: list[float] = dataclasses.field(default_factory=list)  # seconds of each batch
    steps: list[float] = dataclasses.field(default_factory=list)  # of these, without the wait
    samples: list[int] = dataclasses.field(default_factory=list)
    # Seconds a sample in parts of each stretch, see rates.py.
    stretches: list[list[float]] = dataclasses.field(default_factory=list)
    startups: list[float] = dataclasses.field(default_factory=list)  # seconds

    def add(self, stretch: Stretch, workers: int) -> None:
        self.startups += [stretch.startup_s] if stretch.startup_s is not None else []
        times = [a + b for a, b in zip(stretch.waits_s, stretch.steps_s, strict=True)]
        if len(times) >= LEAST_PARTS:
            self.times += times
            self.steps += stretch.steps_s
            self.samples += stretch.sizes
            self.stretches.append(means_of_parts(times, stretch.sizes, workers))

    def usual(self, other: _Seen) -> float:
        """The part of a sample's mean time that is left without rare long steps, as validation.

        One such falls to this setting or to the other one, and is of neither.
        """
        steps = self.steps + other.steps
        limit = _LONG * statistics.median(steps)
        if not 0 < sum(step > limit for step in steps) <= _RARE * len(steps):
            return 1.0
        batches = zip(self.times, self.steps, self.samples, strict=True)
        kept = [(time, size) for time, step, size in batches if step <= limit]
        samples = sum(size for _, size in kept)
        if not samples:
            return 1.0
        sample_s = sum(time for time, _ in kept) / samples
        return sample_s / (sum(self.times) / sum(self.samples)) or 1.0

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
            stretch = self.program.train(
                setting, batches=batches, discard=setting.num_workers, seconds=self.until - start
            )
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
            found = self.compared()
            if found is not None and self.stretches > 2 and found.speedup.precision <= _KNOWN:
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
        batches = self.program.watched.batches
        took = [_epoch(self.best, new, batches), _epoch(self.own, own, batches)]
        ratio = took[1][0] / took[0][0]
        error = math.hypot(*(spread / mean for mean, spread in took))
        spread = min(t95(min(len(new.parts), len(own.parts)) - 1) * error, 100.0)
        usual = ratio * own.usual(new) / new.usual(own)
        low, high = ratio * math.exp(-spread), ratio * math.exp(spread)
        low, high = min(low, usual), max(high, usual)
        speedup = Speedup(ratio, low, high, 0)
        return Checked(self.best, speedup, len(new.times), len(own.times))


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
