"""Settings that differ only in `persistent_workers`: the same loader until an epoch ends.

The rate of one follows from a trial of the other, so noise does not decide between them.
"""

from __future__ import annotations

from dataclasses import replace

from lotus.settings.space import Setting
from lotus.tune.simulation.epoch_time import observed_pace
from lotus.tune.strategies.known_rate import KnownRate
from lotus.tune.strategies.problem import Problem


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
