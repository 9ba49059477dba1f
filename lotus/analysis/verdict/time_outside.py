"""The verdict on a run whose time is spent outside of the loops over its loaders."""

import math
from collections.abc import Sequence
from dataclasses import replace

from lotus.analysis.common.columns import ratio
from lotus.analysis.observations.own_code import HotFunction
from lotus.analysis.verdict.causes.run.outside import OUTSIDE, advice_at
from lotus.analysis.verdict.parts_of_loop import HIGH
from lotus.analysis.verdict.run_time import (
    AFTER,
    BETWEEN,
    IMPORTS,
    SETUP,
    SHUTDOWN,
    STARTUP,
    STEP,
    WAIT,
    RunTime,
)  # fmt: skip
from lotus.analysis.verdict.verdict import Cause, Verdict
from lotus.common.text.formatting import duration, share

_TITLES = {
    BETWEEN: "the time between the loops",
    SETUP: "the set-up before the first loop",
    AFTER: "the time after the last loop",
}
# A set-up, or an end, counts where it is this many times the imports, which are more than those of
# torch's loaders, and this share of the loops.
_LONG, _PART = 5.0, 0.5
_LEAST_NS = 3e9  # less passes in any program
_WHEN_BUSY = 2.0  # times as long
# What comes once in a job, of which a short run may be recorded, counts where it is this many times
# what each epoch loses: its waits, and what slows its steps.
_ONCE = 4.0
# Loops of less than both say nothing of longer ones.
_SHORT_NS, _SHORT_SHARE = 100e6, 0.02


_MOST = 0.5  # of the time: a line with more is named in the title


def with_outside(
    judged: Verdict,
    time: RunTime | None,
    program: str,
    lines: Sequence[HotFunction] = (),
    no_stacks: str = "",
    waits: bool = False,
) -> Verdict:
    """Return the verdict on a run, given that on its first loader.

    `waits`: a `next` had not returned at its end. `program`, `no_stacks`: as `advice_at` takes
    them. `lines`: the program's own lines at which it was between its loops, as `hot_lines`
    returns them.
    """
    if time is None:
        return judged
    cause = _cause(judged, time, program, lines, no_stacks)
    if cause is None:
        few = "" if waits else _too_short(time)
        return replace(judged, kind="unknown", degree="", summary=few, causes=[]) if few else judged
    what = cause.title.partition(",")[0]
    summary = (
        f"{what[:1].upper()}{what[1:]} is {share(cause.share)} of the run's wall time; its loops "
        f"wait {share(time.share(STARTUP, WAIT, SHUTDOWN))}."
    )
    return replace(
        judged, kind="outside", degree="", summary=summary, causes=[cause, *judged.causes]
    )


def _too_short(time: RunTime) -> str:
    """Return in words that the loops are next to nothing of the run; "" if they are more."""
    parts = STARTUP, WAIT, STEP, SHUTDOWN
    loops = time.of(*parts)
    if not 0 < loops < min(_SHORT_NS, _SHORT_SHARE * time.wall_ns):
        return ""
    part = share(time.share(*parts))
    return f"The loops took {duration(loops)}, {part} of the run: too short to judge."


def _cause(
    judged: Verdict, time: RunTime, program: str, lines: Sequence[HotFunction], no_stacks: str
) -> Cause | None:
    """Return the part outside of the loops that takes longer than all waits and much of the run.

    Where other programs had the cores, the time outside of the loops may be many times as long: the
    end of the program is not judged then, the set-up counts without its time without a core, and
    must be longer.
    """
    busy = bool(judged.doubt)
    waits = time.of(STARTUP, WAIT, SHUTDOWN)
    lost = waits + judged.lost_in_steps_ns
    loops = waits + time.of(STEP)
    imports = time.of(IMPORTS)
    longer = _WHEN_BUSY if busy else 1.0
    for part in (BETWEEN, SETUP) if busy else (BETWEEN, SETUP, AFTER):
        ns = time.of(part)
        if part == BETWEEN:
            much = ns > max(HIGH * (loops + ns), _largest_loss(judged, waits, lost))
        else:
            # What the imports took is not known where they came before the recording.
            least = max(_LONG * imports, longer * _PART * loops, longer * _LEAST_NS, _ONCE * lost)
            much = imports > 0 and ns - _without_core(time, ns, busy) > least
        if much and waits < HIGH * time.wall_ns:
            known = lines if part == BETWEEN else ()
            return _made(part, ns, waits, time, known, advice_at(known, program, no_stacks))
    return None


def _without_core(time: RunTime, ns: float, busy: bool) -> float:
    """Return how much of a set-up of `ns` had no core: its part of that before the first loop."""
    if not busy or math.isnan(time.delay_before_ns):
        return 0.0
    return time.delay_before_ns * ratio(ns, ns + time.of(IMPORTS))


def _largest_loss(judged: Verdict, waits: float, lost: float) -> float:
    """Return what a pause is held against, ns: all losses of a loop that is input-bound.

    Of one that hardly waits, the largest: no single change would gain more.
    """
    if judged.kind != "consumer-bound":
        return lost
    return max(waits, max((cause.ns for cause in judged.slows_steps), default=0.0))


def _made(
    part: str, ns: float, waits: float, time: RunTime, lines: Sequence[HotFunction], advice: str
) -> Cause:
    evidence = {
        "waits_ns": waits,
        "between_ns": time.of(BETWEEN),
        "pauses": float(time.pauses) if part == BETWEEN else 0.0,
    }
    title = _TITLES[part]
    if lines and lines[0].share >= _MOST:
        title += f", most of it at {lines[0]}"
    return Cause(
        kind=OUTSIDE.kind,
        title=title,
        share=ns / time.wall_ns,
        wait_share=float("nan"),
        ns=ns,
        evidence=evidence,
        advice=advice,
    )
