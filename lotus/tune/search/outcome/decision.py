"""Decides which setting a search recommends, by comparing it with the program's own setting."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from lotus.settings.space import Measurement, Setting
from lotus.tune.program.program import TrialError
from lotus.tune.search.outcome import search_notes
from lotus.tune.search.trials.trial_rates import Speedup, compared
from lotus.tune.search.trials.trial_runner import TrialRunner, UntriedSettingError

WORTH = 0.05  # the least gain that counts: epochs differ by smaller ones
_PRECISE = 0.02  # half the interval's width over the mean, at which a comparison ends
_ALIKE = 0.02  # the most loss at which a cheaper setting counts as as fast
_PAIRS = 3  # that are made if there is time
_LEAST_PAIRS = 2  # without which there is no interval
_SETUP_MATTERS = 0.02  # share of an epoch from which set-up times must be measured again


def is_faster(speedup: Speedup) -> bool:
    """Return True if a speed-up is large enough, and its whole interval above 1."""
    return speedup.shows(WORTH)


def may_gain(speedup: Speedup) -> bool:
    """Return True if a speed-up is large enough, however far its interval reaches."""
    return speedup.mean >= 1 + WORTH


@dataclass(frozen=True)
class LeftOpen:
    """A setting that looks faster, but was not shown to be, and the note that says so."""

    setting: Setting
    note: str


class Decision:
    """The recommended setting of a search and how it compares with the program's own.

    `report` is called with each setting that is compared and its speed-up so far. With
    `check_follows`, comparisons end when they are decided, as the program's own steps will show by
    how much. `notes` are remarks on the decision; `comparisons` has the settings measured in turn
    with the own one.
    """

    def __init__(
        self,
        own: Setting,
        trials: TrialRunner,
        seed: int,
        report: Callable[[Setting, Speedup], object],
        check_follows: bool = False,
    ) -> None:
        self._own, self._trials, self._seed, self._report = own, trials, seed, report
        self._check_follows = check_follows
        self.chosen = own
        self.speedup: Speedup | None = None  # of `chosen` over the own setting
        self.left_open: LeftOpen | None = None
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
            in_turn = self.speedup.pairs >= _LEAST_PAIRS
            if is_faster(self.speedup) and in_turn:
                return
            doubt = search_notes.no_benefit if in_turn else search_notes.only_apart
            self.notes.append(doubt(candidate, self.speedup))
            if may_gain(self.speedup):
                self.left_open = LeftOpen(candidate.normal(), self.notes[-1])
        self.chosen, self.speedup = self._own, Speedup(1.0, 1.0, 1.0, 0)
        self._note_cheapest()

    def _note_cheapest(self) -> None:
        """Note the cheapest setting that was as fast as the own one in trials.

        It is not recommended: with other work on the machine it may be slower, and gains nothing.
        """
        own = self._rate(self._own) or 0.0
        worked = {
            row.measurement.setting for row in self._trials.rows if not row.measurement.failed
        }
        for setting in sorted(setting for setting in worked if setting.num_workers):
            if setting >= self._own:
                return
            if (self._rate(setting) or 0.0) < own * (1 - _ALIKE):
                continue
            if self.left_open is not None and setting.normal() == self.left_open.setting:
                return
            shown = self.comparisons.get(setting.normal())
            if shown is None and self._trials.left > 0:
                shown = self._confirm(setting)
            if shown is not None and shown.pairs >= _LEAST_PAIRS and shown.low >= 1 - _ALIKE:
                self.notes.append(search_notes.as_fast(setting, self._own, shown))
                return

    def _confirm(self, setting: Setting) -> Speedup:
        """Measure a setting in turn with the own one until their ratio is known precisely."""
        chance = random.Random(f"{self._seed} {setting}")
        pairs: list[tuple[float, float]] = []
        apart = self._apart(setting)
        took = 0.0
        while self._trials.left > 0:
            enough = len(pairs) >= _PAIRS and self._is_decided(compared(pairs))
            if enough or (len(pairs) >= _PAIRS and self._trials.left < took):
                break
            start = self._trials.spent
            self._report(setting, compared(pairs) if pairs else apart)
            try:
                pairs.append(self._pair(setting, chance))
            except (TrialError, UntriedSettingError) as error:
                if isinstance(error, TrialError):
                    self._trials.heed(error)
                self.notes.append(search_notes.not_confirmed(setting, str(error)))
                break
            took = self._trials.spent - start
        speedup = compared(pairs) if len(pairs) >= _LEAST_PAIRS else apart
        if len(pairs) < _PAIRS:
            if len(pairs) == 1:
                speedup = self._apart(setting, len(pairs))
            if not self._check_follows:
                self.notes.append(search_notes.few_pairs(len(pairs)))
        self._report(setting, speedup)
        self.comparisons[setting.normal()] = speedup
        return speedup

    def _is_decided(self, shown: Speedup) -> bool:
        if shown.pairs > _PAIRS and shown.tells_nothing:  # nor would many more pairs tell
            return True
        if self._check_follows and (shown.is_significant or shown.high < 1 + WORTH):
            return True
        return shown.precision <= _PRECISE

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
        """Return the speed-up and its interval from the last trial of each setting."""
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
        """Return the median rate of a setting's blocks; None without one."""
        wanted = setting.normal()
        rates = [
            row.measurement.samples_per_s
            for row in self._trials.rows
            if row.measurement.setting == wanted and not row.measurement.failed
        ]
        return statistics.median(rates) if rates else None
