"""Evidence from the workers' turns: uneven data, slow batches, too few batches made ahead."""

from lotus.analysis.attached.charges.loader_settings import LoaderSettings
from lotus.analysis.attached.shares.loop_shares import LoopShares, idle_share
from lotus.analysis.attached.shares.worker_pace import MOST_HELD
from lotus.analysis.attached.shares.worker_turns import WorkerTurns
from lotus.analysis.common.columns import ratio

_STARVED = 0.02  # of its time: a worker that makes less has no data
_LEAST_LONE = 0.3  # of one worker's making: it makes batches alone
_AS_OFTEN = 0.5  # of the share that steps have of all of the loop
_LEAST_STEP_NS = 200_000_000  # some ten samples
_LEAST_LOST = 0.2  # as of a recorded loop: see lotus.analysis.data.data_shares
_LEAST_IDLE = 0.4  # of the workers' time
_MOSTLY = 0.7
_MOST_LONG = 0.3  # of the waits
_LEAST_WAITED = 0.05  # of the loop
_LEAST_LONE_WAITS = 0.3  # of the waits: of programs whose batches are alike, up to 0.15 were seen
_LEAST_REST = 0.15  # of the workers' time
_MOST_OF_ONE = 0.85  # of these waits are for one worker: then it is the worker, or its data


def without_data(shares: LoopShares) -> int:
    """Return the workers that were always idle while others always made batches."""
    busy = {
        place: ratio(shares.made_by.get(place, 0.0), shares.made_by.get(place, 0.0) + idle)
        for place, idle in shares.idle_by.items()
        if shares.made_by.get(place, 0.0) + idle > 0
    }
    empty = sum(part < _STARVED for part in busy.values())
    full = [part for part in busy.values() if part > 0.5]
    return empty if full and empty + len(full) == len(busy) else 0


def uneven_data(
    shares: LoopShares, settings: LoaderSettings, place: int
) -> tuple[float, dict[str, float]]:
    """Return the share of the making that equal parts of the data would save, and the evidence.

    0.0 and {} unless the worker at this place has more data than the others and is not slower.
    """
    made = [ns for worker, ns in shares.made_by.items() if worker >= 0]
    own = shares.made_by.get(place, 0.0)
    lost = 1.0 - ratio(sum(made), len(made) * max(made)) if own > 0 else 0.0
    if settings.iterable is False or len(shares.turns) != 1 or lost < _LEAST_LOST:
        return 0.0, {}
    if not _goes_on_alone(shares.turns[0], place, own):
        return 0.0, {}
    workers = float(shares.workers)
    largest = ratio(own, sum(made))
    return lost, {
        "workers_without_data": 0.0,
        "workers": workers,
        "largest_making_share": largest,
    }


def _goes_on_alone(turns: WorkerTurns, place: int, made_ns: float) -> bool:
    """Return whether the loop takes several batches of one worker while the others are idle.

    If a worker were slow, the others would begin new batches after each of its batches.
    """
    lone = turns.lone.get(place, 0.0)
    if turns.step_ns < _LEAST_STEP_NS or lone < _LEAST_LONE * made_ns:
        return False
    usual = ratio(turns.step_ns, turns.loop_ns)
    return ratio(turns.lone_step.get(place, 0.0), lone) >= _AS_OFTEN * usual


def too_few_ahead(shares: LoopShares) -> tuple[float, dict[str, float]]:
    """Return the share of waits for the making that more batches ahead would save; evidence.

    The workers have time enough: they are idle in the longer steps, and all of them make batches
    while the loop waits, for many short times.
    """
    if len(shares.turns) != 1:
        return 0.0, {}
    turns, idle = shares.turns[0], idle_share(shares)
    full = ratio(turns.full_ns, turns.waited_ns)
    shown = (
        idle >= _LEAST_IDLE
        and full >= _MOSTLY
        and turns.waited_ns >= _LEAST_WAITED * turns.loop_ns
        and turns.long_ns <= _MOST_LONG * turns.waited_ns
        and turns.idle_step_ns >= _MOSTLY * turns.idle_ns
    )
    return (full, {"idle_share": idle, "all_making_share": full}) if shown else (0.0, {})


def slow_batches(shares: LoopShares) -> tuple[float, dict[str, float]]:
    """Return the share of waits for the making in which one of several workers made a batch.

    With the evidence; 0.0 and {} where it does not show that some batches take far longer.
    """
    if len(shares.turns) != 1 or idle_share(shares) < _LEAST_REST:
        return 0.0, {}
    if max((pace.held for pace in shares.paces.values()), default=0.0) > MOST_HELD:
        return 0.0, {}  # it is chance whose batch comes late
    waits = shares.turns[0].lone_waits
    lone = sum(waits.values())
    part = ratio(lone, shares.turns[0].waited_ns)
    if not part >= _LEAST_LONE_WAITS or max(waits.values()) > _MOST_OF_ONE * lone:
        return 0.0, {}
    return part, {"lone_share": part, "idle_share": idle_share(shares)}
