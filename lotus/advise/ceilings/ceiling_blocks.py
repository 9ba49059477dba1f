"""Measures blocks of the program's own steps with data of each kind in turn.

The machine's speed drifts, so the blocks that are compared are measured next to each other, and
each kind has its turn at every place of a round.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from lotus.advise.ceilings.ceilings import (
    ALL,
    EXACT,
    FREE,
    LEAST_ROUNDS,
    REAL,
    SAME,
    UNSENT,
    Ceilings,
    Round,
)
from lotus.advise.ceilings.fed_blocks import BlockTimer, FedBlock, Feeds
from lotus.common.text.formatting import duration, share
from lotus.tune.program.program import TrialError
from lotus.tune.search.trials.trial_rates import Speedup

SHORT = "the time was too short: give more with --budget"
_OF_THE_WAIT = {SAME: "storage", UNSENT: "delivery"}  # the part of the wait that a kind shows
_EARLY = 0.1  # of the time that was allowed: who sees less left over does not ask why
_ENOUGH, _PRECISE = 4, 0.02  # rounds, and half the interval's width, at which it may end


@dataclass(frozen=True)
class BlockProgress:
    """The next measurement, and the results so far."""

    kind: str
    rounds: int  # that are complete
    speedup: Speedup | None
    spent_s: float
    budget_s: float


def measure(
    program: Feeds,
    budget_s: float,
    on_progress: Callable[[BlockProgress], object] | None = None,
    clock: Callable[[], float] = time.monotonic,
    alternatives: bool = False,
    again: str = "lotus advise --budget 5m -- COMMAND",
) -> Ceilings:
    """Measure rounds of blocks for at most about `budget_s` seconds, with `alternatives` or not.

    `again`: the command that measures it once more, with more time.

    A block that has begun by then is finished, with a few batches. Ctrl-C ends it with what was
    measured so far. It ends early once the ceiling is known within 2 %.
    """
    sent = [UNSENT] if program.watched.setting.num_workers else []
    kinds = [REAL, FREE, SAME, *sent, *([EXACT, ALL] if alternatives else [])]
    blocks = _Blocks(program, budget_s, on_progress, clock, kinds)
    interrupted, failure = False, ""
    try:
        blocks.run()
    except TrialError as error:
        failure = f"the ceiling cannot be measured: {error}"
    except KeyboardInterrupt:
        interrupted = not program.problem
    result = blocks.ceilings(interrupted)
    if result.speedup is not None or interrupted:
        return result
    return blocks.ceilings(interrupted, failure or program.problem or blocks.too_few(again))


class _Blocks:
    """The rounds so far."""

    def __init__(
        self,
        program: Feeds,
        budget_s: float,
        on_progress: Callable[[BlockProgress], object] | None,
        clock: Callable[[], float],
        kinds: list[str],
    ) -> None:
        self._program, self._budget_s = program, budget_s
        self._on_progress, self._clock = on_progress, clock
        self._began = clock()
        self._rounds: list[Round] = []
        self._kinds = kinds
        self._notes: list[str] = []
        self._stopped = ""
        self._refused: dict[str, str] = {}  # why alternatives of a kind were not measured
        self._timer = BlockTimer(program, kinds, budget_s)

    @property
    def _left_s(self) -> float:
        return self._began + self._budget_s - self._clock()

    def run(self) -> None:
        """Measure rounds until time is up or the ceiling is precise."""
        took_s = 0.0
        if not self._fits(self._timer.least_s(self._kinds), LEAST_ROUNDS):
            self._leave_out(*_OF_THE_WAIT)
        if not self._fits(self._timer.least_s(self._kinds), LEAST_ROUNDS):
            self._leave_out(EXACT, ALL)
        while self._left_s > took_s:
            start, kinds = self._clock(), len(self._kinds)
            if not self._round():
                self._stopped = "the next block did not fit into the rest of the time"
                return
            took_s = self._clock() - start
            if len(self._rounds) < LEAST_ROUNDS:
                # If three more do not fit, alternatives are left out last.
                for needless in (_OF_THE_WAIT, (EXACT, ALL)):
                    if not self._fits(took_s, LEAST_ROUNDS + 1):
                        self._leave_out(*needless)
                        took_s *= len(self._kinds) / kinds
                        kinds = len(self._kinds)
            if len(self._rounds) >= _ENOUGH and self._is_precise():
                self._stopped = f"the speed-ups are known within {share(_PRECISE)}"
                return
        needs = duration(took_s * 1e9)
        self._stopped = f"another round of blocks takes {needs}, for which the rest is too short"

    def _fits(self, round_s: float, rounds: int) -> bool:
        """Return whether so many rounds fit into the time that is left."""
        return round_s * rounds <= self._left_s

    def _is_precise(self) -> bool:
        result = self.ceilings(False)
        shown = [result.over(kind) for kind in self._kinds if kind in (FREE, EXACT, ALL)]
        return all(each is not None and each.precision <= _PRECISE for each in shown)

    def _round(self) -> bool:
        """Measure a block of each kind; return whether there was time for the needed ones."""
        done: dict[str, FedBlock] = {}
        turn = len(self._rounds) % 2
        # Real data comes first in the first round, as its batches are kept.
        for kind in self._kinds[:: -1 if turn else 1]:
            try:
                block = self._block(kind)
            except TrialError as error:
                if kind in (REAL, FREE):
                    raise
                self._leave_out(kind, why=str(error))
                continue
            if block is not None:
                done[kind] = block
        if not {REAL, FREE} <= done.keys():
            return False
        self._rounds.append(done)
        return True

    def _leave_out(self, *kinds: str, why: str = SHORT) -> None:
        """Measure no more blocks of these kinds, and say why."""
        for kind in kinds:
            if kind not in self._kinds:
                continue
            self._kinds.remove(kind)
            if kind in _OF_THE_WAIT:
                name = _OF_THE_WAIT[kind]
                self._notes.append(f"{name} cannot be separated from the rest of the wait: {why}")
            else:
                self._refused[kind] = why

    def _block(self, kind: str) -> FedBlock | None:
        """Measure a block; None if the time was too short for it."""
        self._say(kind)
        block = self._timer.time(kind, lambda: self._left_s)
        note = (
            "the epoch was over meanwhile: its samples were read once more, as in a second epoch, "
            "and may come from the page cache"
        )
        if self._timer.over and note not in self._notes:
            self._notes.append(note)
        return block

    def _shown(self) -> Speedup | None:
        return self.ceilings(False).speedup

    def _say(self, kind: str) -> None:
        if self._on_progress is not None:
            spent = self._clock() - self._began
            self._on_progress(
                BlockProgress(kind, len(self._rounds), self._shown(), spent, self._budget_s)
            )

    def too_few(self, again: str) -> str:
        """Say why there is no answer, what the watched batches tell, and how to try again."""
        budget, batch = (
            duration(seconds * 1e9)
            for seconds in (self._budget_s, self._timer.usual_s or self._timer.slowest_s)
        )
        return (
            f"too few blocks fitted into {budget}, as a batch takes {batch}; {self._watched()}give "
            f"more time, for example: {again}"
        )

    def _watched(self) -> str:
        """Return what the watched batches show: without an interval, and with all delays."""
        watched = self._program.watched
        count = min(len(watched.waits_s), len(watched.steps_s))
        waits_s, steps_s = sum(watched.waits_s[1:count]), sum(watched.steps_s[1:count])
        if waits_s + steps_s <= 0:
            return ""
        part = waits_s / (waits_s + steps_s)
        text = f"of {count - 1} batches that were watched, {share(part)} of the time was the wait"
        return f"{text} for data, the rest the step; "

    def ceilings(self, interrupted: bool, failure: str = "") -> Ceilings:
        """Return the result so far."""
        return Ceilings(
            watched=self._program.watched,
            rounds=tuple(self._rounds),
            seconds=self._clock() - self._began,
            budget_s=self._budget_s,
            notes=tuple(self._notes),
            refused=dict(self._refused),
            stopped=self._stopped if self._left_s > _EARLY * self._budget_s else "",
            interrupted=interrupted,
            failure=failure,
        )
