"""What threads that were looked at did: looks, times and CPU clocks of the making and the loop."""

from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd

from lotus.analysis.batches.loop_phases import loop_phases
from lotus.analysis.common.columns import flag, float_column, int_column, total
from lotus.analysis.common.scope import RunLike, Scope, table
from lotus.analysis.observations.looks import (
    COLLATE,
    LOCAL_SOCKET,
    LOCK,
    NEXT,
    OWN_CODE,
    STEP,
    of_makers,
    places_of_makers,
)
from lotus.common.numbers.array_types import Ints

MAKING, LOOP = "making", "loop"
_OVER = ("events", "pipe", LOCAL_SOCKET)  # how batches come from workers
_ALL = 0.98  # of a time: what else there may be in it does not matter


@dataclass(frozen=True)
class LookedPart:
    """MAKING of batches, or the LOOP that uses them; times in ns, of all its threads together.

    counts   looks by operation and by reason, as in `Run.blocking`
    times    by operation; of one around others, without these, which looks find instead
    clocks   by operation: for so much of its time it was blocked by CPU clocks, 0 to 1; NaN: not
             known. In MAKING, that is known of all together: each has the same.
    loaders  how many these threads worked for; all of them are counted
    elsewhere  whether other threads did it than the main ones, at which looks are
    places   where its threads were blocked, as `Run.places`
    awaits   reasons for which `next` is blocked where it waits for workers
    """

    name: str
    counts: dict[str, dict[str, int]]
    times: dict[str, float]
    whole_ns: float
    clocks: dict[str, float]
    loaders: int
    elsewhere: bool
    places: pd.DataFrame
    awaits: tuple[str, ...] = ()


def making(run: RunLike, scope: Scope) -> LookedPart:
    """Return the making of batches, by workers or, without any, by main processes.

    A main process without workers makes the batches of all its loaders.
    """
    batches = table(run, "batches")
    batches = batches[
        np.isin(int_column(batches, "pid"), pd.unique(int_column(scope.batches, "pid")))
    ]
    loaders = np.unique(int_column(batches, "loader"))
    contents = scope.calls.contents
    samples, cells = contents.samples, contents.operations.cells
    samples = samples[np.isin(int_column(samples, "loader"), loaders)]
    cells = cells[np.isin(int_column(cells, "loader"), loaders) & flag(cells, "in_sample")]
    fetch, collate = (total(float_column(batches, name)) for name in ("fetch_ns", "collate_ns"))
    own = total(float_column(samples, "own_ns")) if len(samples) else fetch - collate
    times = {OWN_CODE: own, COLLATE: collate, **_times_alone(cells)}
    clock = _clock_share(batches, "fetch_ns", "", fetch)
    return LookedPart(
        MAKING,
        _counts(of_makers(scope)),
        times,
        fetch,
        dict.fromkeys(times, clock),
        len(loaders),
        _is_elsewhere(batches),
        places_of_makers(scope),
    )


def _times_alone(cells: pd.DataFrame) -> dict[str, float]:
    took = pd.Series(float_column(cells, "duration_ns"))
    whole = took.groupby(cells["operation"].astype(str).to_numpy()).sum()
    within = took.groupby(cells["parent"].astype(str).to_numpy()).sum()
    alone = whole.sub(within.reindex(whole.index, fill_value=0.0))
    return {str(name): max(float(ns), 0.0) for name, ns in alone.items()}


def loop(run: RunLike, scope: Scope) -> LookedPart:
    """Return `next` and the training step of the main threads that iterate a loader."""
    pids = pd.unique(int_column(scope.waits, "pid"))
    waits, batches = (
        each[np.isin(int_column(each, "pid"), pids)]
        for each in (table(run, "waits"), table(run, "batches"))
    )
    loaders = np.unique(int_column(waits, "loader"))
    # What the main process makes is in `next`, but looks find its operations.
    made = total(float_column(batches, "fetch_ns")[int_column(batches, "worker") < 0])
    phases = loop_phases(waits, table(run, "epochs"), pids)
    times = {NEXT: max(phases.next_ns - made, 0.0), STEP: phases.step_ns}
    clocks = {
        NEXT: _clock_share(waits, "wait_ns", "wait_", times[NEXT]),
        STEP: _clock_share(waits, "step_ns", "step_", times[STEP]),
    }
    looks, places = (_of_loop(each, pids) for each in (scope.blocking, scope.places))
    settings = run.loaders[np.isin(int_column(run.loaders, "loader"), loaders)]
    awaits = [*_OVER] if (int_column(settings, "num_workers") > 0).any() else []
    awaits += [LOCK] if awaits and flag(settings, "pin_memory").any() else []
    return LookedPart(
        LOOP,
        _counts(looks),
        times,
        sum(times.values()),
        clocks,
        len(loaders),
        _is_elsewhere(waits),
        places,
        tuple(awaits),
    )


def _of_loop(looks: pd.DataFrame, pids: Ints) -> pd.DataFrame:
    if not len(looks):
        return looks
    rows: pd.DataFrame = looks[
        np.isin(int_column(looks, "pid"), pids) & looks["operation"].isin([NEXT, STEP])
    ]
    return rows


def _counts(looks: pd.DataFrame) -> dict[str, dict[str, int]]:
    result: dict[str, dict[str, int]] = {}
    if len(looks):
        keys = [looks[name].to_numpy() for name in ("operation", "reason")]
        for key, count in pd.Series(int_column(looks, "looks")).groupby(keys).sum().items():
            operation, reason = map(str, cast("tuple[str, str]", key))
            result.setdefault(operation, {})[reason] = int(count)
    return result


def _is_elsewhere(frame: pd.DataFrame) -> bool:
    pid = int_column(frame, "pid")
    tid = int_column(frame, "tid") if "tid" in frame else pid
    return bool(len(frame)) and float((tid == pid).mean()) < _ALL


def _clock_share(frame: pd.DataFrame, wall: str, prefix: str, whole_ns: float) -> float:
    """Return the share of a time in which threads neither had a core nor waited for one.

    NaN where CPU clocks do not cover `whole_ns`, or cover more.
    """
    took, used, delay = (
        float_column(frame, name) for name in (wall, f"{prefix}cpu_ns", f"{prefix}run_delay_ns")
    )
    known = ~np.isnan(took + used + delay)
    measured = float(took[known].sum())
    if not _ALL * measured <= whole_ns <= measured / _ALL or measured <= 0:
        return float("nan")
    return min(max(1.0 - float((used + delay)[known].sum()) / measured, 0.0), 1.0)
