"""Checks the result of a search in real training, alternating with the program's own setting.

Trials emulate the program's step: they know its duration, but not its effect on caches and memory.
The check uses the real step, on batches that the program would train on anyway.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from lotus.settings.space import Setting
from lotus.tune.program.program import TrialError
from lotus.tune.search.check import torch_threads
from lotus.tune.search.check.checked_result import judged, promising, without_check
from lotus.tune.search.check.stretches import Stretches, Trains, affordable, fitting
from lotus.tune.search.outcome import search_notes
from lotus.tune.search.outcome.result import Result


def check(
    result: Result,
    program: Trains,
    seconds: float,
    on_stretch: Callable[[Setting], object] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Result:
    """Check a result in the program's own training for `seconds`, and return it updated.

    If the check does not show that the setting is faster, the result recommends the program's own
    setting. Where the step's threads may compete with workers, fewer threads of torch are tried
    too, also if the result recommends the own setting; else such a result is returned unchanged. If
    the check is not possible, a note says so. `on_stretch` is called with each setting before the
    program trains with it.
    """
    why = _unchecked(result, seconds)
    if why:
        return without_check(result, why)
    watched, own = program.watched, result.own.normal()
    settings = [own]
    if result.best.normal() != own:
        settings.insert(0, fitting(result.best.normal(), own, watched))
    elif result.left_open is not None:
        settings.insert(0, fitting(result.left_open.setting, own, watched))
    variants = [fitting(setting, own, watched) for setting in torch_threads.variants(result)]
    settings = affordable(settings, variants, watched, seconds)
    if len(settings) < 2:
        return result
    single = dataclasses.replace(own, torch_threads=1)
    spared = torch_threads.leaving_a_core(result)
    spared = None if spared is None else fitting(spared, own, watched)
    # The step's time on one thread gives the number of workers that it needs.
    settings.sort(key=lambda setting: setting.torch_threads is not None and setting != single)
    comparison = Stretches(settings, own, program, seconds, clock)
    why, stopped = "", False

    def measured(setting: Setting) -> None:
        step_s = comparison.step_s(setting)
        if setting != single or step_s is None:
            return
        for other in comparison.untried():
            if other.num_workers and other.torch_threads == 1 and other != spared:
                better = torch_threads.with_known_step(result, other, step_s)
                comparison.replace(other, fitting(better, own, watched))

    try:
        comparison.run(on_stretch, measured)
    except TrialError as error:
        why = str(error)
    except KeyboardInterrupt:
        stopped = True
    checked = comparison.compared(settings[0]) if settings[0] != own else None
    if result.best.normal() != own:
        if checked is None:
            why = why or comparison.refused.get(settings[0], "") or search_notes.FEW_LEFT
            reason = program.problem or ("interrupted" if stopped else why)
            result = without_check(result, reason)
        else:
            result = judged(result, checked)
    elif checked is not None:
        result = promising(result, checked)
    tried = [setting for setting in comparison.timings if setting.torch_threads is not None]
    result = torch_threads.with_best(result, comparison, tried)
    if program.problem and comparison.beyond_epoch():
        result = dataclasses.replace(result, notes=(*result.notes, search_notes.BEYOND_EPOCH))
    return dataclasses.replace(result, interrupted=stopped and not program.problem)


def _unchecked(result: Result, seconds: float) -> str:
    """Return why a result is not checked, or "" if it is."""
    if result.interrupted:
        return "interrupted"
    if result.objective != "train":
        return f"--objective {result.objective} leaves out the step"
    return "--check 0s" if seconds <= 0 else ""
