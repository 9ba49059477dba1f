"""Checks whether a program's loop is long enough to be tuned."""

from __future__ import annotations

import statistics

from lotus.common import tunable_loop
from lotus.common.text.formatting import duration, plural
from lotus.tune.program.program import Watched


class NotWorthTuningError(Exception):
    """Tuning is not worth while; the message is a sentence that says why."""


def check(watched: Watched) -> None:
    """Raise NotWorthTuningError if an epoch of the loader is known to be too short."""
    seconds = loop_s(watched)
    if seconds is None or not tunable_loop.too_short(seconds):
        return
    batches = "" if watched.batches is None else f", {plural(watched.batches, 'batch')}"
    raise NotWorthTuningError(
        f"an epoch of {watched.loader.words()} takes {duration(seconds * 1e9)}{batches}: that is "
        "too short to gain from another setting, so none was tried; if the program has many such "
        "epochs: lotus tune -f -- COMMAND"
    )


def loop_s(watched: Watched) -> float | None:
    """Return the seconds of an epoch: measured if it ended, else estimated from watched batches.

    None if neither is known. The first batch counts separately, as it includes start-up.
    """
    if watched.loop_s is not None:
        return watched.loop_s
    times = [wait + step for wait, step in zip(watched.waits_s, watched.steps_s, strict=False)]
    if watched.batches is None or not times:
        return None
    first = times[0] + max((watched.startup_s or 0.0) - watched.waits_s[0], 0.0)
    others = statistics.mean(times[1:] or times)
    return first + max(watched.batches - 1, 0) * others
