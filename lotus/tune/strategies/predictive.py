"""The default search: predict from what few trials show, try what is predicted, race the rest.

At most five different settings are asked for, the program's own counted:

1. the program's own; one worker; then about as many as are predicted to suffice
(rate_prediction.py); 2. while trials are left (the last one is kept for what the model does not
know, such as pinning,
   where that varies): the cheapest of those predicted to be fastest, or, where that is measured
   already, what could still be better by its bound, found by descending the parameter's AVL tree,
   which is rooted at the predicted optimum. Equal settings are never tried, nor those that the
   problem refuses, nor those whose upper bound lies below what is measured;
3. those that may be the cheapest within 2 % of the best are asked for again, in blocks of
   all of them in random order, until that is sure or the budget is spent (confirmation_race.py).

Settings that differ in `persistent_workers` alone are one loader until an epoch ends
(equivalent_settings.py): one is measured, the other worked out by what starting workers takes, and
asked for only to be chosen. What is chosen is in observations.py, what there is to choose among in
candidates.py: a setting that fails rules out what is larger in the same respect.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from lotus.common.statistics import Z95
from lotus.settings.space import PARAMETERS, TORCH_PREFETCH, Measurement, Setting
from lotus.tune.simulation import formula_model
from lotus.tune.strategies import avl_tree
from lotus.tune.strategies.candidates import CandidateSettings, words
from lotus.tune.strategies.confirmation_race import Race
from lotus.tune.strategies.equivalent_settings import loader_of, twin_of
from lotus.tune.strategies.hypotheses import SHARED
from lotus.tune.strategies.observations import TRIALS, Observations
from lotus.tune.strategies.preference import TIE, rarity
from lotus.tune.strategies.problem import Problem
from lotus.tune.strategies.rate_prediction import Estimate

AIM = 0.01  # who is so little slower and cheaper is preferred, of what is only predicted
WORTH = 0.01  # how much faster a bound must be to be worth a trial
LEISURE = 0.1  # how much below the best a bound may be where there is time
AT_LEISURE = 0.5  # there is, until so much of the budget is spent
DEAR = 0.2  # of the budget, for the first trial: then one worker alone is not tried
UNEVEN_BATCHES = 0.5  # variation from which on taking batches in turn may cost much

# In words, what a prediction calls its bottleneck.
LIMITS = {
    "workers": "the number of workers",
    "cores": "the number of cores",
    "consumer": "the training step",
    "pipe": "handing batches over",
    "pin thread": "pinning",
    SHARED: SHARED,
}
# Those that the model does not know: tried at the best setting where trials are left.
UNKNOWN = ("pin_memory", "in_order", "threads", "start_method")


class Lotus:
    """The search described above. Pure: no clock, no chance but from the problem's seed."""

    name = "lotus"

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._candidates = CandidateSettings(problem)
        self._measured = Observations(problem, self._candidates.space)
        self._race = Race(problem, self._measured)
        self._own = self._candidates.own
        self._pending: Setting | None = None
        self._searching, self._done = True, False
        self._estimate: Estimate | None = None
        self._reason = "nothing was asked for yet"

    # Asking and telling

    def ask(self) -> Setting | None:
        """The setting to measure next; None: no more."""
        if self._pending is None and not self._done:
            self._pending, self._reason = self._next()
            self._done = self._pending is None
        return (
            None
            if self._pending is None
            else self._candidates.names.get(self._pending, self._pending)
        )

    def tell(self, measurement: Measurement) -> None:
        """Take in what a setting gave."""
        setting = self._candidates.same(measurement.setting)
        self._candidates.names.setdefault(setting, measurement.setting.normal())
        failed = self._measured.tell(setting, measurement)
        if failed:
            self._candidates.drop(setting, failed, self._measured.blocks)
        if setting == self._pending:
            self._pending = None
        self._estimate = None

    def best(self) -> Measurement | None:
        """The cheapest that is within 2 % of the fastest, all its blocks together."""
        measured, chosen = self._measured, self._measured.chosen()
        if chosen is None:
            return None
        if chosen.setting not in measured.blocks:  # its twin alone was told
            loader = loader_of(chosen.setting)
            chosen = next(one for one in measured.known() if loader_of(one.setting) == loader)
        blocks = measured.blocks[chosen.setting]
        if len(blocks) == 1 and twin_of(chosen.setting) not in measured.blocks:
            return blocks[0]
        spread = math.exp(Z95 * chosen.error)
        return replace(
            blocks[-1],
            setting=self._candidates.names[chosen.setting],
            samples_per_s=chosen.rate,
            low=chosen.rate / spread,
            high=chosen.rate * spread,
            seconds=sum(block.seconds for block in blocks),
        )

    def reason(self) -> str:
        """Why that setting, or why no more."""
        return self._reason

    def ruled_out(self) -> list[tuple[str, str]]:
        """What was never tried, or not again, and why."""
        return list(self._candidates.left_out.items())

    def predicted(self, setting: Setting) -> formula_model.Prediction | None:
        """What is expected of a setting by all that was told; None before anything was."""
        estimate = self._expected()
        if estimate is None:
            return None
        return replace(
            estimate.prediction(self._candidates.same(setting)), setting=setting.normal()
        )

    def _expected(self) -> Estimate | None:
        """What is to be expected by all that was told; None before anything worked."""
        if self._estimate is None and self._measured.blocks:
            measured = self._measured
            self._estimate = Estimate(self.problem, measured.known(), measured.derived())
        return self._estimate

    # What comes next

    def _next(self) -> tuple[Setting | None, str]:
        """What to ask for now, and why; None at the end, and why it is the end."""
        tried = len(self._measured.tried)
        best = self._measured.chosen()
        if best is not None and best.setting not in self._measured.blocks:
            tried += 1  # its twin is kept a place
        if tried == 0 and not self.problem.allowed(self._candidates.names[self._own]):
            return self._own, "the program's own setting, against which the others are held"
        if self._searching and tried < TRIALS and self._measured.affordable():
            choice = self._profile()
            if choice is None and tried == TRIALS - 1:
                choice = self._unknown()  # so that it has its turn
            choice = choice or self._target() or self._explore(1.0 + WORTH) or self._unknown()
            if choice is None and self._measured.spent_s < AT_LEISURE * self.problem.budget_s:
                choice = self._explore(1.0 - LEISURE)
            if choice is not None:
                return choice
        if self._searching:
            self._searching = False
            self._prune()
        return self._unmeasured_choice() or self._race.next()

    def _unmeasured_choice(self) -> tuple[Setting, str] | None:
        """The setting to choose, where only its twin was told: what is chosen is measured."""
        measured, best = self._measured, self._measured.chosen()
        if best is None or best.setting in measured.blocks or len(measured.tried) >= TRIALS:
            return None
        if best.setting not in self._candidates.left or not measured.affordable():
            return None
        value = "persistent_workers" if best.setting.persistent_workers else "new workers"
        return best.setting, f"the same loader with {value}, by what starting workers takes"

    def _prune(self) -> None:
        """Name what was not tried, as it cannot be the fastest by its bound."""
        estimate, best = self._expected(), self._measured.chosen()
        if estimate is None or best is None:
            return
        least = estimate.guess(best.setting).low
        loaders = {loader_of(setting) for setting in self._measured.tried}
        untried = [
            setting for setting in self._candidates.left if loader_of(setting) not in loaders
        ]
        slow = [high for setting in untried if (high := estimate.guess(setting).high) < least]
        if slow:
            self._candidates.left_out[f"{len(slow)} settings that were not tried"] = (
                f"predicted to reach at most {max(slow) / best.rate:.0%} of {words(best.setting)}"
            )

    def _profile(self) -> tuple[Setting, str] | None:
        """One worker, where no other trial tells what a batch takes."""
        if any(s.num_workers <= 1 for s in self._measured.tried):
            return None
        if self._measured.blocks and self._measured.spent_s > DEAR * self.problem.budget_s:
            return None  # the slowest of all would take what is left
        single = [setting for setting in self._candidates.left if setting.num_workers == 1]
        if not single:
            return None
        like = self._own.prefetch_factor or TORCH_PREFETCH
        setting = min(
            single,
            key=lambda s: (
                self._strange(s),
                abs((s.prefetch_factor or TORCH_PREFETCH) - like),
                s,
            ),
        )
        return setting, "one worker alone tells what a batch takes, without contention"

    def _target(self) -> tuple[Setting, str] | None:
        """The cheapest of those predicted to be fastest, if it is not measured yet."""
        estimate = self._expected()
        pool = {*self._candidates.left, *self._measured.blocks}
        if estimate is None:
            left = self._candidates.left
            return (left[0], "nothing has worked yet") if left else None
        rates = {setting: estimate.guess(setting).rate for setting in pool}
        most = max(rates.values())
        target = min(
            (setting for setting, rate in rates.items() if rate >= (1.0 - AIM) * most),
            key=lambda setting: (
                setting.num_workers,
                self._strange(setting),
                rarity(setting.prefetch_factor),
                setting,
            ),
        )
        best = self._measured.chosen()
        target = self._cheaper_twin(target, rates)
        if self._is_known(target) or (best is not None and self._alike(target, best.setting)):
            return None
        gain = rates[target] / best.rate - 1.0 if best else 0.0
        if best is None or gain >= AIM:
            held = LIMITS.get(estimate.prediction(target).bottleneck, "the machine")
            return target, f"predicted to be {gain:.0%} faster than the best so far; {held} decides"
        if target < best.setting:
            return target, f"predicted to be as fast as {words(best.setting)} at less cost"
        return target, f"predicted to be as fast as {words(best.setting)}"

    def _explore(self, worth: float) -> tuple[Setting, str] | None:
        """What may reach `worth` times the best rate by its bound, in the middle of such."""
        estimate, best = self._expected(), self._measured.chosen()
        if estimate is None or best is None:
            return None
        choices: list[tuple[float, Setting, str]] = []
        for name in ("num_workers", "prefetch_factor", "persistent_workers"):
            line = self._candidates.line(best.setting, name)
            if name == "num_workers":
                line += [setting for setting in self._candidates.left if not setting.num_workers]
            line = [setting for setting in line if not self._is_known(setting)]
            if name == "prefetch_factor":  # one batch ahead gains nothing but by chance
                line = [setting for setting in line if setting.prefetch_factor != 1]
            bounds = {setting: estimate.guess(setting) for setting in line}
            alive = sorted(setting for setting in line if bounds[setting].high > worth * best.rate)
            below = [i for i, setting in enumerate(alive) if setting < best.setting]
            above = [i for i, setting in enumerate(alive) if setting > best.setting]
            for side in (below, above):
                if side:
                    setting = alive[avl_tree.tree(side).value]
                    choices.append((bounds[setting].high, setting, name))
        if not choices:
            return None
        high, setting, name = max(choices, key=lambda each: (each[0], each[1]))
        if high < (1.0 + WORTH) * best.rate:
            return setting, f"another {name} than those tried, to be sure: there is time for it"
        return setting, (
            f"what another {name} brings is not known well: "
            f"it may be up to {high / best.rate - 1:.0%} faster"
        )

    def _strange(self, setting: Setting) -> int:
        """In how many parameters that the model does not know it differs from the own setting."""
        return sum(getattr(setting, name) != getattr(self._own, name) for name in UNKNOWN)

    def _alike(self, setting: Setting, other: Setting) -> bool:
        """Whether two settings differ in nothing that the model knows."""
        return all(
            getattr(setting, name) == getattr(other, name)
            for name in PARAMETERS
            if name not in UNKNOWN
        )

    def _unknown(self) -> tuple[Setting, str] | None:
        """The best setting with a value that no trial had, of what the model does not know."""
        best = self._measured.chosen()
        if best is None:
            return None
        for name in self._promising():
            for setting in self._candidates.line(best.setting, name):
                value = getattr(setting, name)
                if not any(getattr(other, name) == value for other in self._measured.tried):
                    return setting, f"whether {name} {value} is faster only a trial tells"
        return None

    def _is_known(self, setting: Setting) -> bool:
        """Whether a setting was told, or can be worked out from its twin."""
        estimate = self._expected()
        return setting in self._measured.blocks or (
            estimate is not None and setting in estimate.known
        )

    def _cheaper_twin(self, setting: Setting, rates: Mapping[Setting, float]) -> Setting:
        """New workers for each epoch where persistent ones bring too little."""
        other = replace(setting, persistent_workers=False)
        return other if rates.get(other, 0.0) >= (1.0 - TIE) * rates[setting] else setting

    def _promising(self) -> tuple[str, ...]:
        """What the model does not know, that first which may bring most: there are few trials."""
        seen = [self._measured.observed(shown) for shown in self._measured.blocks]
        varies = max((shown.variation for shown in seen if shown is not None), default=0.0)
        if varies < UNEVEN_BATCHES:
            return UNKNOWN
        return ("in_order", *(name for name in UNKNOWN if name != "in_order"))
