"""The waits if workers made batches further ahead, replayed from their own times."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, median
from lotus.analysis.common.scope import Scope
from lotus.analysis.replay.recorded_epochs import RecordedEpoch, recorded_epochs
from lotus.common.numbers.array_types import Bools, Floats

# If fewer batches than this share take twice the usual, they are stalls, which come by chance,
# unless most come at even distances. By chance, one distance in seven is so near to the median.
COSTLY_TIMES, _COSTLY_SHARE = 2.0, 0.08
_EVEN, _MOSTLY_EVEN, _LEAST_COSTLY = 0.2, 0.7, 6
# Training steps are uneven if some, and not by chance, take so many times the mean, and together so
# much of the time of all.
_LONG_TIMES, _LONG_SHARE, _LEAST_LONG = 4.0, 0.5, 3
_MOST_PREFETCH = 64
_ENOUGH = 0.8  # of what a prefetch without a limit would save
LEAST_SAVED = 0.5  # of the waits
_LEAST_OF_LOOP = 0.05
# A replay with the present prefetch factor must come this near to the measured waits, as a share.
_TOLERANCE = 0.3


@dataclass(frozen=True)
class Prefetch:
    """Waits after an epoch's first batch, in nanoseconds, of the epochs that were replayed.

    `prefetch_factor`: the smallest power of two that saves most of what more prefetch can save; 0
    where there is nothing to save, or where a replay does not come near to what was measured.
    """

    prefetch_factor: int
    saved_ns: float  # with that prefetch factor
    wait_ns: float  # as measured, or of the undisturbed loop
    loop_ns: float  # these waits and the training steps
    long_steps: int = 0  # training steps far longer than the mean, where steps are uneven

    @property
    def saved_share(self) -> float:
        """The share of these waits that it would save, 0 to 1."""
        return self.saved_ns / self.wait_ns if self.prefetch_factor else 0.0

    @property
    def helps(self) -> bool:
        """True if what it saves of the waits is worth a line."""
        return self.prefetch_factor > 0 and self.saved_ns >= _LEAST_OF_LOOP * self.loop_ns

    @property
    def hides(self) -> bool:
        """True if it also hides most of the waits."""
        return self.helps and self.saved_share >= LEAST_SAVED


NOTHING = Prefetch(0, 0.0, 0.0, 0.0)


def enough_prefetch(
    scope: Scope, few: bool = False, undisturbed: Iterable[RecordedEpoch] | None = None
) -> Prefetch:
    """Find the prefetch factor that hides bursts of costly batches, or of short training steps.

    NOTHING where none does. `few`: also where there are few costly batches, because it is known
    that they come again. `undisturbed`: epochs of the loop without other programs, to find it for
    that; None: for the recorded one, if its replay comes near to it.
    """
    long_steps = _long_steps(float_column(scope.waits, "step_ns"))
    if scope.num_workers < 1 or not (few or long_steps or _has_bursts(scope.batches)):
        return NOTHING
    factors = _factors(scope)
    epochs = recorded_epochs(scope) if undisturbed is None else undisturbed
    measured, waits, steps = _waits(epochs, factors)
    wait = measured if undisturbed is None else float(waits[0])
    near = abs(waits[0] - wait) <= _TOLERANCE * wait
    return _best(factors, waits, wait, steps, long_steps) if near else NOTHING


def _best(
    factors: list[int], waits: Floats, wait_ns: float, steps_ns: float, long_steps: int
) -> Prefetch:
    """Return the smallest factor that saves most of these waits; the loop had `wait_ns`."""
    saved = waits[0] - waits
    best = int(np.argmax(saved >= _ENOUGH * saved[-1]))
    if wait_ns <= 0 or not saved[best] > 0:
        return NOTHING
    return Prefetch(factors[best], float(saved[best]), wait_ns, wait_ns + steps_ns, long_steps)


def _factors(scope: Scope) -> list[int]:
    """Return the prefetch factor of the loader, and larger ones that may be better."""
    most = min(_MOST_PREFETCH, _fitting(scope))
    factors = [scope.prefetch_factor]
    while factors[-1] < most:
        factors.append(min(2 * factors[-1], most))
    return factors


def _waits(epochs: Iterable[RecordedEpoch], factors: list[int]) -> tuple[float, Floats, float]:
    """Return (measured waits, waits with each factor, training steps), ns, without first waits."""
    measured, waits, steps = 0.0, np.zeros(len(factors)), 0.0
    for epoch in epochs:
        measured += float(epoch.wait[1:].sum())
        waits += epoch.with_prefetch(factors).waits[1:].sum(axis=0)
        steps += float(epoch.step.sum())
    return measured, waits, steps


def _fitting(scope: Scope) -> int:
    """Return the prefetch factor at which the batches that are held fill half of /dev/shm."""
    a_turn = median(float_column(scope.batches, "bytes")) * scope.num_workers
    return int(scope.shm_bytes / 2 / a_turn) if scope.shm_bytes > 0 and a_turn > 0 else 1 << 30


def costly_batches(batches: pd.DataFrame) -> Bools:
    """Return the batches that took over twice as long to make as a usual one (n,)."""
    made = _making_ns(batches)
    known = np.isfinite(made)
    usual = float(np.median(made[known])) if known.any() else np.inf
    return np.asarray(np.nan_to_num(made) > COSTLY_TIMES * usual, np.bool_)


def _making_ns(batches: pd.DataFrame) -> Floats:
    """Return how long each batch took to make (n,), until it was ready, ns; NaN: not recorded."""
    return float_column(batches, "ready_ns") - float_column(batches, "fetch_start_ns")


def _has_bursts(batches: pd.DataFrame) -> bool:
    costly = costly_batches(batches)[np.isfinite(_making_ns(batches))]
    return bool(costly.size) and (costly.mean() >= _COSTLY_SHARE or _come_evenly(costly))


def _come_evenly(costly: Bools) -> bool:
    """Return True if costly batches come again after equally many others each time."""
    places = np.flatnonzero(costly)
    if len(places) < _LEAST_COSTLY:
        return False
    distances = np.diff(places)
    usual = np.median(distances)
    return bool((np.abs(distances - usual) <= _EVEN * usual).mean() >= _MOSTLY_EVEN)


def _long_steps(steps: Floats) -> int:
    """Return how many steps are far longer than the mean; 0 if steps are not uneven."""
    steps = steps[np.isfinite(steps)]
    long = steps > _LONG_TIMES * steps.mean() if steps.size else np.zeros(0, np.bool_)
    uneven = steps[long].sum() >= _LONG_SHARE * steps.sum()
    return int(long.sum()) if uneven and long.sum() >= _LEAST_LONG else 0
