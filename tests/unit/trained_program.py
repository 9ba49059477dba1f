"""A program that trains on in its own steps: a formula with noise, and a clock of its own."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import cast

from lotus.inside.tune.candidates.trial_requests import Reply, Request, Train, TrainedBatches
from lotus.settings.space import Setting
from lotus.settings.tuned_file import Target
from lotus.tune.program.program import Watched
from lotus.tune.search.outcome.result import Result
from lotus.tune.search.trials.trial_rates import Speedup

OWN, BEST = Setting(0), Setting(2, prefetch_factor=2)


class Trains:
    """Trains on batches of `batch_s[setting]` seconds, with noise; its clock stands meanwhile."""

    def __init__(
        self,
        own_s: float,
        best_s: float,
        *,
        own: Setting = OWN,
        best: Setting = BEST,
        batches: int | None = 1000,
        noise: float = 0.02,
        watched: int = 12,
        startup_s: float = 0.2,
    ) -> None:
        self.batch_s = {own: own_s, best: best_s}
        self.own, self.best, self.noise, self.startup_s = own, best, noise, startup_s
        self.chance = random.Random(3)
        self.now, self.problem = 50.0, ""
        self.left = math.inf if batches is None else batches - watched
        self.blocks: list[tuple[Setting, int, int]] = []
        self.in_flight = own.num_workers * 2
        self.refused, self.raises = "", [None] * 100
        times = [self._batch(own) for _ in range(watched)]
        self.watched = Watched(
            loader=Target(dataset="Pictures"),
            setting=own,
            pid=1,
            torch="2.14.1",
            iterable=False,
            batch_size=16,
            batches=batches,
            waits_s=tuple(time / 2 for time in times),
            steps_s=tuple(time / 2 for time in times),
            sizes=(16,) * watched,
            startup_s=startup_s,
        )

    def _batch(self, setting: Setting) -> float:
        return self.batch_s[setting] * math.exp(self.chance.gauss(0, self.noise))

    def perform(self, setting: Setting, request: Request[Reply]) -> Reply:
        assert isinstance(request, Train)
        return cast("Reply", self.train(setting, request.batches, request.discard, request.seconds))

    def train(self, setting: Setting, batches: int, discard: int, seconds: float) -> TrainedBatches:
        self.blocks.append((setting, batches, discard))
        raised = self.raises[len(self.blocks) - 1]
        if raised is not None:
            raise raised
        others = self.in_flight + 1 + discard
        counted = int(max(min(batches, self.left - others), 0))
        counted = min(counted, int(seconds / self.batch_s[setting]))
        passed = int(min(others + counted, self.left))
        over = self.left < others + batches
        self.left -= passed
        self.in_flight = setting.num_workers * 2
        times = [self._batch(setting) for _ in range(counted)]
        self.now += sum(times) + self.startup_s
        half = tuple(time / 2 for time in times)
        sizes = (16,) * counted
        return TrainedBatches(half, half, sizes, self.startup_s, passed, over, self.refused)

    def clock(self) -> float:
        return self.now


def result_of(program: Trains, trials: float = 1.5, **more: object) -> Result:
    """What a search of such a program may have said."""
    speedup = Speedup(trials, trials * 0.97, trials * 1.03, 4)
    result = Result(
        best=program.best, own=program.own, speedup=speedup, predicted=None, benefit=trials > 1.02,
        measured=(), ruled_out=(), seconds=40.0, budget_s=60.0, settings_tried=3,
        interrupted=False, notes=("a note",), watched=program.watched, objective="train",
        strategy="lotus", reason="", cores=2.0, cores_why="2 CPUs",
    )  # fmt: skip
    return dataclasses.replace(result, **more)  # type: ignore[arg-type]
