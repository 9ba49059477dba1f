"""What the waits would be if workers made batches further ahead, replayed from their own times."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import Floats, median, number
from lotus.analysis.common.scope import Scope
from lotus.analysis.replay.loader_replay import Replay, replay
from lotus.analysis.replay.recorded_epochs import RecordedEpoch, recorded_epochs

# Where fewer batches than this share take twice the usual, they are stalls, which come by chance.
_COSTLY_TIMES, _COSTLY_SHARE = 2.0, 0.08
# Training steps are uneven where some, and not by chance, take so many times the mean, and together
# so much of the time of all.
_LONG_TIMES, _LONG_SHARE, _LEAST_LONG = 4.0, 0.5, 3
_MOST_PREFETCH = 64
_ENOUGH = 0.8  # of what a prefetch without a limit would save
# A replay with the prefetch as it is must come this near to the measured waits, of their time.
_TOLERANCE = 0.3


@dataclass(frozen=True)
class Prefetch:
    """Waits after an epoch's first batch, in nanoseconds, of the epochs that were replayed.

    `prefetch_factor`: the smallest power of two that saves most of what more prefetch can save; 0
    where there is nothing to save, or where a replay does not come near to what was measured.
    """

    prefetch_factor: int
    saved_ns: float  # with that prefetch factor
    wait_ns: float  # as measured
    long_steps: int = 0  # training steps far longer than the mean, where steps are uneven

    @property
    def saved_share(self) -> float:
        """Share of these waits that it would save, 0 to 1."""
        return self.saved_ns / self.wait_ns if self.prefetch_factor else 0.0


NOTHING = Prefetch(0, 0.0, 0.0)


def enough_prefetch(scope: Scope, few: bool = False) -> Prefetch:
    """Find the prefetch factor that hides bursts of costly batches, or of short training steps.

    NOTHING where none does. `few`: also where there are few costly batches, because it is known
    that they come again.
    """
    now = int(scope.settings.get("prefetch_factor") or 2)
    most = min(_MOST_PREFETCH, _fitting(scope))
    long_steps = _long_steps(number(scope.waits, "step_ns"))
    if scope.num_workers < 1 or not (few or long_steps or _has_bursts(scope.batches)):
        return NOTHING
    factors = [now]
    while factors[-1] < most:
        factors.append(min(2 * factors[-1], most))
    measured, waits = 0.0, np.zeros(len(factors))
    for epoch in recorded_epochs(scope):
        measured += float(epoch.wait[1:].sum())
        waits += _with_prefetch(epoch, factors).waits[1:].sum(axis=0)
    if measured <= 0 or abs(waits[0] - measured) > _TOLERANCE * measured:
        return NOTHING
    saved = waits[0] - waits
    best = int(np.argmax(saved >= _ENOUGH * saved[-1]))
    if not saved[best] > 0:
        return NOTHING
    return Prefetch(factors[best], float(saved[best]), measured, long_steps)


def _fitting(scope: Scope) -> int:
    """The prefetch factor at which the batches that are held fill half of /dev/shm."""
    a_turn = median(number(scope.batches, "bytes")) * scope.num_workers
    return int(scope.shm_bytes / 2 / a_turn) if scope.shm_bytes > 0 and a_turn > 0 else 1 << 30


def _has_bursts(batches: pd.DataFrame) -> bool:
    made = number(batches, "ready_ns") - number(batches, "fetch_start_ns")
    made = made[np.isfinite(made)]
    return bool(made.size) and bool(
        (made > _COSTLY_TIMES * np.median(made)).mean() >= _COSTLY_SHARE
    )


def _long_steps(steps: Floats) -> int:
    """How many steps are far longer than the mean; 0 where steps are not uneven."""
    steps = steps[np.isfinite(steps)]
    long = steps > _LONG_TIMES * steps.mean() if steps.size else np.zeros(0, np.bool_)
    uneven = steps[long].sum() >= _LONG_SHARE * steps.sum()
    return int(long.sum()) if uneven and long.sum() >= _LEAST_LONG else 0


def _with_prefetch(epoch: RecordedEpoch, prefetch: list[int]) -> Replay:
    """Replay an epoch of workers with each of these prefetch factors: the cases."""

    def in_each(values: Floats) -> Floats:
        return np.broadcast_to(values[:, None], (len(values), len(prefetch)))

    return replay(
        in_each(epoch.made),
        in_each(epoch.step),
        np.full(len(prefetch), len(epoch.begin)),
        np.array(prefetch),
        delivery=in_each(epoch.delivery),
        begin=in_each(epoch.begin - epoch.begin.min()),
    )
