"""Measures a planned cache in the program's own training, in blocks without and with it in turn.

The blocks that are compared are measured next to each other, as the machine's speed drifts. What is
measured is the time of a sample; whole epochs are computed from it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path

from lotus.advise.caches.cache_timing import LEAST_ROUNDS, CacheTiming, EpochRound, EpochShares
from lotus.advise.ceilings.ceilings import REAL
from lotus.advise.ceilings.fed_blocks import BlockTimer, FedBlock, Feeds
from lotus.settings import sample_caches
from lotus.tune.program.program import TrialError

FILLING, CACHED = "filling", "cached"  # as in lotus/inside/tune/feeds/fed_training.py
_ENOUGH, _PRECISE = 6, 0.02  # rounds, and half the interval's width, from which it may end
_LONGER = 2  # times the budget, if fewer than LEAST_ROUNDS fit into it


class TooLongError(Exception):
    """Too few blocks fit into the budget; the reason is a clause."""


def measure(
    program: Feeds,
    folder: Path,
    shares: tuple[EpochShares, EpochShares],
    budget_s: float,
    epochs: int,
    clock: Callable[[], float] = time.monotonic,
) -> CacheTiming:
    """Measure rounds of blocks for about `budget_s`; samples are cached below `folder`.

    It may take up to twice as long where too few rounds fit otherwise, and ends early once what
    `epochs` save is known within 2 %. `shares` are those of the first epoch and of later ones.
    Rounds that were complete when it failed or was interrupted count.
    """
    blocks = _CacheBlocks(program, folder, shares, budget_s, clock)
    interrupted, ended = False, ""
    try:
        blocks.run(epochs)
    except (TrialError, TooLongError) as error:
        ended = str(error)
    except KeyboardInterrupt:
        interrupted, ended = not program.problem, program.problem or "it was interrupted"
    return blocks.timing(interrupted, ended)


class _CacheBlocks:
    """The rounds so far."""

    def __init__(
        self,
        program: Feeds,
        folder: Path,
        shares: tuple[EpochShares, EpochShares],
        budget_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._program, self._folder, self._shares = program, folder, shares
        self._budget_s, self._clock, self._began = budget_s, clock, clock()
        self._kinds = (REAL, FILLING, CACHED)
        self._timer = BlockTimer(program, self._kinds, budget_s)
        self._rounds: list[dict[str, FedBlock]] = []

    def _spent_s(self) -> float:
        return self._clock() - self._began

    def _left_s(self) -> float:
        return _LONGER * self._budget_s - self._spent_s()

    def run(self, epochs: int) -> None:
        """Measure rounds until time is up or the saving is precise.

        Raises as `_round`, and TooLongError.
        """
        if self._program.watched.batches is None:
            raise TrialError("the number of its batches is not known")
        self._fits(LEAST_ROUNDS * self._timer.least_s(self._kinds))
        while True:
            start = self._clock()
            self._round()
            took_s, missing = self._clock() - start, LEAST_ROUNDS - len(self._rounds)
            if missing > 0:
                self._fits(self._spent_s() + missing * took_s)
            elif self._spent_s() + took_s > self._budget_s or self._is_precise(epochs):
                return

    def _fits(self, needed_s: float) -> None:
        if needed_s > _LONGER * self._budget_s:
            enough = math.ceil(needed_s * 1.2 / _LONGER / 10) * 10
            raise TooLongError(
                f"its batches take too long for --budget {self._budget_s:g}s; "
                f"--budget {enough}s may do"
            )

    def _is_precise(self, epochs: int) -> bool:
        saving = self.timing().saving(epochs)
        known = saving is not None and saving.mean - saving.low <= _PRECISE
        return known and len(self._rounds) >= _ENOUGH

    def _round(self) -> None:
        """Measure a block of each kind. Raises TrialError."""
        done: dict[str, FedBlock] = {}
        # The samples that were just filled are cached; the block without a cache goes first or
        # last.
        last = len(self._rounds) % 2
        for kind in (FILLING, CACHED, REAL) if last else self._kinds:
            block = self._timer.time(kind, self._left_s)
            if block is None:
                raise TooLongError(
                    f"the time was too short: give more than --budget {self._budget_s:g}s"
                )
            done[kind] = block
            if kind == FILLING and not self._rounds:
                self._look()
        self._rounds.append(done)

    def _look(self) -> None:
        """Look whether samples were cached. Raises TrialError."""
        caches = [sample_caches.read(folder) for folder in self._folder.iterdir()]
        if not any(cache is not None and cache.samples for cache in caches):
            raise TrialError("its samples were not cached when that was tried")

    def timing(self, interrupted: bool = False, ended: str = "") -> CacheTiming:
        """Return the result so far."""
        watched, rounds = self._program.watched, self._rounds
        batches = sum(block.batches for each in rounds for block in each.values())
        samples = sum(block.samples for each in rounds for block in each.values())
        epoch_batches = watched.batches or 0
        in_epoch = epoch_batches * samples / max(batches, 1)
        start_s = self._start_s()
        return CacheTiming(
            tuple(_epochs(each, start_s, in_epoch) for each in rounds),
            batches,
            epoch_batches,
            self._spent_s(),
            *self._shares,
            start_s=start_s,
            over=self._timer.over,
            interrupted=interrupted,
            ended=ended,
        )

    def _start_s(self) -> float:
        """Return how long an epoch's workers take to start, without the batch that each makes."""
        watched = self._program.watched
        workers = watched.setting.num_workers
        # The program's first epoch takes longer to start than those that follow.
        startup_s = watched.later_startup_s
        if startup_s is None:
            startup_s = watched.startup_s
        if not workers or watched.setting.persistent_workers or startup_s is None:
            return 0.0
        real = [each[REAL] for each in self._rounds]
        if not real:
            return 0.0
        batch_s = sum(block.sample_s * block.samples / block.batches for block in real) / len(real)
        return max(0.0, startup_s - workers * batch_s)


def _epochs(blocks: dict[str, FedBlock], start_s: float, samples: float) -> EpochRound:
    """Return the seconds of whole epochs of so many samples."""
    real, filling, cached = (
        start_s + samples * blocks[kind].sample_s for kind in (REAL, FILLING, CACHED)
    )
    return EpochRound(real, filling, cached, blocks[REAL].wait_s / blocks[REAL].sample_s)
