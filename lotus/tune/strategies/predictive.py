"""The default strategy: predicts rates from few trials and measures only promising settings.

It measures at most five different settings, including the program's own:

1. The program's own setting, one worker, then about as many workers as are predicted to suffice
   (rate_prediction.py).
2. While trials are left, the cheapest of the settings predicted to be fastest. If that has been
   measured, a setting whose upper bound exceeds the best rate, found by descending the parameter's
   AVL tree from its middle. The last trial is for parameters that the model does not cover, such as
   pinning, if they vary. Equivalent settings, forbidden ones and those whose upper bound is below
   the best rate are never tried.
3. Settings that may be the cheapest within 2 % of the best are measured again, in rounds of random
   order, until the choice is clear or the budget is spent (confirmation_race.py).

Settings that differ only in `persistent_workers` are the same loader until an epoch ends
(equivalent_settings.py): one is measured, the rate of the other is computed from the start-up time
of workers, and it is measured only before it is chosen. observations.py makes the choice;
candidates.py has the settings to choose from, where a failure also rules out larger settings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from lotus.common.statistics import Z95
from lotus.settings.space import LOADER_PARAMETERS, TORCH_PREFETCH, Measurement, Setting
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

AIM = 0.01  # a cheaper setting is preferred if it is predicted to be this much slower at most
WORTH = 0.01  # relative gain that an upper bound must promise to be worth a trial
LEISURE = 0.1  # how far a bound may be below the best rate while there is time to spare
AT_LEISURE = 0.5  # share of the budget up to which there is time to spare
DEAR = 0.2  # share of the budget; if the first trial took more, one worker is not tried
UNEVEN_BATCHES = 0.5  # variation of batch times from which taking them in turn may cost much

# Descriptions of the bottlenecks that a prediction names.
LIMITS = {
    "workers": "the number of workers",
    "cores": "the number of cores",
    "consumer": "the training step",
    "pipe": "handing batches over",
    "pin thread": "pinning",
    SHARED: SHARED,
}
# Parameters that the model does not cover: tried at the best setting if trials are left.
UNKNOWN = ("pin_memory", "in_order", "threads", "start_method")


class Lotus:
    """The strategy described above; random numbers come from the problem's seed only."""

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
        self._reason = "no setting was requested yet"

    # The interface of a strategy

    def ask(self) -> Setting | None:
        """Return the setting to measure next; None at the end."""
        if self._pending is None and not self._done:
            self._pending, self._reason = self._next()
            self._done = self._pending is None
        return (
            None
            if self._pending is None
            else self._candidates.names.get(self._pending, self._pending)
        )

    def tell(self, measurement: Measurement) -> None:
        """Record a measurement."""
        setting = self._candidates.same(measurement.setting)
        self._candidates.names.setdefault(setting, measurement.setting.normal())
        failed = self._measured.tell(setting, measurement)
        if failed:
            self._candidates.drop(setting, failed, self._measured.blocks)
        if setting == self._pending:
            self._pending = None
        self._estimate = None

    def best(self) -> Measurement | None:
        """Return the cheapest setting within 2 % of the fastest, its blocks combined."""
        measured, chosen = self._measured, self._measured.chosen()
        if chosen is None:
            return None
        if chosen.setting not in measured.blocks:  # only its twin was measured
            loader = loader_of(chosen.setting)
            chosen = next(one for one in measured.known_rates() if loader_of(one.setting) == loader)
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
        """Explain the last answer of `ask`."""
        return self._reason

    def ruled_out(self) -> list[tuple[str, str]]:
        """Return (what was not tried, or not again, and why)."""
        return list(self._candidates.left_out.items())

    def predicted(self, setting: Setting) -> formula_model.SettingPrediction | None:
        """Predict a setting from all measurements; None before anything has worked."""
        estimate = self._expected()
        if estimate is None:
            return None
        return replace(
            estimate.prediction(self._candidates.same(setting)), setting=setting.normal()
        )

    def _expected(self) -> Estimate | None:
        """The estimate from all measurements; None before anything has worked."""
        if self._estimate is None and self._measured.blocks:
            measured = self._measured
            self._estimate = Estimate(self.problem, measured.known_rates(), measured.derived())
        return self._estimate

    # The choice of the next setting

    def _next(self) -> tuple[Setting | None, str]:
        """Return (the next setting or None at the end, why)."""
        tried = len(self._measured.tried)
        best = self._measured.chosen()
        if best is not None and best.setting not in self._measured.blocks:
            tried += 1  # a trial is kept for it
        if tried == 0 and not self.problem.allowed(self._candidates.names[self._own]):
            return self._own, "the program's own setting, with which the others are compared"
        if self._searching and tried < TRIALS and self._measured.affordable():
            choice = self._profile()
            if choice is None and tried == TRIALS - 1:
                choice = self._unknown()  # the last trial is for these parameters
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
        """The chosen setting, if only its twin was measured."""
        measured, best = self._measured, self._measured.chosen()
        if best is None or best.setting in measured.blocks or len(measured.tried) >= TRIALS:
            return None
        if best.setting not in self._candidates.left or not measured.affordable():
            return None
        value = "persistent_workers" if best.setting.persistent_workers else "new workers"
        return best.setting, f"the same loader with {value}, predicted from the start-up of workers"

    def _prune(self) -> None:
        """Record settings that were not tried because their bound is below the best rate."""
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
        """One worker, if no other trial shows the cost of a batch."""
        if any(s.num_workers <= 1 for s in self._measured.tried):
            return None
        if self._measured.blocks and self._measured.spent_s > DEAR * self.problem.budget_s:
            return None  # a trial this slow would use up the budget
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
        return setting, "a single worker shows the cost of a batch without contention"

    def _target(self) -> tuple[Setting, str] | None:
        """The cheapest of the settings predicted to be fastest, unless it was measured."""
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
            limit = LIMITS.get(estimate.prediction(target).bottleneck, "the machine")
            return target, f"predicted to be {gain:.0%} faster than the best so far; {limit} limits"
        if target < best.setting:
            return target, f"predicted to be as fast as {words(best.setting)} at less cost"
        return target, f"predicted to be as fast as {words(best.setting)}"

    def _explore(self, worth: float) -> tuple[Setting, str] | None:
        """A setting whose bound exceeds `worth` times the best rate, the middle one of these."""
        estimate, best = self._expected(), self._measured.chosen()
        if estimate is None or best is None:
            return None
        choices: list[tuple[float, Setting, str]] = []
        for name in ("num_workers", "prefetch_factor", "persistent_workers"):
            line = self._candidates.line(best.setting, name)
            if name == "num_workers":
                line += [setting for setting in self._candidates.left if not setting.num_workers]
            line = [setting for setting in line if not self._is_known(setting)]
            if name == "prefetch_factor":  # prefetching one batch gains only by chance
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
            return setting, f"another {name} than those tried, to be sure, as there is time"
        return setting, (
            f"the effect of {name} is uncertain: another value may be up to "
            f"{high / best.rate - 1:.0%} faster"
        )

    def _strange(self, setting: Setting) -> int:
        """In how many parameters that the model does not cover it differs from the own setting."""
        return sum(getattr(setting, name) != getattr(self._own, name) for name in UNKNOWN)

    def _alike(self, setting: Setting, other: Setting) -> bool:
        """Whether two settings differ only in parameters that the model does not cover."""
        return all(
            getattr(setting, name) == getattr(other, name)
            for name in LOADER_PARAMETERS
            if name not in UNKNOWN
        )

    def _unknown(self) -> tuple[Setting, str] | None:
        """The best setting with an untried value of a parameter that the model does not cover."""
        best = self._measured.chosen()
        if best is None:
            return None
        for name in self._promising():
            for setting in self._candidates.line(best.setting, name):
                value = getattr(setting, name)
                if not any(getattr(other, name) == value for other in self._measured.tried):
                    return setting, f"only a trial shows whether {name} {value} is faster"
        return None

    def _is_known(self, setting: Setting) -> bool:
        """Whether a setting was measured, or its rate computed from its twin."""
        estimate = self._expected()
        return setting in self._measured.blocks or (
            estimate is not None and setting in estimate.known
        )

    def _cheaper_twin(self, setting: Setting, rates: Mapping[Setting, float]) -> Setting:
        """The setting without persistent workers, if they gain too little."""
        other = replace(setting, persistent_workers=False)
        return other if rates.get(other, 0.0) >= (1.0 - TIE) * rates[setting] else setting

    def _promising(self) -> tuple[str, ...]:
        """The parameters that the model does not cover, the most promising one first."""
        seen = [self._measured.observed(shown) for shown in self._measured.blocks]
        varies = max((shown.variation for shown in seen if shown is not None), default=0.0)
        if varies < UNEVEN_BATCHES:
            return UNKNOWN
        return ("in_order", *(name for name in UNKNOWN if name != "in_order"))
