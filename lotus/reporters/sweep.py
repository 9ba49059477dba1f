"""A sweep on a terminal, and as a document for programs."""

from typing import TYPE_CHECKING

from lotus.analysis.sweep import SweepSummary
from lotus.analysis.sweep_knee import Knee
from lotus.reporters.words import plain

if TYPE_CHECKING:
    pass

SCHEMA = 1


def sentences(summary: SweepSummary) -> list[str]:
    """What a sweep is made for: each line's knee and what saturates, the best line first."""
    order = [summary.best] if summary.best is not None else []
    order += [one for one in summary.series if one is not summary.best]
    found = []
    for one in order:
        name = f"{one.name}: " if one.name and len(summary.series) > 1 else ""
        if one.knee is not None:
            found.append(plain(name + knee_text(one.knee)))
        found += [plain(name + limit.text) for limit in one.limits]
    return found


def knee_text(knee: Knee) -> str:
    """A knee in a sentence."""
    few = "1 worker" if knee.workers == 1 else f"{knee.workers} workers"
    text = f"{few} {'is' if knee.workers == 1 else 'are'} enough"
    if knee.last:
        text = f"{few}, the most that were tried, give{'s' if knee.workers == 1 else ''} the best"
        text += " throughput"
    elif knee.workers == knee.best_workers:
        text += ": they give the best throughput"
    else:
        text += f": {knee.of_best:.0%} of the best throughput, that of {knee.best_workers}"
    if knee.low is None:
        return f"{text}. One repeat only: there is no interval."
    if knee.low == knee.high:
        return f"{text} (95 % interval: {knee.low} and no other)."
    return f"{text} (95 % interval: {knee.low} to {knee.high})."
