"""Runs the trials of a search: opens candidates, measures blocks, enforces limits and budget.

Settings that differ only in `persistent_workers` are the same loader until an epoch ends, so they
share their blocks: one is measured, the rate of the other is computed.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from lotus.common.text.formatting import duration, plural
from lotus.inside.tune.candidates.trial_requests import (
    SLOW_BATCHES,
    Close,
    Measure,
    Open,
    Opened,
    TrialBlock,
)
from lotus.settings.space import Measurement, Observed, Setting
from lotus.tune.program.program import PausedProgram, TrialError, TrialsForbiddenError
from lotus.tune.search.default_space import step_of
from lotus.tune.search.limits.safety import Safety
from lotus.tune.search.trials.trial_rates import Rate, needed, observed, rate
from lotus.tune.simulation import epoch_time

_LEAST_LIMIT_S = 10.0
_PATIENCE = 5.0  # time limit of a trial, in expected durations
_BATCHES = 8  # least number per block, if they are fast enough
_AHEAD = 0.15  # largest share of the budget for filling a queue


@dataclass(frozen=True)
class TrialRow:
    """A measurement and why it was made."""

    measurement: Measurement
    why: str


@dataclass(frozen=True)
class RuledOut:
    """A setting that was never tried, and why."""

    setting: Setting
    why: str


@dataclass(frozen=True)
class Read:
    """Bytes per batch that the workers of a setting read from storage in a block."""

    setting: Setting
    batch_bytes: float


class UntriedSettingError(Exception):
    """A setting was not tried; the message continues "because"."""


class TrialRunner:
    """The trials of one search. With `train`, blocks have the program's step between batches."""

    def __init__(
        self,
        program: PausedProgram,
        safety: Safety,
        clock: Callable[[], float],
        budget_s: float,
        train: bool,
    ) -> None:
        self.program, self.safety, self.clock, self.train = program, safety, clock, train
        self.began = clock()
        self.deadline = self.began + budget_s
        self.block_s = min(max(budget_s / 60, 0.1), 2.0)
        self._budget_s = budget_s
        self._slow_s = budget_s / 20  # a block takes fewer batches rather than longer than this
        self._step_s = step_of(program.watched)[0]
        self.rows: list[TrialRow] = []
        self.ruled_out: dict[Setting, str] = {}
        self.reads: list[Read] = []
        self.workers: set[int] | None = None  # allowed for an iterable data set; None: all
        self.workers_why = ""
        self.batches = program.watched.batches  # per epoch with the own setting; None: not known
        self._samples: int | None = None  # per epoch, if they were counted
        self.forbidden = program.watched.forbidden  # why no further trial may be made
        self._open: dict[Setting, Opened] = {}  # keys as by `loader_of`, least recently used first
        self._starts: dict[Setting, list[float]] = {}  # times to the first batch
        self._ends: list[tuple[int, float]] = []  # (workers, seconds of their shutdown)
        self._rates: dict[Setting, list[Rate]] = {}  # of each block of a loader
        self._steps: dict[Setting, list[float]] = {}  # mean seconds of steps in each block
        self._seen: dict[Setting, Observed] = {}  # of each loader, when first opened
        self.failed: dict[Setting, str] = {}
        self._first: dict[Setting, Measurement] = {}  # of each loader that worked

    # Time.

    @property
    def spent(self) -> float:
        """Seconds since the search began."""
        return self.clock() - self.began

    @property
    def left(self) -> float:
        """Seconds left of the budget."""
        return self.deadline - self.clock()

    @property
    def tried(self) -> int:
        """Number of different loaders made."""
        return len(self._starts.keys() | self.failed.keys())

    def _limit(self, expected_s: float | None) -> float:
        """Time limit of the next request: a multiple of the expected time, or the budget's end."""
        patience = self.left / 2 if expected_s is None else _PATIENCE * expected_s
        limit = min(max(patience, _LEAST_LIMIT_S), self.left + _LEAST_LIMIT_S)
        if limit < 1.0:
            raise TrialError("the budget ended before it was measured")
        return limit

    def _first_batch_s(self, setting: Setting) -> float | None:
        """Return the expected time of a first batch, from workers with the same start method.

        It is the longest so far, scaled by the number of workers; None if there was none.
        """
        watched = self.program.watched
        known = [
            (started, start)
            for started, starts in self._starts.items()
            for start in starts
            if started.start_method == setting.start_method or not setting.num_workers
        ]
        own = watched.setting.start_method
        if watched.startup_s is not None and setting.start_method in (None, own):
            known.append((watched.setting, watched.startup_s))
        workers = setting.num_workers
        return max(
            (start * max(workers / max(started.num_workers, 1), 1.0) for started, start in known),
            default=None,
        )

    def _batch_s(self) -> float:
        """Return the longest mean time of a batch so far."""
        watched = self.program.watched
        known = [rates[-1].sample_s * rates[-1].samples for rates in self._rates.values()]
        known += [statistics.mean(waits) for waits in (watched.waits_s,) if waits]
        return max(known, default=0.0)

    # Trials.

    def refused(self, setting: Setting) -> str:
        """Return why a setting must not be tried, or ""."""
        if self.workers is not None and setting.num_workers not in self.workers:
            return self.workers_why
        return self.safety.why_not(setting)

    def measure(self, setting: Setting, why: str) -> Measurement:
        """Measure a setting, also if it was measured before; failures are measurements too."""
        setting = setting.normal()
        loader = loader_of(setting)
        start = self.clock()
        twin = self._first.get(loader)
        if twin is not None and all(row.measurement.setting != setting for row in self.rows):
            measurement = self._worked_out(setting, twin)
            why = f"{why}; computed from the same setting with the other persistent_workers"
        else:
            try:
                measurement = self._measured(setting, start)
            except UntriedSettingError as error:
                self.ruled_out[setting] = str(error)
                return Measurement.failure(setting, f"never tried: {error}")
            except TrialError as error:
                self.heed(error)
                self.failed[loader] = str(error) or "it failed"
                took = self.clock() - start
                measurement = Measurement.failure(setting, self.failed[loader], took)
        self.rows.append(TrialRow(measurement, why))
        return measurement

    def heed(self, error: TrialError) -> None:
        """Stop all trials if a failed one demands it."""
        if isinstance(error, TrialsForbiddenError):
            self.forbidden = str(error)
            self._open.clear()  # the program has closed them

    def _measured(self, setting: Setting, start: float) -> Measurement:
        loader = loader_of(setting)
        if loader in self.failed:
            raise UntriedSettingError(f"a trial of the same loader failed: {self.failed[loader]}")
        new = loader not in self._open
        opened = self.opened(setting)
        seen = None
        if new and loader not in self._first:
            block = self._block(setting, step=False)
            seen = observed(block, opened, setting.num_workers, self._end_s(setting.num_workers))
            self._seen[loader] = seen
        if self.train or seen is None:
            block = self._block(setting, step=self.train)
        measurement = self._measurement(setting, block, self.clock() - start)
        measurement = dataclasses.replace(measurement, observed=seen)
        self._first.setdefault(loader, measurement)
        return measurement

    def _measurement(self, setting: Setting, block: TrialBlock, seconds: float) -> Measurement:
        try:
            block_rate = rate(block, setting.num_workers)
        except ValueError as error:
            raise TrialError(str(error)) from None
        self._rates.setdefault(loader_of(setting), []).append(block_rate)
        if self.train:
            self._steps.setdefault(loader_of(setting), []).append(statistics.mean(block.steps_s))
        workers = setting.num_workers * block.worker_bytes
        return Measurement(
            setting,
            self._epoch(setting, block_rate.sample_s, block_rate.samples),
            self._epoch(setting, block_rate.high_s, block_rate.samples),
            self._epoch(setting, block_rate.low_s, block_rate.samples),
            seconds,
            first_batch_s=self._starts[loader_of(setting)][-1],
            memory_bytes=block.main_bytes + workers,
        )

    def _worked_out(self, setting: Setting, twin: Measurement) -> Measurement:
        last = self._rates[loader_of(setting)][-1]
        low, middle, high = (
            self._epoch(setting, sample_s, last.samples)
            for sample_s in (last.high_s, last.sample_s, last.low_s)
        )
        return dataclasses.replace(
            twin, setting=setting, samples_per_s=middle, low=low, high=high, seconds=0.0
        )

    def again(self, setting: Setting, why: str) -> None:
        """Measure another block of an open candidate. Raises TrialError."""
        setting = setting.normal()
        start = self.clock()
        block = self._block(setting, step=self.train)
        measurement = self._measurement(setting, block, self.clock() - start)
        self.rows.append(TrialRow(measurement, why))

    def last(self, setting: Setting) -> float:
        """Return the rate of a setting over an epoch, from the last block of its loader."""
        last = self._rates[loader_of(setting)][-1]
        return self._epoch(setting, last.sample_s, last.samples)

    def first_epoch(self, setting: Setting) -> float:
        """Return the rate over the epoch that starts the workers, even if they are persistent."""
        return self.last(dataclasses.replace(setting, persistent_workers=False))

    def steady(self, setting: Setting) -> float | None:
        """Return samples per second without set-up, from all blocks of a setting's loader."""
        rates = self._rates.get(loader_of(setting))
        return 1 / statistics.mean(block.sample_s for block in rates) if rates else None

    def step_beside(self, setting: Setting) -> float | None:
        """Return the seconds of a step beside the workers of a setting; None if not measured.

        It is the median over blocks, because other work on the machine also slows steps down.
        """
        steps = self._steps.get(loader_of(setting))
        return statistics.median(steps) if steps else None

    def _epoch(self, setting: Setting, sample_s: float, samples: float) -> float:
        loader, workers = loader_of(setting), setting.num_workers
        step_s = self._step_s if self.train else 0.0
        pace = epoch_time.observed_pace(workers, sample_s * samples, self._seen.get(loader), step_s)
        first = end = 0.0
        if not setting.persistent_workers:
            first, end = self._starts[loader][-1], self._end_s(workers)
        batches = self.batches
        if self._samples is not None:
            # Each worker's last batch may be smaller; the number of samples stays.
            batches = max(math.ceil(self._samples / samples), 1)
            samples = self._samples / batches
        return epoch_time.rate(pace, samples, batches, first, end)

    def counted(self, samples: int, batches: int) -> None:
        """Update all rates to the counted length of an epoch, which the loader did not report."""
        self._samples, self.batches = samples, batches
        for number, row in enumerate(self.rows):
            measurement = row.measurement
            if not measurement.failed:
                updated = self._worked_out(measurement.setting, measurement)
                updated = dataclasses.replace(updated, seconds=measurement.seconds)
                self.rows[number] = dataclasses.replace(row, measurement=updated)
                self._first[loader_of(measurement.setting)] = updated

    def setup_s(self, setting: Setting) -> float:
        """Return the seconds of an epoch besides its batches; 0 for persistent workers."""
        if setting.persistent_workers:
            return 0.0
        return self._starts[loader_of(setting)][-1] + self._end_s(setting.num_workers)

    def setup_share(self, setting: Setting) -> float:
        """Return the share of the set-up in an epoch."""
        batches, last = self.batches, self._rates[loader_of(setting)][-1]
        setup = self.setup_s(setting)
        if batches is None or not setup:
            return 0.0
        return setup / (setup + (batches - 1) * last.sample_s * last.samples)

    def _end_s(self, workers: int) -> float:
        """Return the expected time in which so many workers end, from shutdowns so far.

        Workers end in parallel, as far as there are cores.
        """
        cores = self.safety.start.cores
        known = [seconds / max(count / cores, 1.0) for count, seconds in self._ends if count]
        return statistics.mean(known) * max(workers / cores, 1.0) if known and workers else 0.0

    # Candidates.

    def opened(self, setting: Setting, keep: Collection[Setting] = ()) -> Opened:
        """Open a candidate if it is not open, closing others that do not fit beside it.

        Those in `keep` are closed last. Raises UntriedSettingError, TrialError.
        """
        loader = loader_of(setting)
        if loader in self._open:
            self._open[loader] = self._open.pop(loader)
            return self._open[loader]
        why = self.refused(setting) or self._too_long(setting)
        if why:
            raise UntriedSettingError(why)
        kept = {loader_of(other) for other in keep}
        while why := self.safety.beside(setting, list(self._open)):
            if not self._open:
                raise UntriedSettingError(why)
            self.close(min(self._open, key=lambda other: other in kept))
        opened = self.program.perform(loader, Open(self._limit(self._first_batch_s(loader))))
        self._open[loader] = opened
        self._starts.setdefault(loader, []).append(opened.first_batch_s)
        return opened

    def _too_long(self, setting: Setting) -> str:
        """Return why a setting takes too long: prefetching before a block uses too much budget."""
        ahead = setting.num_workers * (setting.prefetch_factor or 0)
        costs = [
            trial.observed.cpu_s for trial in self._first.values() if trial.observed is not None
        ]
        takes = ahead * min(costs, default=0.0) / self.safety.start.cores
        if takes <= self._budget_s * _AHEAD:
            return ""
        return (
            f"prefetching its {plural(ahead, 'batch')} takes at least {duration(takes * 1e9)} "
            f"before each block, of a budget of {duration(self._budget_s * 1e9)}"
        )

    def _block(self, setting: Setting, step: bool) -> TrialBlock:
        loader = loader_of(setting)
        batch_s = max(self._batch_s(), self._step_s if step else 0.0)
        least = max(_BATCHES, setting.num_workers) + 1  # a whole burst of the workers
        varies = max((shown.variation for shown in self._seen.values()), default=0.0)
        if step or not self.train:  # else only the model uses the block
            least = max(least, needed(varies, batch_s, self.block_s))
        if batch_s * least > self._slow_s:
            least = max(int(self._slow_s / batch_s), SLOW_BATCHES, setting.num_workers + 1)
        ahead = setting.num_workers * (setting.prefetch_factor or 0)
        expected = self.block_s + (least + ahead) * batch_s
        if step:
            expected += least * self._step_s
        limit_s = self._limit(expected)
        try:
            request = Measure(self.block_s, least, step, limit_s, slow_s=self._slow_s)
            block = self.program.perform(loader, request)
        except TrialError:
            self._open.pop(loader, None)  # the program has closed it
            raise
        self.safety.learn(setting, block)
        self.reads.append(Read(loader, block.read_bytes / max(len(block.sizes), 1)))
        return block

    def close(self, setting: Setting) -> None:
        """Close a candidate if it is open."""
        loader = loader_of(setting)
        if self._open.pop(loader, None) is not None:
            took = self.program.perform(loader, Close())
            if loader.num_workers and math.isfinite(took):
                self._ends.append((loader.num_workers, took))

    def make_room(self, setting: Setting) -> str:
        """Close candidates that do not fit beside a setting; return why it does not fit alone."""
        while self._open and self.safety.beside(setting, list(self._open)):
            self.close(next(iter(self._open)))
        return self.refused(setting) or self.safety.beside(setting, ())

    def close_all(self) -> None:
        """Close all open candidates, also if closing one fails."""
        for loader in list(self._open):
            try:
                self.close(loader)
            except TrialError:
                continue

    def all_ruled_out(self, settings: Iterable[Setting]) -> tuple[RuledOut, ...]:
        """Return the settings ruled out so far, and loaders of `settings` that do not fit."""
        tried = {loader_of(row.measurement.setting) for row in self.rows}
        whys = dict(self.ruled_out)
        known = tried | {loader_of(setting) for setting in whys}
        for loader in {loader_of(setting) for setting in settings} - known:
            why = self.refused(loader)
            if why:
                whys[loader] = why
        return tuple(RuledOut(setting, whys[setting]) for setting in sorted(whys))


def loader_of(setting: Setting) -> Setting:
    """Return the setting without persistent workers: the same loader until an epoch ends."""
    return dataclasses.replace(setting.normal(), persistent_workers=False)
