"""Fewer threads of torch in the training process: settings to try, and the choice.

A step with as many threads as there are cores waits for its slowest thread, and workers keep the
cores of some of them busy. Trials cannot show what fewer threads gain, because nobody knows what
the step takes with them: only the program's own steps can.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from lotus.common.torch_defaults import TORCH_PREFETCH
from lotus.settings.space import Measurement, Observed, Setting
from lotus.tune.program.program import Watched
from lotus.tune.search.check.checked_result import chosen
from lotus.tune.search.default_space import step_of
from lotus.tune.search.outcome.decision import is_faster
from lotus.tune.search.outcome.result import Result
from lotus.tune.search.trials.trial_rates import Checked
from lotus.tune.strategies.preference import TIE

_THREADED = 1.1  # cores kept busy by a step, alone, from which it counts as multi-threaded
_HELPERS = 0.2  # or share of its CPU time in other threads, if others keep it from the cores
_BESIDE = 1.5  # times as long a batch may be computed to take with a worker fewer
_EQUAL = 1.05  # rates of loaders alone that count as equal
_COMPUTES = 0.5  # share of a worker's time, without waits for a core, from which it computes


class Compares(Protocol):
    """The part of `lotus.tune.search.check.stretches.Stretches` that is needed here."""

    def compared(self, setting: Setting) -> Checked | None: ...


def variants(result: Result) -> tuple[Setting, ...]:
    """Return settings with fewer torch threads, the most promising first.

    They are the setting with workers that may feed the program best and its own one, each with the
    cores that its workers leave, and with one thread (see also `with_known_step`), then
    `leaving_a_core`.
    """
    watched = result.watched
    if not is_threaded(watched) or result.untried or result.failure:
        return ()
    own, busy = result.own.normal(), _with_workers(result)
    settings = [own] if busy is None else [busy.normal(), own]
    if busy is not None and busy.threads != own.threads:
        settings.remove(own)  # threads of its workers compete, whatever the step has
    cores = int(result.cores)
    counts = [[max(cores - setting.num_workers, 1) for setting in settings], [1] * len(settings)]
    settings_with_fewer = [
        dataclasses.replace(setting, torch_threads=threads)
        for row in counts
        for setting, threads in zip(settings, row, strict=True)
        if threads < watched.threads
    ]
    spared = leaving_a_core(result)
    return tuple(dict.fromkeys((*settings_with_fewer, *([] if spared is None else [spared]))))


def leaving_a_core(result: Result) -> Setting | None:
    """Return the setting whose workers leave a core to a step of one thread, if it may be best.

    That is one with a worker fewer, where the setting with workers that may feed the program best
    has a worker per core. Nobody can compute which of the two is faster: processes that share
    caches, or cores with a hypervisor, make less than their cores promise. None if the fewer
    workers are too slow for the step.
    """
    watched, cores, busy = result.watched, int(result.cores), _with_workers(result)
    seen = _loaders(result).get(busy.normal()) if busy is not None else None
    if busy is None or seen is None or busy.num_workers != cores or cores < 2:
        return None
    fewer = dataclasses.replace(busy.normal(), num_workers=cores - 1)
    step_s, step_cores = step_of(watched)
    of_fewer, of_busy = (
        _batch_s(setting, observed, watched, result.cores, step_s * step_cores)[0]
        for setting, observed in ((fewer, _scaled(seen, cores, cores - 1)), (busy, seen))
    )
    if of_fewer > _BESIDE * of_busy:
        return None
    return dataclasses.replace(fewer, torch_threads=1)


def is_threaded(watched: Watched) -> bool:
    """Return whether several threads compute in a step."""
    if watched.threads < 2:
        return False
    spent = sum(watched.step_cpu_s) + sum(watched.alone_cpu_s)
    return step_of(watched)[1] > _THREADED or watched.helpers_s > _HELPERS * spent


def worth_a_trial(
    watched: Watched,
    own: Setting,
    trials: Sequence[Measurement],
    workers: Iterable[int],
    cores: float,
) -> Setting | None:
    """Return the setting with workers that would feed a step with fewer threads best.

    Trials have torch's threads as they are, beside which each further worker may lose more than it
    gains, so the search may end before this setting. None if the best one was tried, or if `trials`
    do not show what a batch costs. `workers` are the numbers that may be tried, `own` the program's
    setting as the search has it, with the threads of workers that were best.
    """
    tried = {trial.setting.normal(): trial for trial in trials}
    shown = [
        trial
        for trial in trials
        if trial.observed is not None and not trial.failed and trial.setting.threads == own.threads
    ]
    if not is_threaded(watched) or not shown:
        return None
    like = min(shown, key=lambda trial: (trial.setting.num_workers == 0, trial.setting))
    loaders: dict[Setting, Observed] = {}
    for count in workers:
        setting = _with(own, like.setting, count).normal()
        trial = tried.get(setting)
        if trial is None:
            assert like.observed is not None
            loaders[setting] = _scaled(like.observed, like.setting.num_workers, count)
        elif trial.observed is not None and not trial.failed:
            loaders[setting] = trial.observed
    step_s = min((*watched.alone_s, *watched.steps_s))  # the least disturbed one
    best = _feeding_best(loaders, watched, cores, step_s=step_s)
    return None if best is None or best in tried else best


def with_known_step(result: Result, setting: Setting, step_s: float) -> Setting:
    """Return a setting with workers and fewer threads, with the workers that feed its step best.

    `step_s` is what the program's own step takes with so many threads: on a busy machine nobody can
    tell that from steps with more of them, which then wait for each other.
    """
    best = _feeding_best(_loaders(result), result.watched, result.cores, setting, step_s)
    return (
        setting if best is None else dataclasses.replace(best, torch_threads=setting.torch_threads)
    )


def _with(own: Setting, like: Setting, workers: int) -> Setting:
    """Return the own setting with so many workers, and with the prefetching of `like`."""
    prefetch = own.prefetch_factor or like.prefetch_factor or TORCH_PREFETCH
    return dataclasses.replace(own, num_workers=workers, prefetch_factor=prefetch)


def _scaled(seen: Observed, before: int, workers: int) -> Observed:
    """Return what a trial with `workers` would show if none had to wait for a core."""
    count = max(before, 1)
    alone_s = _alone_s(seen, count) * count / workers
    return dataclasses.replace(seen, capacity_s=max(alone_s, 1e-9), queued_s=0.0)


def _with_workers(result: Result) -> Setting | None:
    """Return the best setting with workers, if the step leaves them cores; None: none measured."""
    best, measured = result.best.normal(), _measured(result)
    if best in measured:
        best = _within_cores(best, measured[best], result.cores)
    elif best.num_workers:
        return best
    return _feeding_best(_loaders(result), result.watched, result.cores, best)


def _loaders(result: Result) -> dict[Setting, Observed]:
    """Return the results of settings with workers, with at most a core for each that computes.

    More workers take cores from other programs, which looks like a gain while these run.
    """
    measured = _measured(result)
    loaders: dict[Setting, Observed] = {}
    for setting in sorted(measured):  # of several with too many workers, the nearest one counts
        fitting = _within_cores(setting, measured[setting], result.cores)
        if fitting in measured:
            loaders[fitting] = measured[fitting]
        elif fitting not in loaders:
            count = fitting.num_workers
            loaders[fitting] = _scaled(measured[setting], setting.num_workers, count)
    return loaders


def _measured(result: Result) -> dict[Setting, Observed]:
    """Return the results of settings with workers."""
    trials = [row.measurement for row in result.measured]
    return {
        trial.setting.normal(): trial.observed
        for trial in trials
        if trial.setting.num_workers and trial.observed is not None and not trial.failed
    }


def _within_cores(setting: Setting, seen: Observed, cores: float) -> Setting:
    """Return the setting with a worker per core, if it has more and they mostly compute."""
    most, count = max(int(cores), 1), setting.num_workers
    if count <= most or seen.cpu_s < _COMPUTES * _alone_s(seen, count) * count:
        return setting
    return dataclasses.replace(setting, num_workers=most)


def _feeding_best(
    loaders: Mapping[Setting, Observed],
    watched: Watched,
    cores: float,
    preferred: Setting | None = None,
    step_s: float | None = None,
) -> Setting | None:
    """Return the setting with workers that feeds the step best, which takes `step_s` on one thread.

    Without that it is taken to scale with its threads. Of settings that are about equal it is the
    preferred one, or else the cheapest.
    """
    if not loaders:
        return None
    batches = {
        setting: _batch_s(setting, seen, watched, cores, step_s)
        for setting, seen in loaders.items()
    }
    least = min(batch_s for batch_s, _ in batches.values()) * (1 + TIE)
    alike = {setting: alone for setting, (batch_s, alone) in batches.items() if batch_s <= least}
    if preferred is not None:
        same = dataclasses.replace(preferred, torch_threads=None)
        if same in alike:
            return same
    if step_s is not None:
        return min(alike)
    # The step is an estimate and may be shorter: prefer loaders that would feed that one too.
    quick = min(alike.values()) * _EQUAL
    return min(setting for setting, alone in alike.items() if alone <= quick)


def _batch_s(
    setting: Setting, seen: Observed, watched: Watched, cores: float, one_thread_s: float | None
) -> tuple[float, float]:
    """Return (seconds per batch, those of the loader alone)."""
    if one_thread_s is not None:
        alone = _alone_s(seen, setting.num_workers)
        return max(alone, one_thread_s, (seen.cpu_s + one_thread_s) / cores), alone
    step_s, busy = step_of(watched)
    threads = max(int(cores) - setting.num_workers, 1)
    work_s = step_s * busy
    shared_s = (seen.cpu_s + work_s) / cores
    return max(seen.capacity_s, step_s, work_s / threads, shared_s), seen.capacity_s


def _alone_s(seen: Observed, workers: int) -> float:
    """Return seconds per batch of so many workers if none had to wait for a core."""
    return max(seen.capacity_s * workers - seen.queued_s, seen.cpu_s) / workers


def with_best(result: Result, comparison: Compares, tried: Sequence[Setting]) -> Result:
    """Return the result with the best of the tried settings with fewer torch threads.

    One is chosen only if it is faster than the own setting over the whole interval. Of several such
    settings, the result's own choice among them, the one whose interval begins highest is chosen,
    or a cheaper one that is about as fast.
    """
    shown = [comparison.compared(setting) for setting in tried]
    measured = [each for each in shown if each is not None]
    if not measured:
        return result
    notes = tuple(text for text in result.notes if text != result.slowed_step)
    result = dataclasses.replace(result, threads_checked=tuple(measured), notes=notes)
    faster = [each for each in measured if is_faster(each.speedup)]
    if not faster:
        return result
    as_they_are = result.best.normal() != result.own.normal()
    if as_they_are and result.checked is not None:
        faster.append(result.checked)
    leader = max(faster, key=lambda each: each.speedup.low).speedup
    alike = [
        each
        for each in faster
        if each.speedup.low >= leader.low * (1 - TIE)
        and each.speedup.mean >= leader.mean * (1 - TIE)
    ]
    best = min(alike, key=_preference)
    return result if best is result.checked else chosen(result, best)


def _preference(checked: Checked) -> tuple[Setting, bool, int]:
    """Return a sort key: the cheapest loader first, then the fewest threads taken away."""
    threads = checked.setting.torch_threads
    loader = dataclasses.replace(checked.setting, torch_threads=None)
    return loader, threads is not None, -(threads or 0)
