"""Hypotheses on the cost of batches and on limits to scaling, weighted by likelihood.

A hypothesis is a set of stages (`lotus.tune.simulation.formula_model`) with a contention
(Universal Scalability Law) and a limit on something that all workers share, such as storage. If
trials observed CPU time and waiting, the stages are computed from them; if trials gave only rates,
there are hypotheses for several shares of waiting.
Times are seconds per batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lotus.settings.space import Observed, Setting
from lotus.tune.simulation import epoch_time, formula_model
from lotus.tune.simulation.epoch_time import Pace
from lotus.tune.strategies.problem import Problem

# Relative loss of speed with all cores busy instead of one, and the share of it due to coherence.
LOSSES = (0.0, 0.05, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
COHERENCES = (0.0, 0.5, 1.0)
# How many concurrent fetches a shared resource allows; 0: no such resource.
SERIAL = (0.0, 2.0, 3.0, 4.5, 6.5, 9.0, 13.0, 18.0, 26.0, 40.0)
SERIAL_CHANCE = 0.03  # prior odds of each such limit against none
# Shares of waiting in a fetch, if trials did not observe it.
WAITS = (0.0, 0.2, 0.4, 0.6, 0.75, 0.85, 0.92, 0.96, 0.99)
LEAST_WAIT = 0.03  # share of a fetch; less waiting is within noise
# Variation of batch times that sharing the cores adds.
UNEVEN = 0.15
# Assumed if no trial had workers: times of forked workers that have imported torch.
USUAL_START = {"spawn_s": 0.02, "boot_s": 0.05, "shutdown_s": 0.02}
SHARED = "something that all workers share"
# Standard deviations of the natural logarithm.
MODEL_ERROR = 0.03  # of the rate that the right hypothesis predicts
CPU_ERROR = 0.04  # of the CPU time


@dataclass(frozen=True)
class KnownRate:
    """The rate of one setting, combined from all its blocks."""

    setting: Setting
    rate: float  # samples/s
    error: float  # standard deviation of its logarithm
    observed: Observed | None


@dataclass(frozen=True)
class Hypothesis:
    """One possible explanation of the measurements; times of stages are seconds."""

    stages: formula_model.Stages
    scaling: formula_model.Scaling
    limit: float  # batches per second, of a resource that all workers share
    weight: float  # likelihood; the weights of all hypotheses add up to 1

    def predict(self, setting: Setting, cores: float) -> formula_model.SettingPrediction:
        """Predict the performance of a setting under this hypothesis."""
        made = _predict(setting, self.stages, self.scaling, cores)
        if not setting.num_workers or self.limit >= made.batches_per_s:
            return made
        return _limited(made, self.limit, SHARED)


def weighed(problem: Problem, known: Sequence[KnownRate], most: int) -> list[Hypothesis]:
    """Return the hypotheses that fit the known rates best, at most `most`, best first."""
    scored = sorted(_scored(problem, known), key=lambda pair: -pair[0])[:most]
    best = scored[0][0]
    kept = [
        (math.exp(score - best), hypothesis) for score, hypothesis in scored if score > best - 4.0
    ]
    total = sum(weight for weight, _ in kept)
    return [replace(hypothesis, weight=weight / total) for weight, hypothesis in kept]


def epoch_rate(
    problem: Problem, made: formula_model.SettingPrediction, batches_per_s: float | None = None
) -> float:
    """Samples per second over an epoch, as in `Measurement.samples_per_s`."""
    each = 1.0 / (made.batches_per_s if batches_per_s is None else batches_per_s)
    setting = made.setting
    pace = Pace(setting.num_workers, each, made.fetch_s, made.taken_s, made.step_s)
    if setting.persistent_workers or not setting.num_workers:
        return epoch_time.rate(pace, problem.samples, problem.batches)
    first, end = made.first_batch_s, made.setup_s - made.first_batch_s
    return epoch_time.rate(pace, problem.samples, problem.batches, first, end)


def turns_rate(workers: int, cores: float, cpu_s: float, wait_s: float) -> float:
    """Batches per second of workers that alternate between waiting and computing on shared cores.

    This is the machine repairman's model (with processor sharing only the means matter). Near
    saturation it is up to 20 % below the bound min(workers / (cpu + wait), cores / cpu), as
    sometimes all workers wait at once.
    """
    if wait_s <= 0 or cpu_s <= 0:
        return min(workers / (cpu_s + wait_s), cores / cpu_s if cpu_s > 0 else math.inf)
    # Logarithms of the weights of 0, 1, ... computing workers, as the weights may be huge.
    logs = [0.0]
    for busy in range(1, workers + 1):
        ratio = (workers - busy + 1) * cpu_s / (wait_s * min(busy, cores))
        logs.append(logs[-1] + math.log(ratio))
    top = max(logs)
    weights = [math.exp(log - top) for log in logs]
    done = sum(min(busy, cores) * weight for busy, weight in enumerate(weights))
    return done / sum(weights) / cpu_s


def _predict(
    setting: Setting, stages: formula_model.Stages, scaling: formula_model.Scaling, cores: float
) -> formula_model.SettingPrediction:
    """The model's prediction, reduced for cores left idle while many workers wait at once."""
    made = formula_model.predict(setting, stages, cores, (scaling,))
    workers = setting.num_workers
    if not workers or not stages.wait_s:
        return made
    wanted = min(workers * stages.cpu_s / (stages.cpu_s + stages.wait_s), cores)
    cpu = stages.cpu_s * scaling.slowdown(wanted)
    rate = turns_rate(workers, cores, cpu, stages.wait_s)
    return made if rate >= made.batches_per_s else _limited(made, rate, "cores")


def _limited(
    made: formula_model.SettingPrediction, rate: float, by: str
) -> formula_model.SettingPrediction:
    return replace(
        made,
        batches_per_s=rate,
        low=min(made.low, rate),
        high=min(made.high, rate),
        bottleneck=by,
    )


def _scored(problem: Problem, known: Sequence[KnownRate]) -> Iterable[tuple[float, Hypothesis]]:
    """Yield (log-likelihood, hypothesis) for all hypotheses."""
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
    """A known setting and what given stages predict for it."""

    known: KnownRate
    made: formula_model.SettingPrediction
    alone: float  # batches per second without training steps
    off: float  # log-likelihood penalty for a deviating CPU time

    @classmethod
    def of(
        cls,
        known: KnownRate,
        stages: formula_model.Stages,
        scaling: formula_model.Scaling,
        problem: Problem,
    ) -> _Shown:
        made = _predict(known.setting, stages, scaling, problem.cores)
        alone, off, seen = made.batches_per_s, 0.0, known.observed
        if seen is not None and known.setting.num_workers:
            if problem.step_s:
                free = replace(stages, step_s=0.0, step_pinned_s=None)
                alone = _predict(known.setting, free, scaling, problem.cores).batches_per_s
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


def _square(ratio: float, error: float) -> float:
    """Half the squared deviation of a ratio from 1, linear for far outliers (Huber)."""
    off = abs(math.log(ratio)) / error
    return 0.5 * off * off if off < 4.0 else 4.0 * off - 8.0


def _scalings(cores: float) -> Iterable[tuple[formula_model.Scaling, float]]:
    if cores <= 1:
        yield formula_model.Scaling(), 1.0
        return
    for loss in LOSSES:
        for coherence in COHERENCES if loss else (0.0,):
            chance = math.exp(-loss) * (1.0 if coherence < 1.0 else 0.3)
            yield formula_model.fit(cores, cores / (1.0 + loss), coherence), chance


def _bases(
    problem: Problem, known: Sequence[KnownRate], scaling: formula_model.Scaling
) -> Iterable[tuple[formula_model.Stages, float]]:
    """Yield (possible costs of a batch, prior likelihood)."""
    seen = {
        known_rate.setting: known_rate.observed
        for known_rate in known
        if known_rate.observed is not None
    }
    if seen:
        yield _observed_stages(problem, seen, scaling), 1.0
        return
    first = min(known, key=lambda known_rate: (known_rate.setting.num_workers, known_rate.setting))
    workers = max(first.setting.num_workers, 1)
    batch = problem.samples / first.rate
    if not first.setting.num_workers:
        batch = max(batch - problem.step_s, 0.05 * batch)
    for share in WAITS:
        # The time of an undisturbed fetch if so many workers make a batch in `batch` seconds.
        wanted = workers * (1.0 - share)
        slow = scaling.slowdown(min(wanted, problem.cores)) * max(wanted / problem.cores, 1.0)
        fetch = batch * workers / ((1.0 - share) * slow + share)
        stages = formula_model.Stages(
            cpu_s=(1.0 - share) * fetch,
            wait_s=share * fetch,
            step_s=problem.step_s,
            step_cores=problem.step_cores,
            fetch_variation=UNEVEN,
        )
        yield stages, 0.3 if share else 1.0


def _observed_stages(
    problem: Problem, seen: Mapping[Setting, Observed], scaling: formula_model.Scaling
) -> formula_model.Stages:
    """The stages observed in the trial with the fewest workers, without contention."""
    setting = min(
        seen, key=lambda setting: (setting.num_workers == 0, setting.num_workers, setting)
    )
    observed, workers = seen[setting], max(setting.num_workers, 1)
    whole = observed.capacity_s * workers
    busy = min(observed.cpu_s / observed.capacity_s, problem.cores)
    cpu = max(observed.cpu_s / scaling.slowdown(busy), 1e-3 * observed.capacity_s)
    wait = max(whole - observed.cpu_s - observed.queued_s, 0.0)
    if wait < LEAST_WAIT * whole:
        wait = 0.0
    gets = [each.get_s for other, each in seen.items() if other.num_workers]
    return formula_model.Stages(
        cpu_s=cpu,
        wait_s=wait,
        get_s=min(gets, default=0.0),
        step_s=problem.step_s,
        step_cores=problem.step_cores,
        fetch_variation=math.hypot(min(observed.variation, 6.0), UNEVEN),
        **_start(problem, seen, cpu + wait),
    )


def _start(problem: Problem, seen: Mapping[Setting, Observed], fetch: float) -> dict[str, float]:
    """Costs of starting and ending workers, from the trials with the fewest and most workers."""
    counts = sorted(
        (setting for setting in seen if setting.num_workers),
        key=lambda setting: setting.num_workers,
    )
    if not counts:
        return USUAL_START
    few, many = counts[0].num_workers, counts[-1].num_workers
    least, most = seen[counts[0]], seen[counts[-1]]
    spawn = most.iter_s / many
    if many > few:
        spawn = min(max((most.iter_s - least.iter_s) / (many - few), 0.0), spawn)
    boot = max(least.startup_s - least.iter_s - fetch, 0.0) / max(few / problem.cores, 1.0)
    return {
        "iter_s": max(least.iter_s - spawn * few, 0.0),
        "spawn_s": spawn,
        "boot_s": boot,
        "shutdown_s": most.shutdown_s / max(many / problem.cores, 1.0),
    }
