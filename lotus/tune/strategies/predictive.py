"""The default strategy: measures what may improve most on the best setting so far.

After each trial, rate_model.py estimates the rate of every setting, with an error. The leader is
the cheapest of the tried settings that are estimated to be within 1 % of the fastest. Then comes
the setting with the highest expected improvement on the leader per second of its trial: it may not
have been tried yet, or its trials, or the leader's own, may be too few to tell them apart. So new
settings and repetitions compete for the same seconds. The search ends when no trial promises
anything, or when the budget is spent.

Settings that differ only in `persistent_workers` are the same loader until an epoch ends
(equivalent_settings.py): one is measured, and the rate of the other is computed from the start-up
time of workers. candidates.py has the settings to choose from, where a failure also rules out
larger settings.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from lotus.common.numbers.statistics import Z95
from lotus.common.torch_defaults import TORCH_PREFETCH
from lotus.settings.space import Measurement, Setting
from lotus.tune.strategies.candidates import CandidateSettings
from lotus.tune.strategies.equivalent_settings import both
from lotus.tune.strategies.known_rate import KnownRate
from lotus.tune.strategies.observations import Observations
from lotus.tune.strategies.preference import cost
from lotus.tune.strategies.problem import Problem
from lotus.tune.strategies.rate_model import OTHERS, RateEstimate, RateModel

ALIKE = 0.01  # a cheaper setting is preferred if it is estimated to be this much slower at most
WORTH = 0.0001  # the least expected improvement (relative) that is worth a trial
AGAIN = 0.6  # a repetition takes this share of a first trial, until one was made
LEAST_S = 1e-3  # of a trial
CONSUMER = 1.01  # relative uncertainty of the training step's rate
AS_GOOD = 0.8  # of settings that promise this share of the most, the cheapest is tried
KNOWN = 3  # settings to try before parameters that the roofline does not know
FAILURES = 5  # settings that fail, after which no further one is tried


class Lotus:
    """The strategy described above. It uses no random numbers."""

    name = "lotus"

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._candidates = CandidateSettings(problem)
        self._measured = Observations(problem, self._candidates.space)
        self._own = self._candidates.own
        self._model = RateModel(problem, sorted({*self._candidates.left, self._own}))
        self._pending: Setting | None = None
        self._done = False
        self._estimate: RateEstimate | None = None
        self._known: list[KnownRate] = []
        self._reason = "no setting was requested yet"

    # The interface of a strategy

    def ask(self) -> Setting | None:
        """Return the setting to measure next; None at the end."""
        if self._pending is None and not self._done:
            self._pending, self._reason = self._next()
            self._done = self._pending is None
            if self._done:
                self._prune()
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
        if setting not in self._model.place:
            self._model = RateModel(self.problem, (*self._model.settings, setting))
        if setting == self._pending:
            self._pending = None
        self._estimate = None

    def best(self) -> Measurement | None:
        """Return the leader, with its estimated rate and the interval of that."""
        estimate = self._expected()
        if estimate is None:
            return None
        leader = self._leader(estimate)
        tried = self._measured.measured_twin(leader)
        assert tried is not None
        blocks = self._measured.blocks[tried]
        place = self._model.place[tried]
        rate, spread = math.exp(estimate.mean[place]), math.exp(Z95 * estimate.error(place))
        return replace(
            blocks[-1],
            setting=self._candidates.names[tried],
            samples_per_s=rate,
            low=rate / spread,
            high=rate * spread,
            seconds=sum(block.seconds for block in blocks),
        )

    def reason(self) -> str:
        """Explain the last answer of `ask`; after its end, with the leader of all trials so far."""
        estimate = self._expected() if self._done else None
        if estimate is None:
            return self._reason
        return self._reason.format(leader=self._leader(estimate).words())

    def ruled_out(self) -> list[tuple[str, str]]:
        """Return (what was not tried, or not again, and why)."""
        return list(self._candidates.left_out.items())

    def predicted(self, setting: Setting) -> float | None:
        """Return the estimated samples per second over an epoch; None if nothing has worked."""
        estimate = self._expected()
        place = self._model.place.get(self._candidates.same(setting))
        if estimate is None or place is None:
            return None
        return math.exp(estimate.mean[place])

    # The choice of the next setting

    def _expected(self) -> RateEstimate | None:
        """Return the estimates from all measurements; None before anything has worked."""
        if self._estimate is None and self._measured.blocks:
            measured = self._measured
            derived = [rate for rate in measured.derived() if rate.setting not in measured.blocks]
            known = [*measured.known_rates(), *derived]
            self._known = [rate for rate in known if rate.setting in self._model.place]
            self._estimate = self._model.estimate(self._known)
        return self._estimate

    def _leader(self, estimate: RateEstimate) -> Setting:
        """Return the cheapest of the known settings that are about as fast as the fastest."""
        rates = {
            rate.setting: estimate.mean[self._model.place[rate.setting]] for rate in self._known
        }
        least = max(rates.values()) - ALIKE
        return min((setting for setting, rate in rates.items() if rate >= least), key=cost)

    def _next(self) -> tuple[Setting | None, str]:
        """Return (the next setting or None at the end, why)."""
        measured = self._measured
        if not measured.tried and not self.problem.allowed(self._candidates.names[self._own]):
            return self._own, "the program's own setting, with which the others are compared"
        estimate = self._expected()
        if estimate is None:
            left = self._candidates.left
            if left and measured.affordable() and len(measured.failed) < FAILURES:
                return left[0], "nothing has worked yet"
            return None, "nothing that was tried has worked"
        leader = self._leader(estimate)
        first_s, again_s = self._seconds()
        left_s = self.problem.budget_s - measured.spent_s
        if leader not in measured.blocks and first_s <= left_s:
            value = "persistent_workers" if leader.persistent_workers else "new workers"
            return leader, f"the same loader with {value}, predicted from the start-up of workers"
        gains: dict[Setting, float] = {}
        for strange in (len(measured.blocks) >= KNOWN, True):
            for setting in self._worth_trying(leader, strange):
                took_s = again_s if self._was_tried(setting) else first_s
                if took_s <= left_s:
                    gain = self._gain(estimate, leader, setting)
                    gains[setting] = gain / took_s if gain > WORTH else 0.0
            if any(gains.values()):
                break
        if not gains:
            return None, "the budget is spent; the best in trials: {leader}"
        setting = max(gains, key=lambda candidate: gains[candidate])
        if not gains[setting]:
            return self._cheaper(
                estimate, leader, [candidate for candidate in gains if candidate < leader]
            )
        if not self._was_tried(setting):
            as_good = [
                candidate for candidate in gains if gains[candidate] >= AS_GOOD * gains[setting]
            ]
            setting = min(
                (candidate for candidate in as_good if not self._was_tried(candidate)), key=cost
            )
            return setting, self._promise(estimate, setting, leader)
        if estimate.error(self._model.place[leader]) > estimate.error(self._model.place[setting]):
            setting = leader
        return (
            measured.measured_twin(setting) or setting,
            "it may be the best: measured again, as others are close",
        )

    def _cheaper(
        self, estimate: RateEstimate, leader: Setting, settings: Sequence[Setting]
    ) -> tuple[Setting | None, str]:
        """Return an untried setting with fewer workers, as fast as the leader by estimate."""
        least = estimate.mean[self._model.place[leader]] - ALIKE
        as_fast = [
            setting
            for setting in settings
            if setting.num_workers < leader.num_workers
            and estimate.mean[self._model.place[setting]] >= least
            and not self._was_tried(setting)
        ]
        if as_fast:
            why = f"predicted to be as fast as {leader.words()} at less cost"
            return min(as_fast, key=cost), why
        return None, "no other setting promises to be faster than {leader} in trials"

    def _was_tried(self, setting: Setting) -> bool:
        """Return True if the rate of a setting was measured, or computed from its twin's."""
        return any(rate.setting == setting for rate in self._known)

    def _seconds(self) -> tuple[float, float]:
        """Return (seconds of the first trial of a setting, those of another block)."""
        blocks = self._measured.blocks.values()
        first = [some[0].seconds for some in blocks]
        again = [block.seconds for some in blocks for block in some[1:]]
        again_s = statistics.fmean(again or [AGAIN * statistics.median(first)])
        return max([*first, LEAST_S]), max(again_s, LEAST_S)

    def _worth_trying(self, leader: Setting, strange: bool) -> list[Setting]:
        """Return the settings that compete with the leader.

        Prefetching one batch gains only by chance, as it leaves no slack for irregular batches.
        With `strange`, parameters that the roofline does not know are varied, one at a time, at the
        leader.
        """
        measured, settings = self._measured, set(self._measured.blocks)
        left = self._candidates.left if len(measured.failed) < FAILURES else ()
        for setting in left:
            apart = [name for name in OTHERS if getattr(setting, name) != getattr(leader, name)]
            if apart and not (strange and self._varies(setting, leader, apart[0])):
                continue
            deeper = replace(setting, prefetch_factor=TORCH_PREFETCH)
            if setting.prefetch_factor == 1 and deeper in self._candidates.space:
                continue
            settings.add(setting)
        computed = self.problem.batches is None or measured.observed(leader) is not None
        twins = both(leader) if computed else (leader,)  # further trials tell twins not apart
        return sorted(settings.difference(twins))

    def _varies(self, setting: Setting, leader: Setting, name: str) -> bool:
        """Return True if a setting differs from the leader in this parameter only."""
        return setting == replace(leader, **{name: getattr(setting, name)})

    def _gain(self, estimate: RateEstimate, leader: Setting, setting: Setting) -> float:
        """Return the expected improvement of a setting on the leader (logarithm)."""
        first, place = self._model.place[leader], self._model.place[setting]
        more = float(estimate.mean[place] - estimate.mean[first])
        error = estimate.difference_error(place, first)
        ratio = more / error
        density = math.exp(-0.5 * ratio * ratio) / math.sqrt(2 * math.pi)
        gain = more * 0.5 * math.erfc(-ratio / math.sqrt(2)) + error * density
        if not self.problem.step_s:
            return gain
        # No loader makes the step faster. Pinning may, but the model does not cover it.
        limit = math.log(CONSUMER * self.problem.samples / self.problem.step_s)
        most = limit - float(estimate.mean[first]) + 2 * estimate.error(first)
        return min(gain, max(most, 0.0))

    def _promise(self, estimate: RateEstimate, setting: Setting, leader: Setting) -> str:
        """Return why a setting that was not tried yet is tried."""
        first, place = self._model.place[leader], self._model.place[setting]
        more = float(estimate.mean[place] - estimate.mean[first])
        high = more + 2 * estimate.difference_error(place, first)
        gain, most = math.expm1(min(more, 5.0)), math.expm1(min(high, 5.0))
        than = f"than {leader.words()}, the best so far"
        if gain >= ALIKE:
            return f"predicted to be {gain:.0%} faster {than}"
        if most < ALIKE:
            return f"it may be as fast as {leader.words()}, the best so far"
        return f"it may be up to {most:.0%} faster {than}"

    def _prune(self) -> None:
        """Record settings that were not tried because their bound is below the best rate."""
        estimate = self._expected()
        if estimate is None:
            return
        leader = self._leader(estimate)
        first = self._model.place[leader]
        highs = [
            float(estimate.mean[place] - estimate.mean[first])
            + 2 * estimate.difference_error(place, first)
            for setting in self._candidates.left
            if not self._was_tried(setting)
            for place in (self._model.place[setting],)
        ]
        slow = [high for high in highs if high < 0]
        if slow:
            self._candidates.left_out[f"{len(slow)} settings that were not tried"] = (
                f"predicted to reach at most {math.exp(max(slow)):.0%} of {leader.words()}"
            )
