"""Measures the leading settings again, in rounds of random order, until one can be chosen."""

from __future__ import annotations

import math
import random

from lotus.common.statistics import Z95
from lotus.settings.space import Setting
from lotus.tune.strategies.candidates import words
from lotus.tune.strategies.equivalent_settings import loader_of
from lotus.tune.strategies.observations import Observations
from lotus.tune.strategies.preference import TIE
from lotus.tune.strategies.problem import Problem

BLOCKS = 8  # the most blocks of a setting


class Race:
    """Rounds of measurements of settings whose rates do not differ clearly."""

    def __init__(self, problem: Problem, measured: Observations) -> None:
        self._problem = problem
        self._measured = measured
        self._chance = random.Random(problem.seed)
        self._round: list[Setting] = []

    def next(self) -> tuple[Setting | None, str]:
        """Return (the setting to measure again or None, why). None ends the race."""
        measured_twin = self._measured.measured_twin
        self._round = [setting for setting in self._round if measured_twin(setting) is not None]
        if not self._round:
            self._round, why = self._contenders()
            if not self._round:
                return None, why
            self._chance.shuffle(self._round)
        setting = measured_twin(self._round[-1])
        if setting is None or self._too_dear(setting):
            return None, "the budget is spent, and others are too close to distinguish"
        self._round.pop()
        return setting, "it may be the best: measured again, in turn with the others"

    def _too_dear(self, setting: Setting) -> bool:
        """Whether another block of a setting exceeds the budget."""
        measured = self._measured
        return measured.spent_s + measured.blocks[setting][-1].seconds > self._problem.budget_s

    def _contenders(self) -> tuple[list[Setting], str]:
        """Return (settings that another block of each may separate, why there are none)."""
        best = self._measured.chosen()
        if best is None:
            return [], "nothing that was tried has worked"
        known = self._measured.loaders()
        most = max(rival.rate for rival in known)
        contenders, unsure = [best.setting], False
        for rival in known:
            if loader_of(rival.setting) == loader_of(best.setting):
                continue
            wide = Z95 * math.hypot(rival.error, best.error)
            if math.log(rival.rate / most) + wide > math.log(1.0 - TIE):
                contenders.append(rival.setting)
                unsure = unsure or wide > TIE
        if len(contenders) == 1:
            return [], f"{words(best.setting)}: all others that were tried are slower"
        if not unsure:
            return [], f"{words(best.setting)}: no other is cheaper or more than 2 % faster"
        if min(len(self._measured.of_loader(rival)) for rival in contenders) >= BLOCKS:
            return [], f"{words(best.setting)}: others are too close to distinguish"
        return contenders, ""
