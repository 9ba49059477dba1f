"""Settings that differ only in `persistent_workers`: the same loader until an epoch ends.

The rate of one follows from a trial of the other, so noise does not decide between them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from lotus.settings.space import Setting
from lotus.tune.simulation.epoch_time import observed_pace
from lotus.tune.strategies.hypotheses import KnownRate
from lotus.tune.strategies.preference import TIE, cost
from lotus.tune.strategies.problem import Problem

_LEAST_ERROR, _MOST_ERROR = 1e-6, 1e3  # standard deviations of a rate's logarithm


def loader_of(setting: Setting) -> Setting:
    """Return the setting without persistent workers, which represents both twins."""
    return replace(setting, persistent_workers=False)


def twin_of(setting: Setting) -> Setting:
    """Return the setting with the other value of persistent_workers; it must have workers."""
    return replace(setting, persistent_workers=not setting.persistent_workers)


def both(setting: Setting) -> tuple[Setting, ...]:
    """Return a setting and its twin, if it has one."""
    return (setting, twin_of(setting)) if setting.num_workers else (setting,)


def worked_out(known: KnownRate, problem: Problem) -> KnownRate | None:
    """Compute the rate of a setting's twin; None if no trial observed enough."""
    twin, seen = twin_of(known.setting), known.observed
    if problem.batches is None:
        return replace(known, setting=twin)
    if seen is None:
        return None
    epoch_s = problem.batches * problem.samples / known.rate
    each = min(max(seen.capacity_s, problem.step_s + seen.get_s), epoch_s / problem.batches)
    pace = observed_pace(twin.num_workers, each, seen, problem.step_s)
    kept = pace.epoch_s(problem.batches)
    saved = pace.epoch_s(problem.batches, seen.startup_s, seen.shutdown_s) - kept
    if twin.persistent_workers:
        other = max(epoch_s - max(saved, 0.0), min(kept, epoch_s) / 2)  # both are noisy
    else:
        other = epoch_s + max(saved, 0.0)
    return replace(known, setting=twin, rate=problem.batches * problem.samples / other)


def better(twins: Iterable[KnownRate]) -> KnownRate:
    """Return the faster twin of one loader; in a tie the one without persistent workers."""
    twins = list(twins)
    settings = dict.fromkeys(twin.setting for twin in twins)
    known = [_together([twin for twin in twins if twin.setting == setting]) for setting in settings]
    most = max(twin.rate for twin in known)
    return min((o for o in known if o.rate >= (1.0 - TIE) * most), key=lambda o: cost(o.setting))


def _together(some: list[KnownRate]) -> KnownRate:
    """Combine the measured and computed rates of one setting, weighted by their precision."""
    # A rate with an unlimited error still counts if there is no other.
    weights = [min(max(known.error, _LEAST_ERROR), _MOST_ERROR) ** -2 for known in some]
    log = sum(w * math.log(known.rate) for w, known in zip(weights, some, strict=True)) / sum(
        weights
    )
    return replace(some[0], rate=math.exp(log), error=sum(weights) ** -0.5)
