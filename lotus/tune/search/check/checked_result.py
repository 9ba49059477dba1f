"""Updates the result of a search by what the program's own steps showed."""

from __future__ import annotations

import dataclasses

from lotus.settings.space import Setting
from lotus.tune.search.outcome import search_notes
from lotus.tune.search.outcome.decision import is_faster, may_gain
from lotus.tune.search.outcome.result import Result
from lotus.tune.search.trials.trial_rates import Checked, Speedup


def judged(result: Result, checked: Checked) -> Result:
    """Return the result updated by the comparison in the program's own steps.

    The whole interval of a setting must lie above 1 for it to be recommended.
    """
    trials, shown = result.speedup, checked.speedup
    result = dataclasses.replace(result, checked=checked)
    if is_faster(shown):
        return result if trials is not None else _by_check(result, shown)
    if trials is None:
        return _refused(result, _note_unless_undecided(result.best, checked))
    if shown.high < trials.low:
        return _refused(result, [search_notes.refuted(result.best, trials, checked)])
    note = search_notes.not_shown(result.best, trials, checked, in_verdict=may_gain(shown))
    return _refused(result, [note])


def without_check(result: Result, why: str) -> Result:
    """Return the result with a note on why the program's own steps could not be measured.

    Trials alone are enough for a recommendation only if they compared it with the own setting.
    """
    if result.best.normal() == result.own.normal():
        return result
    if result.speedup is None:
        return _refused(result, [search_notes.nothing_shown(result.best, why)])
    return dataclasses.replace(result, notes=(search_notes.not_checked(why), *result.notes))


def _by_check(result: Result, shown: Speedup) -> Result:
    return dataclasses.replace(result, speedup=shown, benefit=True)


def _refused(result: Result, why: list[str]) -> Result:
    """Return the result with the program's own setting as the recommendation."""
    watched = result.watched
    of_best = search_notes.augmentations(
        result.best.normal(), result.own.normal(), watched.iterable
    )
    return dataclasses.replace(
        result,
        best=result.own,
        speedup=Speedup(1.0, 1.0, 1.0, 0),
        benefit=False,
        notes=(*why, *(text for text in result.notes if text != of_best)),
    )


def _note_unless_undecided(tried: Setting, checked: Checked) -> list[str]:
    """Return a note on a setting that the check refuted; none if the verdict leaves it open."""
    if may_gain(checked.speedup):
        return []
    return [search_notes.refuted(tried, None, checked)]


def promising(result: Result, checked: Checked) -> Result:
    """Return the result updated by the comparison of the setting that trials had left open."""
    if is_faster(checked.speedup):
        return chosen(result, checked)
    why = _note_unless_undecided(checked.setting, checked)
    return dataclasses.replace(result, checked=checked, notes=(*why, *_without_doubt(result)))


def chosen(result: Result, checked: Checked) -> Result:
    """Return the result with a setting that only the program's own steps showed to be faster."""
    best, own = checked.setting, result.own.normal()
    random = search_notes.augmentations(best, own, result.watched.iterable)
    before = search_notes.augmentations(result.best.normal(), own, result.watched.iterable)
    kept = [text for text in _without_doubt(result) if text not in (random, before)]
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


def _without_doubt(result: Result) -> list[str]:
    """Return the notes without the one on the setting that trials left open."""
    if result.left_open is None:
        return list(result.notes)
    return [text for text in result.notes if text != result.left_open.note]
