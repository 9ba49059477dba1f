"""Blocks of a program's own steps with data of one kind: their numbers of batches, their means."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lotus.common.torch_defaults import TORCH_PREFETCH
from lotus.inside.tune.candidates.trial_requests import Feed, Reply, Request
from lotus.settings.space import Setting
from lotus.tune.program.program import TrialError, Watched

_ROUNDS = 8  # to be aimed at
_LONGEST_S = 2.5  # of a block, unless a few batches take longer
_LEAST, _MOST = 4, 400  # batches of a block
_SLOW_S, _LEAST_SLOW = 0.5, 2  # seconds of a batch, from which so few make a block
_PAUSE = 2  # batches between blocks that do not count (lotus/inside/tune/feeds/fed_training.py)


class Feeds(Protocol):
    """A program that trains on with data of one kind for a while."""

    watched: Watched
    problem: str  # why it has ended, or ""

    def perform(self, setting: Setting, request: Request[Reply]) -> Reply: ...


@dataclass(frozen=True)
class FedBlock:
    """Consecutive batches with data of one kind: means, in seconds per sample."""

    kind: str
    wait_s: float  # in `next`
    step_s: float  # from one `next` to the following
    batches: int
    samples: int

    @property
    def sample_s(self) -> float:
        """Seconds of a sample, wait and step together."""
        return self.wait_s + self.step_s


class BlockTimer:
    """Times blocks of `kinds`, each so long that enough rounds of all fit into `budget_s`.

    usual_s  seconds of a batch, as it was watched
    over  whether the epoch was over in some block, and has begun again
    """

    def __init__(self, program: Feeds, kinds: Sequence[str], budget_s: float) -> None:
        self._program = program
        self._block_s = min(_LONGEST_S, budget_s / (_ROUNDS * len(kinds)))
        watched = program.watched
        times = [wait + step for wait, step in zip(watched.waits_s, watched.steps_s, strict=False)]
        self._batch_s = dict.fromkeys(kinds, max(times, default=0.0))
        # The first batch waits for workers to start.
        self.usual_s = statistics.median(times[1:] or times or [0.0])
        self._least = _LEAST if self.usual_s < _SLOW_S else _LEAST_SLOW
        self.over = False

    @property
    def slowest_s(self) -> float:
        """Seconds of a batch of the slowest kind, as far as is known."""
        return max(self._batch_s.values())

    def least_s(self, kinds: Sequence[str]) -> float:
        """Return how long the shortest round of these kinds takes, at about the usual speed."""
        return len(kinds) * (self._least + _PAUSE) * self.usual_s

    def time(self, kind: str, left_s: Callable[[], float]) -> FedBlock | None:
        """Time a block; None if `left_s` was too short for it. Raises TrialError."""
        setting, batch_s = self._program.watched.setting, self._batch_s[kind]
        burst = max(setting.num_workers, 1)
        wanted = int(self._block_s / batch_s) if batch_s > 0 else _MOST
        batches = math.ceil(min(max(wanted, self._least), _MOST) / burst) * burst
        # In a slow loop, batches that were requested before and do not count take as long again.
        ahead = setting.num_workers * (setting.prefetch_factor or TORCH_PREFETCH)
        patience_s = 3 * (batches + ahead + self._least) * self.slowest_s
        seconds = max(min(patience_s, left_s()), self._block_s)
        reply = self._program.perform(setting, Feed(kind, batches, seconds))
        if reply.refused:
            raise TrialError(reply.refused)
        self.over = self.over or reply.over
        count = len(reply.steps_s) // burst * burst  # workers deliver their batches in bursts
        if count < min(self._least, batches):
            return None
        samples = sum(reply.sizes[:count])
        wait_s, step_s = sum(reply.waits_s[:count]), sum(reply.steps_s[:count])
        if samples <= 0 or wait_s + step_s <= 0:
            return None
        self._batch_s[kind] = (wait_s + step_s) / count
        return FedBlock(kind, wait_s / samples, step_s / samples, count, samples)
