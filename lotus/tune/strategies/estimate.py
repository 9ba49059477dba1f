"""From what few trials showed to what every other setting would bring, with bounds.

Many sets of stages (`lotus.tune.model`) are held at once, each a hypothesis of what a batch costs
and of what holds more workers back: contention for caches and memory (Universal Scalability Law),
something that only one can use at a time, waiting for what is no core. Each counts as much as
it agrees with all that was measured. So bounds are wide where measurements leave much open, and
where trials told rates alone these decide. What no hypothesis explains is carried over from
measured settings to those with about as many workers.
Times are seconds per batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lotus.tune import model
from lotus.tune.space import Observed, Setting
from lotus.tune.strategies.problem import Problem

# Time lost where all cores are busy, against one busy core, and how much of it is coherence.
LOSSES = (0.0, 0.05, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
COHERENCES = (0.0, 0.5, 1.0)
# Fetches that something which all workers share allows at a time; 0: there is no such thing.
SERIAL = (0.0, 2.0, 3.0, 4.5, 6.5, 9.0, 13.0, 18.0, 26.0, 40.0)
# Share of a fetch that is waiting, where trials do not tell it.
WAITS = (0.0, 0.2, 0.4, 0.6, 0.75, 0.85, 0.92, 0.96, 0.99)
# Variation of batches' times that comes from sharing cores, besides their own.
UNEVEN = 0.15
CONSUMER = 1.01  # how well its rate is known
SERIAL_CHANCE = 0.03  # beforehand, of each against none
SHARED = "something that all workers share"
# Standard deviations of the natural logarithm.
MODEL_ERROR = 0.03  # of a rate by the right hypothesis
CPU_ERROR = 0.04  # of CPU time
FAR_ERROR = 0.05  # of a rate, for each doubling of workers away from what was measured


@dataclass(frozen=True)
class Known:
    """All that the blocks of one setting told, put together."""

    setting: Setting
    rate: float  # samples/s
    error: float  # standard deviation of its logarithm
    observed: Observed | None


@dataclass(frozen=True)
class Hypothesis:
    stages: model.Stages
    scaling: model.Scaling
    limit: float  # batches per second, of something that all workers share
    weight: float  # of all together 1

    def predict(self, setting: Setting, cores: float) -> model.Prediction:
        made = model.predict(setting, self.stages, cores, (self.scaling,))
        if self.limit >= made.batches_per_s or not setting.num_workers:
            return made
        return replace(
            made,
            batches_per_s=self.limit,
            low=min(made.low, self.limit),
            high=min(made.high, self.limit),
            bottleneck=SHARED,
        )


@dataclass(frozen=True)
class Guess:
    """What a setting brings over an epoch, in samples/s, with about 95 % bounds."""

    rate: float
    low: float
    high: float


class Estimate:
    """What is to be expected of every setting, by all that is known now."""

    def __init__(self, problem: Problem, known: Iterable[Known]) -> None:
        self.problem = problem
        self.known = {one.setting: one for one in known}
        if not self.known:
            raise ValueError("nothing was measured")
        scored = list(self._scored())
        best = max(score for score, _ in scored)
        kept = [
            replace(one, weight=math.exp(score - best))
            for score, one in scored
            if score > best - 4.0
        ]
        total = sum(one.weight for one in kept)
        self.hypotheses = sorted(
            (replace(one, weight=one.weight / total) for one in kept),
            key=lambda one: -one.weight,
        )
        self._guesses: dict[Setting, Guess] = {}
        self._residuals = {
            setting: math.log(one.rate / self._mean(setting)[0])
            for setting, one in self.known.items()
        }

    def guess(self, setting: Setting) -> Guess:
        setting = setting.normal()
        if setting not in self._guesses:
            self._guesses[setting] = self._guess(setting)
        return self._guesses[setting]

    def prediction(self, setting: Setting) -> model.Prediction:
        """By the hypothesis that agrees best, with what it could not explain carried over."""
        first = self.hypotheses[0]
        made = first.predict(setting, self.problem.cores)
        factor = math.exp(self._carried(setting.normal()))
        guess = self.guess(setting)
        rate = made.batches_per_s * factor
        return replace(
            made,
            batches_per_s=rate,
            low=rate * min(guess.low / guess.rate, 1.0),
            high=rate * max(guess.high / guess.rate, 1.0),
        )

    def _guess(self, setting: Setting) -> Guess:
        if setting in self.known:
            one = self.known[setting]
            spread = math.exp(2.0 * one.error)
            return Guess(one.rate, one.rate / spread, one.rate * spread)
        mean, spread = self._mean(setting)
        mean *= math.exp(self._carried(setting))
        far = min(abs(_distance(setting, one)) for one in self.known)
        error = math.hypot(spread, MODEL_ERROR, FAR_ERROR * far)
        high = mean * math.exp(2.0 * error)
        if self.problem.step_s:
            # No loader makes the consumer faster; pinning may, of which this knows nothing.
            high = max(min(high, CONSUMER * self.problem.samples / self.problem.step_s), mean)
        return Guess(mean, mean * math.exp(-2.0 * error), high)

    def _mean(self, setting: Setting) -> tuple[float, float]:
        """Weighted mean of the hypotheses' rates and the deviation of its logarithm."""
        logs = [(math.log(self._rate(one, setting)), one.weight) for one in self.hypotheses]
        mean = sum(log * weight for log, weight in logs)
        variance = sum(weight * (log - mean) ** 2 for log, weight in logs)
        return math.exp(mean), math.sqrt(variance)

    def _carried(self, setting: Setting) -> float:
        """The logarithm of measured against predicted, from the settings nearest in workers."""
        total = weights = 0.0
        for other, residual in self._residuals.items():
            weight = math.exp(-2.0 * abs(_distance(setting, other))) / (
                MODEL_ERROR**2 + self.known[other].error ** 2
            )
            total += weight * residual
            weights += weight
        return total / (weights + 0.25 / MODEL_ERROR**2)

    def _rate(self, one: Hypothesis, setting: Setting) -> float:
        return epoch_rate(self.problem, one.predict(setting, self.problem.cores))

    def _scored(self) -> Iterable[tuple[float, Hypothesis]]:
        """All hypotheses, each with the logarithm of how well it agrees with what is known."""
        problem = self.problem
        known = list(self.known.values())
        for scaling, chance in _scalings(problem.cores):
            for base, likely in _bases(problem, known, scaling):
                shown = [_Shown.of(one, base, scaling, problem) for one in known]
                fetch = base.cpu_s + base.wait_s
                for at_once in SERIAL:
                    limit = at_once / fetch if at_once else math.inf
                    before = chance * likely * (SERIAL_CHANCE if at_once else 1.0)
                    score = math.log(before) + sum(one.score(limit, problem) for one in shown)
                    yield score, Hypothesis(base, scaling, limit, before)


@dataclass(frozen=True)
class _Shown:
    """A known setting beside what stages say of it."""

    known: Known
    made: model.Prediction
    alone: float  # batches per second without steps
    off: float  # what its CPU time says against the stages

    @classmethod
    def of(
        cls, known: Known, stages: model.Stages, scaling: model.Scaling, problem: Problem
    ) -> _Shown:
        made = model.predict(known.setting, stages, problem.cores, (scaling,))
        alone, off, seen = made.batches_per_s, 0.0, known.observed
        if seen is not None and known.setting.num_workers:
            if problem.step_s:
                free = replace(stages, step_s=0.0, step_pinned_s=None)
                alone = model.predict(known.setting, free, problem.cores, (scaling,)).batches_per_s
            if seen.cpu_s > 0 and stages.cpu_s > 0:
                busy = min(seen.cpu_s / seen.capacity_s, problem.cores)
                expected = stages.cpu_s * scaling.slowdown(busy)
                off = _square(seen.cpu_s / expected, math.hypot(CPU_ERROR, known.error))
        return cls(known, made, alone, off)

    def score(self, limit: float, problem: Problem) -> float:
        known = self.known
        error = math.hypot(MODEL_ERROR, known.error)
        if not known.setting.num_workers:
            limit = math.inf
        rate = epoch_rate(problem, self.made, min(self.made.batches_per_s, limit))
        score = -_square(known.rate / rate, error) - self.off
        if problem.step_s and known.observed is not None and known.setting.num_workers:
            alone = min(self.alone, limit)
            score -= _square(1.0 / (known.observed.capacity_s * alone), error)
        return score


def epoch_rate(
    problem: Problem, made: model.Prediction, batches_per_s: float | None = None
) -> float:
    """Samples per second over an epoch, as `Measurement.samples_per_s` is meant."""
    seconds = 1.0 / (made.batches_per_s if batches_per_s is None else batches_per_s)
    if problem.batches is None or made.setting.persistent_workers:
        return problem.samples / seconds
    return problem.samples * problem.batches / (made.setup_s + problem.batches * seconds)


def _square(ratio: float, error: float) -> float:
    """Half the squared deviation of a ratio from 1, that of far outliers growing slower."""
    off = abs(math.log(ratio)) / error
    return 0.5 * off * off if off < 4.0 else 4.0 * off - 8.0


def _distance(one: Setting, other: Setting) -> float:
    """Doublings of the workers between two settings."""
    return math.log2((one.num_workers + 0.5) / (other.num_workers + 0.5))


def _scalings(cores: float) -> Iterable[tuple[model.Scaling, float]]:
    if cores <= 1:
        yield model.Scaling(), 1.0
        return
    for loss in LOSSES:
        for coherence in COHERENCES if loss else (0.0,):
            chance = math.exp(-loss) * (1.0 if coherence < 1.0 else 0.3)
            yield model.fit(cores, cores / (1.0 + loss), coherence), chance


def _bases(
    problem: Problem,
    known: Sequence[Known],
    scaling: model.Scaling,
) -> Iterable[tuple[model.Stages, float]]:
    """What a batch may cost, and how likely that is beforehand."""
    seen = {one.setting: one.observed for one in known if one.observed is not None}
    step = {"step_s": problem.step_s, "step_cores": problem.step_cores}
    if not seen:
        first = min(known, key=lambda one: (one.setting.num_workers, one.setting))
        workers = first.setting.num_workers
        batch = problem.samples / first.rate
        for share in WAITS:
            whole = max(batch - problem.step_s, 0.05 * batch) if not workers else batch
            # How long a fetch takes alone if so many workers make a batch in this time.
            at_once = max(workers, 1)
            busy = min(at_once * (1.0 - share), problem.cores)
            slow = scaling.slowdown(max(busy, 1.0))
            slow *= max(at_once * (1.0 - share) / problem.cores, 1.0)
            fetch = whole * at_once / ((1.0 - share) * slow + share)
            yield (
                model.Stages((1.0 - share) * fetch, share * fetch, fetch_variation=UNEVEN, **step),
                1.0 if share == 0.0 else 0.3,
            )
        return
    setting = min(seen, key=lambda one: (one.num_workers == 0, one.num_workers, one))
    one, workers = seen[setting], setting.num_workers
    at_once = max(workers, 1)
    busy = min(max(one.cpu_s / one.capacity_s, 1.0), problem.cores)
    cpu = one.cpu_s / scaling.slowdown(busy)
    wait = max(one.capacity_s * at_once - one.cpu_s - one.queued_s, 0.0)
    if wait < 0.03 * one.capacity_s * at_once:
        wait = 0.0  # not told from noise
    cpu = max(cpu, 1e-3 * one.capacity_s)
    gets = [each.get_s for other, each in seen.items() if other.num_workers]
    costs = _start(problem, seen, cpu + wait, cpu)
    base = model.Stages(
        cpu_s=cpu,
        wait_s=wait,
        get_s=min(gets, default=0.0),
        fetch_variation=math.hypot(min(one.variation, 3.0), UNEVEN),
        **step,
        **costs,
    )
    yield base, 1.0


def _start(
    problem: Problem, seen: Mapping[Setting, Observed], fetch: float, cpu: float
) -> dict[str, float]:
    """What starting and ending workers takes, by the fewest and the most that were measured."""
    counted = sorted(
        (s.num_workers, one.iter_s, i) for i, (s, one) in enumerate(seen.items()) if s.num_workers
    )
    if not counted:
        return {}
    all_seen = list(seen.values())
    few, many = counted[0], counted[-1]
    spawn = many[1] / many[0]
    if many[0] > few[0]:
        spawn = min(max((many[1] - few[1]) / (many[0] - few[0]), 0.0), spawn)
    start = max(few[1] - spawn * few[0], 0.0)
    one = all_seen[few[2]]
    boot = max(one.startup_s - one.iter_s - fetch, 0.0) / max(few[0] / problem.cores, 1.0)
    end = max(all_seen[many[2]].shutdown_s / many[0], 0.0)
    return {"iter_s": start, "spawn_s": spawn, "boot_s": boot, "shutdown_s": end}
