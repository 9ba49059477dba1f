"""Predicts the rate of every setting from few trials, with bounds.

The prediction averages over all hypotheses (hypotheses.py) that fit the measurements, so bounds are
wide where the measurements leave much open. Residuals that no hypothesis explains are carried over
from measured settings to those with about as many workers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from lotus.settings.space import Setting
from lotus.tune.simulation import formula_model
from lotus.tune.strategies.hypotheses import MODEL_ERROR, KnownRate, epoch_rate, weighed
from lotus.tune.strategies.problem import Problem

KEPT = 24  # hypotheses that are kept until the next trial
# Standard deviations of the natural logarithm of a rate.
FAR_ERROR = 0.06  # for each doubling of workers from a measured setting
PREFETCH_ERROR = 0.015  # for another prefetch factor
OTHER_ERROR = 0.05  # for another value of a parameter that the model does not cover
OTHERS = ("pin_memory", "start_method", "in_order", "threads")
BEYOND = 0.1  # exponent of the loss from more computing workers than cores
UNSENT = 1.3  # possible gain of not sending batches to another process, which no trial shows
CONSUMER = 1.01  # relative uncertainty of the training step's rate


@dataclass(frozen=True)
class Guess:
    """The predicted rate of a setting over an epoch in samples/s, with bounds of about 95 %."""

    rate: float
    low: float
    high: float


class Estimate:
    """Predictions for every setting from the known rates. Raises ValueError without one.

    `worked_out` are rates computed from known ones, which do not inform the predictions.
    """

    def __init__(
        self, problem: Problem, known: Iterable[KnownRate], worked_out: Iterable[KnownRate] = ()
    ) -> None:
        self.problem = problem
        self.known = {rate.setting: rate for rate in known}
        if not self.known:
            raise ValueError("nothing was measured")
        self.hypotheses = weighed(problem, list(self.known.values()), KEPT)
        self._guesses: dict[Setting, Guess] = {}
        for rate in worked_out:
            self.known.setdefault(rate.setting, rate)
        self._shown = {setting: self._rates(setting) for setting in self.known}
        self._residuals = {
            setting: math.log(rate.rate) - self._mean(self._shown[setting])
            for setting, rate in self.known.items()
        }

    def guess(self, setting: Setting) -> Guess:
        """Return the predicted rate of a setting, or its known rate."""
        setting = setting.normal()
        if setting not in self._guesses:
            self._guesses[setting] = self._guess(setting)
        return self._guesses[setting]

    def prediction(self, setting: Setting) -> formula_model.SettingPrediction:
        """Return the prediction of the best hypothesis, corrected by the residuals."""
        setting = setting.normal()
        made = self.hypotheses[0].predict(setting, self.problem.cores)
        rate = made.batches_per_s * math.exp(self._carried(setting))
        guess = self.guess(setting)
        return replace(
            made,
            batches_per_s=rate,
            low=rate * min(guess.low / guess.rate, 1.0),
            high=rate * max(guess.high / guess.rate, 1.0),
        )

    def _guess(self, setting: Setting) -> Guess:
        if setting in self.known:
            known = self.known[setting]
            spread = math.exp(2.0 * known.error)
            return Guess(known.rate, known.rate / spread, known.rate * spread)
        logs = self._rates(setting)
        rate = math.exp(self._mean(logs) + self._carried(setting) - self._beyond(setting))
        error = min(self._error(setting, logs, other) for other in self.known)
        high = rate * math.exp(2.0 * error) * (1.0 if setting.num_workers else UNSENT)
        if self.problem.step_s:
            # No loader makes the step faster. Pinning may, but the model does not cover it.
            high = max(min(high, CONSUMER * self.problem.samples / self.problem.step_s), rate)
        return Guess(rate, rate * math.exp(-2.0 * error), high)

    def _beyond(self, setting: Setting) -> float:
        """The loss (logarithm) from more computing workers than cores."""
        stages = self.hypotheses[0].stages
        computing = setting.num_workers * stages.cpu_s / (stages.cpu_s + stages.wait_s)
        return BEYOND * math.log(max(computing / self.problem.cores, 1.0))

    def _error(self, setting: Setting, logs: list[float], other: Setting) -> float:
        """The error of the predicted ratio to a measured setting, as a logarithm.

        It includes differences between hypotheses, except those common to both settings, and an
        allowance for all hypotheses being wrong.
        """
        ratios = [log - shown for log, shown in zip(logs, self._shown[other], strict=True)]
        mean = self._mean(ratios)
        variance = sum(
            hypothesis.weight * (ratio - mean) ** 2
            for hypothesis, ratio in zip(self.hypotheses, ratios, strict=True)
        )
        strange = sum(getattr(setting, name) != getattr(other, name) for name in OTHERS)
        return math.hypot(
            math.sqrt(variance),
            FAR_ERROR * abs(_distance(setting, other)),
            PREFETCH_ERROR * (setting.prefetch_factor != other.prefetch_factor),
            OTHER_ERROR * strange,
            self.known[other].error,
        )

    def _rates(self, setting: Setting) -> list[float]:
        """The logarithms of the rates that the hypotheses predict."""
        problem = self.problem
        return [
            math.log(epoch_rate(problem, hypothesis.predict(setting, problem.cores)))
            for hypothesis in self.hypotheses
        ]

    def _mean(self, values: list[float]) -> float:
        return sum(
            hypothesis.weight * v for hypothesis, v in zip(self.hypotheses, values, strict=True)
        )

    def _carried(self, setting: Setting) -> float:
        """The mean residual (logarithm) of measured settings, weighted by their similarity."""
        total = weights = 0.0
        for other, residual in self._residuals.items():
            strange = sum(getattr(setting, name) != getattr(other, name) for name in OTHERS)
            near = math.exp(-2.0 * abs(_distance(setting, other)) - strange)
            weight = near / (MODEL_ERROR**2 + self.known[other].error ** 2)
            total += weight * residual
            weights += weight
        return total / (weights + 0.25 / MODEL_ERROR**2)


def _distance(setting: Setting, other: Setting) -> float:
    """The number of doublings of workers between two settings."""
    return math.log2((setting.num_workers + 0.5) / (other.num_workers + 0.5))
