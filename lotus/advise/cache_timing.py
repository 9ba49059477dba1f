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
from dataclasses import asdict, dataclass, replace
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
_LEAST_BATCHES, _LEAST_BURSTS = 8, 3  # of an epoch; a burst is a batch of each worker
_ENOUGH_BURSTS = 8  # from which on more rounds tell more than longer epochs
_OF_A_ROUND = 2.5  # epochs without a cache: filling takes longer than one, cached samples less
_LONGER = 2  # times the budget, where fewer than LEAST_ROUNDS fit into it
_LIMIT_S = 60.0  # of a batch
_MOST_SUMMED = 1000  # epochs
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
    """A ratio with its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class CacheTiming:
    """What was timed, as `lotus.tune.session.subprocess_tuning.Measured` has it.

    batches  of each epoch that was timed; whole ones are computed from shorter ones
    ended  why no more rounds were timed, as a clause; "" if that was planned
    """

    rounds: tuple[EpochRound, ...]
    batches: int
    epoch_batches: int
    seconds: float
    first: EpochShares
    later: EpochShares
    interrupted: bool = False
    ended: str = ""

    @property
    def failure(self) -> str:
        """Why nothing was timed, as a clause; "" if something was."""
        return "" if self.rounds else self.ended or "no round of epochs was timed"

    @property
    def speedup(self) -> Ratio | None:
        """How many times as fast a further epoch from the second on is; None: not predictable."""
        return _predictable([each.plain_s / each.seconds(self.later) for each in self.rounds])

    @property
    def first_longer(self) -> Ratio | None:
        """How many times as long the first epoch takes, as `speedup`."""
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
        # More than all cannot be saved, whatever the interval of a few rounds says.
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
                f"only {len(self.rounds)} of at least {LEAST_ROUNDS} rounds of epochs were timed "
                f"in {self.seconds:.0f} s"
            )
            return f"{few}: {self.ended}" if self.ended else few
        if self.speedup is None or self.first_longer is None:
            return "timed epochs differ too much, as where other programs use the cores"
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


class TooLong(Exception):
    """Too few epochs fit into the budget; the reason is a clause."""


def measure(
    program: TimesEpochs,
    cache: SampleCache,
    folder: Path,
    shares: tuple[EpochShares, EpochShares],
    budget_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> CacheTiming:
    """Time rounds of epochs for about `budget_s`, with caches below `folder`.

    It may take up to twice as long where too few rounds fit otherwise. `shares` are those of the
    first epoch and of later ones. Rounds that were complete when it failed or was interrupted
    count.
    """
    began = clock()
    timer = _RoundTimer(program, cache, folder)
    rounds: list[EpochRound] = []
    shortest_s = math.inf
    interrupted, ended = False, ""
    try:
        timer.choose_batches(budget_s)
        while len(rounds) < timer.rounds:
            start = clock()
            rounds.append(timer.time(len(rounds)))
            round_s = clock() - start
            shortest_s = min(shortest_s, round_s)
            missing = LEAST_ROUNDS - len(rounds)
            needed_s = clock() - began + missing * shortest_s
            if missing > 0 and needed_s > _LONGER * budget_s:
                raise TooLong(_too_long(budget_s, needed_s))
            if missing <= 0 and clock() - began + round_s > budget_s:
                break
    except (TrialFailed, TooLong) as error:
        ended = str(error)
    except KeyboardInterrupt:
        interrupted, ended = not program.problem, program.problem or "it was interrupted"
    return CacheTiming(
        tuple(rounds), timer.batches, timer.whole, clock() - began, *shares, interrupted, ended
    )


def _too_long(budget_s: float, needed_s: float) -> str:
    """Say which budget would do, where so many seconds are needed."""
    enough = math.ceil(needed_s * 1.2 / _LONGER / 10) * 10
    return f"its epochs take too long for --check {budget_s:g}s; --check {enough}s may do"


class _RoundTimer:
    """Times rounds of epochs of a program's loader.

    Epochs of fewer than all batches go through the data set, so that the files of their samples
    are in memory as often as in training.
    """

    def __init__(self, program: TimesEpochs, cache: SampleCache, folder: Path) -> None:
        self._program, self._cache, self._folder = program, cache, folder
        self._own = program.watched.setting
        self.whole = program.watched.batches or 0
        self.batches = 0  # of each epoch
        self.rounds = _ROUNDS  # at most
        self._skip = self._next = 0  # batches before the epoch, and before the next one

    def choose_batches(self, budget_s: float) -> None:
        """Choose how many batches of an epoch are timed, from one of as few as possible.

        That one also warms up what all others find warm. Raises TooLong, also before it, and
        TrialFailed.
        """
        if not self.whole:
            raise TrialFailed("the number of its batches is not known")
        burst = max(self._own.num_workers, 1)
        ahead = burst * (self._own.prefetch_factor or TORCH_PREFETCH)
        least = min(self.whole, max(_LEAST_BATCHES, _LEAST_BURSTS * burst, ahead + burst))
        enough = max(_ENOUGH_BURSTS * burst, 2 * ahead)
        needed_s = _least_s(self._program.watched, least) * (LEAST_ROUNDS * _OF_A_ROUND + 1)
        if needed_s > _LONGER * budget_s:
            raise TooLong(_too_long(budget_s, needed_s))

        self.batches = least
        epoch = self._timed(None)
        left_s = budget_s - epoch.total_s
        start_s, batch_s = _parts(epoch, burst)

        def fit(rounds: int) -> int:
            epoch_s = left_s / (_OF_A_ROUND * rounds)
            return burst + int((epoch_s - start_s) / max(batch_s, 1e-6))

        batches = max(fit(_ROUNDS), min(enough, fit(LEAST_ROUNDS)), least)
        needed_s = epoch.total_s * (LEAST_ROUNDS * _OF_A_ROUND + 1)
        if needed_s > _LONGER * budget_s:
            raise TooLong(_too_long(budget_s, needed_s))
        most = self.whole
        if epoch.drawn < self.whole:
            # Rounds of the same samples would tell no more of all others, but count as if.
            left = epoch.drawn - least
            most = max(least, left // (2 * _ROUNDS))
            self.rounds = min(_ROUNDS, left // (2 * most))
            if self.rounds < LEAST_ROUNDS:
                raise TrialFailed(
                    f"only {epoch.drawn} of the {self.whole} batches of an epoch could be drawn, "
                    "too few to time others in each round"
                )
        self.batches = min(math.ceil(batches / burst) * burst, most)

    def time(self, number: int) -> EpochRound:
        """Time a round. Raises TrialFailed."""
        place = self._folder / str(number)
        entry = {**asdict(self._cache), "folder": str(place)}
        try:
            plain_s = self._whole_s(None) if number % 2 == 0 else 0.0
            filling_s = self._whole_s(entry)
            _look(place)
            cached_s = self._whole_s(entry, filled=True)
            return EpochRound(plain_s or self._whole_s(None), filling_s, cached_s)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _whole_s(self, entry: dict[str, object] | None, filled: bool = False) -> float:
        return seconds(self._timed(entry, filled), self._own.num_workers, self.whole)

    def _timed(self, entry: dict[str, object] | None, filled: bool = False) -> TimedEpoch:
        """Time an epoch of the next samples, or again of those that were cached just before."""
        if not filled:
            self._skip, self._next = self._next, self._next + self.batches
        request = TimeEpoch(self.batches, self._skip, entry, filled, _LIMIT_S)
        return self._program.perform(self._own, request)


def _least_s(watched: Watched, batches: int) -> float:
    """Return in which time an epoch of so many batches is expected to be over, at least."""
    times = [wait + step for wait, step in zip(watched.waits_s, watched.steps_s, strict=False)]
    # Of workers, a burst of batches arrives at a time: the mean tells more than the median.
    rest = times[1:]
    return (watched.startup_s or 0.0) + batches * (statistics.mean(rest) if rest else 0.0)


def _look(place: Path) -> None:
    """Look whether samples were cached. Raises TrialFailed."""
    caches = [sample_caches.read(folder) for folder in place.iterdir()] if place.is_dir() else []
    if not any(cache is not None and cache.samples for cache in caches):
        raise TrialFailed("its samples were not cached when that was tried")
    dropped = next((cache.dropped for cache in caches if cache is not None), None)
    if dropped:
        raise TrialFailed(f"its cache was dropped when that was tried: {dropped}")


def _parts(epoch: TimedEpoch, burst: int) -> tuple[float, float]:
    """Return the seconds until each worker's first batch, and those of each further batch."""
    got = epoch.batches_s
    if len(got) <= burst:
        return 0.0, epoch.total_s / len(got)
    return got[burst - 1], (got[-1] - got[burst - 1]) / (len(got) - burst)


def seconds(epoch: TimedEpoch, workers: int, batches: int) -> float:
    """Return the seconds of an epoch of so many batches, from one that may have fewer.

    The batches after the first of each worker stand for all others. Raises TrialFailed where there
    are none.
    """
    got, burst = epoch.batches_s, max(workers, 1)
    if len(got) >= batches:
        return epoch.total_s
    if len(got) <= burst:
        raise TrialFailed(f"only {len(got)} of {batches} batches of an epoch could be timed")
    return epoch.total_s + (batches - len(got)) * _parts(epoch, burst)[1]
