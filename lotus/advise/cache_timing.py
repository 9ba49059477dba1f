"""What a planned cache gives: epochs of the program's own loader, timed with and without it.

The program is paused in its first epoch and times them itself: see
lotus/inside/tune/candidates/epoch_timer.py. Each round has an epoch without a cache, one that fills
an empty cache, and one that reads all samples from it.
"""

from __future__ import annotations

import math
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from lotus.common.statistics import t_quantile
from lotus.inside.tune.candidates.trial_requests import Reply, Request, TimedEpoch, TimeEpoch
from lotus.settings import sample_caches
from lotus.settings.space import TORCH_PREFETCH, Setting
from lotus.settings.tuned_file import SampleCache
from lotus.tune.program.program import TrialFailed, Watched

LEAST_ROUNDS = 4
_ROUNDS = 8
_LEAST_BATCHES = 8  # of an epoch that is not timed whole, and of each worker
_LIMIT_S = 60.0  # of a batch
_WIDEST = 0.5  # half an interval's width, of logarithms: more says little


class TimesEpochs(Protocol):
    """A program that is paused at a batch of its loader."""

    watched: Watched
    problem: str

    def perform(self, setting: Setting, request: Request[Reply]) -> Reply: ...


@dataclass(frozen=True)
class EpochShares:
    """Which parts of an epoch's samples come from the cache, and are written to it."""

    hits: float
    written: float


@dataclass(frozen=True)
class EpochRound:
    """Seconds of a whole epoch: without a cache, filling one, and with all samples from it."""

    plain_s: float
    filling_s: float
    cached_s: float

    def seconds(self, shares: EpochShares) -> float:
        """Return those of an epoch with such parts, as a mean of the three."""
        rest = 1 - shares.hits - shares.written
        return rest * self.plain_s + shares.written * self.filling_s + shares.hits * self.cached_s


@dataclass(frozen=True)
class Ratio:
    """A ratio of two epochs with the 95 % interval for a further pair."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class CacheTiming:
    """What was timed, as `lotus.tune.session.subprocess_tuning.Measured` has it.

    batches  of each epoch that was timed; whole ones are computed from shorter ones
    failure  why there is no answer, as a clause; ""  if there is one
    """

    rounds: tuple[EpochRound, ...]
    batches: int
    epoch_batches: int
    seconds: float
    first: EpochShares
    later: EpochShares
    interrupted: bool = False
    failure: str = ""

    @property
    def speedup(self) -> Ratio | None:
        """How many times as fast an epoch from the second on is; None: it cannot be told."""
        return self._over([each.plain_s / each.seconds(self.later) for each in self.rounds])

    @property
    def first_longer(self) -> Ratio | None:
        """How many times as long the first epoch takes."""
        return self._over([each.seconds(self.first) / each.plain_s for each in self.rounds])

    @property
    def plain_s(self) -> float:
        """The mean seconds of an epoch without a cache."""
        return statistics.mean(each.plain_s for each in self.rounds)

    def saved_s(self, epochs: int) -> float:
        """Return the seconds that so many epochs take less, on average."""
        first = statistics.mean(each.seconds(self.first) for each in self.rounds)
        later = statistics.mean(each.seconds(self.later) for each in self.rounds)
        return self.plain_s - first + (epochs - 1) * (self.plain_s - later)

    def break_even(self) -> int | None:
        """Return after how many epochs the cache has saved what it cost; None: never."""
        gain = self.saved_s(2) - self.saved_s(1)
        if self.saved_s(1) >= 0:
            return 1
        return None if gain <= 0 else 1 + math.ceil(-self.saved_s(1) / gain)

    def _over(self, ratios: Sequence[float]) -> Ratio | None:
        if len(ratios) < LEAST_ROUNDS:
            return None
        logs = [math.log(ratio) for ratio in ratios]
        mean, count = statistics.mean(logs), len(logs)
        # Of a further epoch, not of the mean: that is what the user will see.
        half = t_quantile(count - 1) * statistics.stdev(logs) * math.sqrt(1 + 1 / count)
        if half > _WIDEST:
            return None
        return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half))

    def why_unknown(self) -> str:
        """Return why no gain is predicted, as a clause; "" if one is."""
        if self.failure:
            return self.failure
        if len(self.rounds) < LEAST_ROUNDS:
            return (
                f"only {len(self.rounds)} of at least {LEAST_ROUNDS} rounds of epochs were timed "
                f"in {self.seconds:.0f} s"
            )
        if self.speedup is None or self.first_longer is None:
            return "timed epochs differ too much, as where other programs use the cores"
        return ""


def measure(
    program: TimesEpochs,
    cache: SampleCache,
    folder: Path,
    shares: tuple[EpochShares, EpochShares],
    budget_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> CacheTiming:
    """Time rounds of epochs for about `budget_s`, with caches below `folder`.

    It may take twice as long where too few rounds fit otherwise.
    `shares` are those of the first epoch and of later ones.
    """
    watched, began = program.watched, clock()
    rounds: list[EpochRound] = []
    whole = watched.batches or 0
    batches = _batches(watched, budget_s)
    interrupted, failure = False, "" if whole else "the number of its batches is not known"
    try:
        while not failure and len(rounds) < _ROUNDS:
            start = clock()
            rounds.append(_round(program, cache, folder, len(rounds), batches))
            most_s = budget_s * (1 if len(rounds) >= LEAST_ROUNDS else 2)
            if clock() - began + (clock() - start) > most_s:
                break
    except TrialFailed as error:
        failure = str(error)
    except KeyboardInterrupt:
        interrupted, failure = not program.problem, program.problem or "it was interrupted"
    return CacheTiming(
        tuple(rounds), batches, whole, clock() - began, *shares, interrupted, failure
    )


def _batches(watched: Watched, budget_s: float) -> int:
    """Return how many batches an epoch has that is timed."""
    times = [wait + step for wait, step in zip(watched.waits_s, watched.steps_s, strict=False)]
    usual_s = statistics.median(times[1:] or times or [1.0])
    workers, whole = watched.setting.num_workers, watched.batches or 1
    burst = max(workers, 1)
    ahead = workers * (watched.setting.prefetch_factor or TORCH_PREFETCH)
    least = max(_LEAST_BATCHES * burst, 2 * ahead)
    # A filling epoch takes longer than others, and one with all hits is short.
    fit = int(budget_s / (2.5 * _ROUNDS * max(usual_s, 1e-6)))
    return min(whole, math.ceil(max(fit, least) / burst) * burst)


def _round(
    program: TimesEpochs, cache: SampleCache, folder: Path, number: int, batches: int
) -> EpochRound:
    whole, place = program.watched.batches or batches, folder / str(number)
    # Other samples each time, so that their files are as often in memory as in training.
    parts = max(whole // batches, 1)
    entry = {**asdict(cache), "folder": str(place)}

    def timed(kind: int, settings: dict[str, object] | None, filled: bool = False) -> float:
        skip = (2 * number + kind) % parts * batches
        request = TimeEpoch(batches, skip, settings, filled, _LIMIT_S)
        epoch = program.perform(program.watched.setting, request)
        return seconds(epoch, program.watched.setting.num_workers, whole)

    try:
        plain_s = timed(0, None) if number % 2 == 0 else 0.0
        filling_s = timed(1, entry)
        _look(place)
        cached_s = timed(1, entry, filled=True)
        return EpochRound(plain_s or timed(0, None), filling_s, cached_s)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _look(place: Path) -> None:
    """Look whether samples were cached. Raises TrialFailed."""
    caches = [sample_caches.read(folder) for folder in place.iterdir()] if place.is_dir() else []
    if not any(cache is not None and cache.samples for cache in caches):
        raise TrialFailed("its samples were not cached when that was tried")
    dropped = next((cache.dropped for cache in caches if cache is not None), None)
    if dropped:
        raise TrialFailed(f"its cache was dropped when that was tried: {dropped}")


def seconds(epoch: TimedEpoch, workers: int, batches: int) -> float:
    """Return the seconds of an epoch of so many batches, from one that may have fewer.

    The batches after the first of each worker stand for all others.
    """
    got, burst = epoch.batches_s, max(workers, 1)
    if len(got) >= batches or len(got) <= burst:
        return epoch.total_s
    usual_s = (got[-1] - got[burst - 1]) / (len(got) - burst)
    return epoch.total_s + (batches - len(got)) * usual_s
