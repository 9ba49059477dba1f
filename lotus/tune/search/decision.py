"""Decides which setting a search recommends, by comparing it with the program's own setting."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from collections.abc import Callable

from lotus.settings.space import Measurement, Setting
from lotus.tune.program.program import TrialFailed
from lotus.tune.search import search_notes
from lotus.tune.search.trial_rates import Speedup, compared
from lotus.tune.search.trial_runner import NeverTried, TrialRunner

WORTH = 0.02  # the least gain that counts, and the most loss accepted for a cheaper setting
_PAIRS = 3  # at least
_SETUP_MATTERS = 0.02  # share of an epoch from which set-up times must be measured again


def is_faster(speedup: Speedup) -> bool:
    """Whether a speed-up is large enough, and its whole interval above 1."""
    return speedup.low > 1 and speedup.mean >= 1 + WORTH


class Decision:
    """The recommended setting of a search and how it compares with the program's own.

    `report` is called with each setting that is compared and its speed-up so far. `notes` are
    remarks on the decision; `comparisons` has the settings measured in turn with the own one.
    """

    def __init__(
        self,
        own: Setting,
        trials: TrialRunner,
        seed: int,
        report: Callable[[Setting, Speedup], object],
    ) -> None:
        self._own, self._trials, self._seed, self._report = own, trials, seed, report
        self.chosen = own
        self.speedup: Speedup | None = None  # of `chosen` over the own setting
        self.comparisons: dict[Setting, Speedup] = {}
        self.notes: list[str] = []

    def keep_own(self) -> None:
        """Recommend the own setting, without a comparison."""
        self.chosen, self.speedup = self._own, None

    def decide(self, candidate: Setting | None) -> None:
        """Choose `candidate`, the strategy's best, if it proves faster than the own setting."""
        if candidate is None:
            self.notes.append(
                search_notes.nothing_worked(self._trials.rows, self._trials.left <= 0)
            )
            return
        if self._rate(self._own) is None:
            self.chosen = candidate  # nothing to compare with
            self.notes.append(search_notes.OWN_NOT_MEASURED)
            return
        if candidate != self._own:
            self.chosen = candidate
            self.speedup = self._confirm(candidate)
            if is_faster(self.speedup):
                return
        self._take_cheapest(candidate)

    def _take_cheapest(self, candidate: Setting) -> None:
        """Choose the cheapest setting that is shown to be as fast as the own one."""
        before = self.speedup
        self.chosen, self.speedup = self._own, Speedup(1.0, 1.0, 1.0, 0)
        own = self._rate(self._own) or 0.0
        worked = {
            row.measurement.setting for row in self._trials.rows if not row.measurement.failed
        }
        cheaper = sorted(setting for setting in worked if setting < self._own)
        as_fast = [
            setting for setting in cheaper if (self._rate(setting) or 0.0) >= own * (1 - WORTH)
        ]
        if before is not None and (candidate not in as_fast or before.low < 1 - WORTH):
            self.notes.append(search_notes.no_benefit(candidate, before))
        for setting in as_fast:
            if setting == candidate and before is not None:
                shown = before
            elif self._trials.left > 0:
                shown = self._confirm(setting)
            else:
                return
            if shown.low >= 1 - WORTH:
                self.chosen, self.speedup = setting, shown
                return
            if setting != candidate:
                self.notes.append(search_notes.no_benefit(setting, shown))

    def _confirm(self, setting: Setting) -> Speedup:
        """Measure a setting in turn with the own one until their ratio is known precisely."""
        chance = random.Random(f"{self._seed} {setting}")
        pairs: list[tuple[float, float]] = []
        apart = self._apart(setting)
        took = 0.0
        while self._trials.left > 0:
            enough = self._trials.left < took or (pairs and compared(pairs).precision <= WORTH)
            if len(pairs) >= _PAIRS and enough:
                break
            start = self._trials.spent
            self._report(setting, compared(pairs) if pairs else apart)
            try:
                pairs.append(self._pair(setting, chance))
            except (TrialFailed, NeverTried) as error:
                if isinstance(error, TrialFailed):
                    self._trials.heed(error)
                self.notes.append(search_notes.not_confirmed(setting, str(error)))
                break
            took = self._trials.spent - start
        speedup = compared(pairs) if len(pairs) >= _PAIRS else apart
        if len(pairs) < _PAIRS:
            if pairs:  # too few to estimate their spread
                speedup = self._apart(setting, len(pairs))
            self.notes.append(search_notes.few_pairs(len(pairs)))
        self._report(setting, speedup)
        self.comparisons[setting.normal()] = speedup
        return speedup

    def _pair(self, setting: Setting, chance: random.Random) -> tuple[float, float]:
        """Measure a setting and the own one next to each other; returns their epoch rates."""
        both = [setting, self._own]
        if (
            dataclasses.replace(setting, persistent_workers=self._own.persistent_workers)
            == self._own
        ):
            both = [setting]  # the same loader; only the set-up differs
        chance.shuffle(both)
        for candidate in (setting, self._own):
            if self._trials.setup_share(candidate) > _SETUP_MATTERS:
                self._trials.close(candidate)
        for candidate in both:
            self._trials.opened(candidate, keep=(setting, self._own))
            self._trials.again(candidate, "confirming, in turn with the other")
        return self._trials.last(setting), self._trials.last(self._own)

    def _apart(self, setting: Setting, pairs: int = 0) -> Speedup:
        """The speed-up and its interval from the last trial of each setting."""
        new, own = self._last(setting), self._last(self._own)
        assert new is not None
        assert own is not None
        low = new.low / own.high if own.high > 0 else 0.0
        high = new.high / own.low if own.low > 0 else math.inf
        return Speedup(new.samples_per_s / own.samples_per_s, low, high, pairs)

    def guess(self, candidate: Setting | None) -> None:
        """Choose by the trials so far, after an interrupt."""
        if self.speedup is not None:
            return
        if candidate is None or self._rate(self._own) is None:
            return
        if candidate != self._own:
            self.chosen, self.speedup = candidate, self._apart(candidate)
            if is_faster(self.speedup):
                return
        self.chosen, self.speedup = self._own, Speedup(1.0, 1.0, 1.0, 0)

    def _last(self, setting: Setting) -> Measurement | None:
        wanted = setting.normal()
        trials = [row.measurement for row in self._trials.rows]
        trials = [trial for trial in trials if trial.setting == wanted and not trial.failed]
        return trials[-1] if trials else None

    def _rate(self, setting: Setting) -> float | None:
        """The median rate of a setting's blocks; None without one."""
        wanted = setting.normal()
        rates = [
            row.measurement.samples_per_s
            for row in self._trials.rows
            if row.measurement.setting == wanted and not row.measurement.failed
        ]
        return statistics.median(rates) if rates else None
