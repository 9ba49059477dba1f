"""Estimates the rate of every setting from trials of some: a Gaussian process over settings.

The logarithm of a rate is what the roofline expects (roofline.py), plus a deviation. Deviations of
settings that are alike are alike: trials of one inform about the other, and noise averages out over
neighbours. How alike they are is assumed here and not fitted, because there are few trials.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lotus.common.numbers.array_types import Floats
from lotus.common.torch_defaults import TORCH_PREFETCH
from lotus.settings.space import Setting
from lotus.tune.strategies.known_rate import KnownRate
from lotus.tune.strategies.problem import Problem
from lotus.tune.strategies.roofline import Roofline

# Standard deviations of the natural logarithm of a rate.
_WORKERS = 0.6  # by the number of workers
_NONE = 0.3  # between any workers and none, which send nothing to another process
_PREFETCH = 0.06  # by the prefetch factor
_PERSISTENT = 0.06  # by persistent workers, where trials did not show what the start takes
# By another value of a parameter that the roofline does not know. Threads that fight for the cores
# make batches several times as slow.
OTHERS = {"pin_memory": 0.05, "start_method": 0.05, "in_order": 0.05, "threads": 0.7}
_ITSELF = 0.03  # of each setting by itself
# How far a trial informs.
_WORKERS_FAR = 1.5  # doublings of workers
_DETAILS_FAR = 1.0  # doublings of workers, for what else differs
_PREFETCH_FAR = 1.5  # doublings of the prefetch factor
_LEAST_ERROR, _MOST_ERROR = 1e-3, 1e3


@dataclass(frozen=True)
class RateEstimate:
    """The estimated logarithm of each setting's rate; its covariance has a row per setting."""

    mean: Floats
    covariance: Floats

    def error(self, place: int) -> float:
        """Return the standard deviation of one of them."""
        return math.sqrt(max(float(self.covariance[place, place]), 0.0))

    def difference_error(self, place: int, other: int) -> float:
        """Return the standard deviation of the difference of two of them."""
        of = self.covariance
        variance = of[place, place] + of[other, other] - 2 * of[place, other]
        return math.sqrt(max(float(variance), 1e-12))


class RateModel:
    """The estimates for a fixed list of settings."""

    def __init__(self, problem: Problem, settings: Sequence[Setting]) -> None:
        self._problem = problem
        self.settings = tuple(settings)
        self.place = {setting: number for number, setting in enumerate(self.settings)}
        self._prior = _covariance(self.settings)

    def estimate(self, known: Sequence[KnownRate]) -> RateEstimate:
        """Return the estimates given the rates of at least one of the settings."""
        roofline = Roofline(self._problem, known)
        expected = np.array([roofline.log_rate(setting) for setting in self.settings])
        at = [self.place[rate.setting] for rate in known]
        errors = np.array([min(max(rate.error, _LEAST_ERROR), _MOST_ERROR) for rate in known])
        apart = np.array([math.log(rate.rate) for rate in known]) - expected[at]
        inverse = np.linalg.inv(self._prior[np.ix_(at, at)] + np.diag(errors**2))
        weights = inverse @ self._prior[at]
        # How far all are off together is not known before: it is estimated, and its error counts.
        total = float(inverse.sum())
        offset = float((inverse @ apart).sum()) / total
        left = 1.0 - weights.sum(axis=0)
        covariance = self._prior - self._prior[at].T @ weights + np.outer(left, left) / total
        return RateEstimate(expected + offset + (apart - offset) @ weights, covariance)


def _covariance(settings: Sequence[Setting]) -> Floats:
    """Return the covariance of the deviations before any trial."""

    def apart(values: Sequence[Any]) -> Floats:
        column = np.array(values, np.float64)
        return np.abs(column[:, None] - column[None])

    workers = apart([math.log2(setting.num_workers + 0.5) for setting in settings])
    prefetch = apart([math.log2(setting.prefetch_factor or TORCH_PREFETCH) for setting in settings])
    both = apart([setting.num_workers == 0 for setting in settings]) == 0
    persistent = apart([setting.persistent_workers for setting in settings]) == 0
    near = np.exp(-workers / _DETAILS_FAR) * both
    far = math.sqrt(3) * workers / _WORKERS_FAR
    sums = _WORKERS**2 * (1 + far) * np.exp(-far) + _NONE**2 * both
    sums += near * _PREFETCH**2 * np.exp(-prefetch / _PREFETCH_FAR)
    sums += near * _PERSISTENT**2 * persistent
    for name, deviation in OTHERS.items():
        values = [getattr(setting, name) for setting in settings]
        codes = {value: code for code, value in enumerate(dict.fromkeys(values))}
        if len(codes) > 1:
            sums += deviation**2 * (apart([codes[value] for value in values]) == 0)
    covariance: Floats = sums + _ITSELF**2 * np.eye(len(settings))
    return covariance
