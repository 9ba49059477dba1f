"""Observations ("looks") of the threads that made batches, by operation."""

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, int_column, ratio, total
from lotus.analysis.common.scope import Scope

COMPUTING, SHARED_LOCK, LOCK = "computing", "shared-lock", "lock"
LOCAL_SOCKET = "local-socket"  # to another process of this machine
# Observations of the training loop, not of those who make batches: in `next`, and between two.
NEXT, STEP = "(next)", "(step)"
# Observations of the making of batches that are of no operation.
OWN_CODE, COLLATE = "", "collate"
# Fewer observations than these are not used.
LEAST_LOOKS = 10
# A thread that is observed at a lock for this share of its time takes turns with others.
LEAST_LOCKED = 0.2


@dataclass(frozen=True)
class Looks:
    """`count` observations, and their shares (0 to 1) by reason to be blocked."""

    count: int = 0
    shares: dict[str, float] = field(default_factory=dict)

    @property
    def are_enough(self) -> bool:
        """True if there are enough of them."""
        return self.count >= LEAST_LOOKS

    @property
    def blocked_share(self) -> float:
        """The share that found it blocked in anything."""
        return sum(self.shares.values())

    @property
    def reason(self) -> str:
        """The reason for which it was blocked most; "" if it was not blocked, or there are too few.

        A thread that takes turns at a lock is as often observed in what it does while it holds the
        lock.
        """
        if not self.are_enough or not self.shares:
            return ""
        if self.shares.get(SHARED_LOCK, 0.0) >= LEAST_LOCKED:
            return SHARED_LOCK
        return max(self.shares, key=lambda reason: self.shares[reason])


def of_makers(scope: Scope) -> pd.DataFrame:
    """Return the observations of threads while they made batches of this loader.

    A main process that makes batches as well, those of a loader without workers, does not count.
    """
    return _of_makers(scope, scope.blocking)


def places_of_makers(scope: Scope) -> pd.DataFrame:
    """Return the places of the same threads."""
    return _of_makers(scope, scope.places)


def _of_makers(scope: Scope, blocking: pd.DataFrame) -> pd.DataFrame:
    makers = pd.unique(int_column(scope.batches, "pid"))
    making = np.isin(int_column(blocking, "pid"), makers)
    if len(blocking):
        making &= ~blocking["operation"].isin([NEXT, STEP]).to_numpy()
    return blocking[making]


def looks_of_makers(scope: Scope) -> Looks:
    """Return the observations of threads while they made batches of this loader, of all code."""
    return _looks(of_makers(scope)) if len(scope.blocking) else Looks()


def looks_at(blocking: pd.DataFrame, operation: str, time_share: float) -> Looks:
    """Return the observations of threads in an operation ("": in the data set's own code).

    `time_share` is its share of the time in which batches are made. If its observations are of
    other code too, nothing is known.
    """
    if not len(blocking):
        return Looks()
    looks = float_column(blocking, "looks")
    making = ~blocking["operation"].isin([NEXT, STEP]).to_numpy()
    mine = making & (blocking["operation"] == operation).to_numpy()
    count, everything = int(looks[mine].sum()), int(looks[making].sum())
    return Looks() if takes_others(count, everything, time_share) else _looks(blocking[mine])


def takes_others(count: int, everything: int, time_share: float) -> bool:
    """Return True if an operation has far more observations than its share of the time.

    What follows an operation in its sample is taken for it.
    """
    share = ratio(count, everything)
    slack = 3 * np.sqrt(max(time_share * (1 - time_share), 0.01) / max(everything, 1.0))
    return bool(share > 1.5 * time_share + slack)


def looks_of_main(scope: Scope) -> Looks:
    """Return observations of the main thread at a lock that another thread of its process holds.

    None of them if it was at locks for little of its time in `next` (without workers: of its making
    of batches), if the program had no other Python threads, or with pinned memory, for which `next`
    always waits at a lock.
    """
    blocking, in_next = scope.blocking, scope.num_workers > 0
    if not len(blocking) or python_threads(scope) < 1:
        return Looks()
    if in_next and scope.settings.get("pin_memory"):
        return Looks()
    of_next = blocking["operation"] == NEXT
    looks = _looks(blocking[of_next if in_next else ~blocking["operation"].isin([NEXT, STEP])])
    frame, part = (scope.waits, "wait_") if in_next else (scope.batches, "")
    ready = ready_share(frame, f"{part}run_delay_ns", "wait_ns" if in_next else "fetch_ns")
    return looks if at_lock(looks, ready) else Looks()


def ready_share(frame: pd.DataFrame, delay: str, wall: str) -> float:
    """Return the share of a time in which a thread was ready without a core, 0 to 1; NaN: unknown.

    Observations take that for computing.
    """
    return min(ratio(total(float_column(frame, delay)), total(float_column(frame, wall))), 1.0)


def at_lock(looks: Looks, ready: float, least: float = LEAST_LOCKED) -> bool:
    """Return True if it was at a lock for `least` of the time in which it had a core."""
    rest = 1.0 - float(np.nan_to_num(ready))
    held = looks.shares.get(LOCK, 0.0)
    return looks.count * rest >= LEAST_LOOKS and held >= least * rest


def looks_at_step(scope: Scope) -> Looks:
    """Return the observations of the training loop between two batches, of whatever loader."""
    blocking = scope.blocking
    return _looks(blocking[blocking["operation"] == STEP]) if len(blocking) else Looks()


def python_threads(scope: Scope) -> int:
    """Return how many other Python threads the program had, at most; -1: not known."""
    return int(max(int_column(scope.epochs, "threads"), default=-1))


def _looks(rows: pd.DataFrame) -> Looks:
    counts = pd.Series(float_column(rows, "looks")).groupby(rows["reason"].to_numpy()).sum()
    count = int(counts.sum())
    shares = {str(reason): float(part) / count for reason, part in counts.items() if count}
    shares.pop(COMPUTING, None)
    return Looks(count, shares)
