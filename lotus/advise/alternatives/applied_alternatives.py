"""Alternatives that `lotus run` can apply: those that are measured in training, and kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from lotus.advise.alternatives.tried_alternatives import WORTH, Alternatives
from lotus.advise.ceilings.ceilings import ALL, EXACT, Ceilings
from lotus.inside.common import alternative_files
from lotus.settings import tuned_file
from lotus.settings.tuned_file import AlternativeUse, Entry, Tuned
from lotus.tune.search.trials.trial_rates import Speedup


def choices(names: Sequence[str] | None = None) -> dict[str, list[str]]:
    """Return the names by kind; those that may change values come first in all of them.

    Only those in `names`, unless it is None.
    """
    wanted = [name for name in alternative_files.names() if names is None or name in names]
    modules = {name: alternative_files.load(name) for name in wanted}
    known = {name: each.EXACT for name, each in modules.items() if hasattr(each, "stand_ins")}
    exact = [name for name in known if known[name]]
    return {EXACT: exact, ALL: [*(name for name in known if not known[name]), *exact]}


def gain(result: Ceilings, kind: str) -> Speedup | None:
    """Return the speed with alternatives over that without, where it was shown to be higher.

    No alternative gains where data that is always ready does not.
    """
    shown = result.over(kind)
    if shown is None or not shown.shows(WORTH) or beyond_ceiling(result):
        return None
    return shown


def beyond_ceiling(result: Ceilings) -> bool:
    """Return whether no gain is to be expected: the loop's ceiling is not told from no gain."""
    return result.speedup is not None and not result.speedup.is_significant


def uses(result: Ceilings, others: Alternatives) -> tuple[AlternativeUse, ...]:
    """Return what was shown to make the program's own training faster."""
    exact, both = gain(result, EXACT), gain(result, ALL)
    if both is not None and exact is not None and exact.mean >= both.mean:
        both = None  # alternatives that may change values gain nothing more
    kinds = {each.name: each.exact for each in others.tried if each.applicable}
    return tuple(
        AlternativeUse(name, is_exact)
        for name, is_exact in kinds.items()
        if (exact if is_exact else both) is not None
    )


def settings(result: Ceilings, others: Alternatives, command: Sequence[str]) -> Tuned | None:
    """Return a file of settings with these; None where there are none."""
    kept = uses(result, others)
    if not kept:
        return None
    watched = result.watched
    loader = dataclasses.replace(watched.loader, number=None)
    entry = Entry(loader, watched.setting, watched.setting, alternatives=kept)
    return tuned_file.found_for([entry], command)
