"""Fewer threads of torch in the training process: what to try, and what to choose.

A step with as many threads as there are cores waits for its slowest thread, and workers keep the
cores of some of them busy. Trials cannot show what fewer threads gain, because nobody knows what
the step takes with them: only the program's own steps can.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from lotus.settings.space import Measurement, Setting
from lotus.tune.program.program import Watched
from lotus.tune.search import search_notes
from lotus.tune.search.decision import is_faster
from lotus.tune.search.default_space import step_of
from lotus.tune.search.result import Result
from lotus.tune.search.trial_rates import Checked
from lotus.tune.strategies.preference import TIE

_THREADED = 1.1  # cores kept busy by a step, alone, from which it counts as multi-threaded
_HELPERS = 0.2  # or share of its CPU time in other threads, where others keep it from the cores
_EQUAL = 1.05  # rates of loaders alone that count as equal


class Compares(Protocol):
    """The part of `lotus.tune.search.stretches.Stretches` that is needed here."""

    def compared(self, setting: Setting, other: Setting | None = None) -> Checked | None: ...


def variants(result: Result) -> tuple[Setting, ...]:
    """Return settings with fewer torch threads, the most promising first.

    They are the setting with workers that may feed the program best and its own one, each with the
    cores that its workers leave, and with one thread.
    """
    watched = result.watched
    if not _is_threaded(watched) or result.untried or result.failure:
        return ()
    settings = [result.own.normal()]
    busy = _with_workers(result)
    if busy is not None:
        settings.insert(0, busy.normal())
    cores = int(result.cores)
    counts = [[max(cores - setting.num_workers, 1) for setting in settings], [1] * len(settings)]
    settings_with_fewer = [
        dataclasses.replace(setting, torch_threads=threads)
        for row in counts
        for setting, threads in zip(settings, row, strict=True)
        if threads < watched.threads
    ]
    return tuple(dict.fromkeys(settings_with_fewer))


def _is_threaded(watched: Watched) -> bool:
    """Whether several threads compute in a step."""
    if watched.threads < 2:
        return False
    spent = sum(watched.step_cpu_s) + sum(watched.alone_cpu_s)
    return step_of(watched)[1] > _THREADED or watched.helpers_s > _HELPERS * spent


def _with_workers(result: Result) -> Setting | None:
    """The best setting with workers, if the step leaves them cores; None if none was measured."""
    if result.best.num_workers:
        return result.best
    step_s, busy = step_of(result.watched)
    trials: dict[Setting, tuple[float, float]] = {}
    for row in result.measured:
        trial = row.measurement
        if trial.setting.num_workers and trial.observed is not None and not trial.failed:
            threads = max(int(result.cores) - trial.setting.num_workers, 1)
            trials[trial.setting] = _batch_s(trial, step_s, busy, threads, result.cores)
    if not trials:
        return None
    least = min(batch_s for batch_s, _ in trials.values())
    alike = {setting: alone for setting, (s, alone) in trials.items() if s <= least * (1 + TIE)}
    # The step is an estimate and may be shorter: prefer loaders that would feed that one too.
    quick = min(alike.values()) * _EQUAL
    return min(setting for setting, alone in alike.items() if alone <= quick)


def _batch_s(
    trial: Measurement, step_s: float, busy: float, threads: int, cores: float
) -> tuple[float, float]:
    """Seconds per batch if the step scales with its threads; those of the loader alone."""
    assert trial.observed is not None
    work_s = step_s * busy
    alone = trial.observed.capacity_s
    shared_s = (trial.observed.cpu_s + work_s) / cores
    return max(alone, max(step_s, work_s / threads), shared_s), alone


def with_best(result: Result, comparison: Compares, tried: Sequence[Setting]) -> Result:
    """Return the result with the best of the tried settings with fewer torch threads.

    One is chosen if it is faster than the own setting and than the result's, each over the whole
    interval. Of those that are about equally fast, the cheapest is chosen.
    """
    shown = [comparison.compared(setting) for setting in tried]
    measured = [each for each in shown if each is not None]
    if not measured:
        return result
    notes = tuple(text for text in result.notes if text != result.slowed_step)
    result = dataclasses.replace(result, threads_checked=tuple(measured), notes=notes)
    faster = [each for each in measured if is_faster(each.speedup)]
    if result.best.normal() != result.own.normal():
        without = result.checked
        faster = [
            each
            for each in faster
            if without is not None and _beats(comparison, each.setting, without.setting)
        ]
    if not faster:
        return result
    least = max(each.speedup.mean for each in faster) * (1 - TIE)
    return _chosen(
        result, min((each for each in faster if each.speedup.mean >= least), key=_preference)
    )


def _preference(checked: Checked) -> tuple[Setting, int]:
    """A sort key: the cheapest loader first, then the fewest threads taken away."""
    setting = checked.setting
    return dataclasses.replace(setting, torch_threads=None), -(setting.torch_threads or 0)


def _beats(comparison: Compares, setting: Setting, other: Setting) -> bool:
    shown = comparison.compared(setting, other)
    return shown is not None and is_faster(shown.speedup)


def _chosen(result: Result, checked: Checked) -> Result:
    best, own = checked.setting, result.own.normal()
    random = search_notes.augmentations(best, own, result.watched.iterable)
    before = search_notes.augmentations(result.best.normal(), own, result.watched.iterable)
    kept = [text for text in result.notes if text not in (random, before)]
    sums = search_notes.torch_threads(best, result.watched.threads)
    return dataclasses.replace(
        result,
        best=best,
        checked=checked,
        speedup=checked.speedup,
        predicted=None,
        benefit=True,
        notes=tuple(text for text in (sums, random, *kept) if text),
    )
