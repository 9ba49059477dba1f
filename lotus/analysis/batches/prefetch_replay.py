"""What the waits would be if workers made batches further ahead, replayed from their own times."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import Floats, Ints, integer, median, number
from lotus.analysis.common.scope import Scope

_LEAST_BATCHES = 16  # of an epoch
# Where fewer batches than this share take twice the usual, they are stalls, which come by chance.
_COSTLY_TIMES, _COSTLY_SHARE = 2.0, 0.08
_MOST_BATCHES = 20_000  # that are replayed of one
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

    @property
    def saved_share(self) -> float:
        """Share of these waits that it would save, 0 to 1."""
        return self.saved_ns / self.wait_ns if self.prefetch_factor else 0.0


NOTHING = Prefetch(0, 0.0, 0.0)


@dataclass(frozen=True)
class _Epoch:
    """An epoch of one rank in the order of its batches; nanoseconds (n,)."""

    worker: Ints
    made: Floats  # how long its worker was occupied with the batch
    begin: Floats  # when its worker could begin with its first one
    delivery: Floats  # from made to arrived
    step: Floats  # training step after it
    wait: Floats


def enough_prefetch(scope: Scope) -> Prefetch:
    """Find the prefetch factor that hides bursts of costly batches; NOTHING where none does."""
    workers = scope.num_workers
    now = int(scope.settings.get("prefetch_factor") or 2)
    most = min(_MOST_PREFETCH, _fitting(scope))
    if scope.partial or workers < 1 or scope.settings.get("in_order") is False:
        return NOTHING
    if not _has_bursts(scope.batches):
        return NOTHING
    epochs = list(_epochs(scope))
    measured = sum(float(epoch.wait[1:].sum()) for epoch in epochs)
    if measured <= 0:
        return NOTHING

    def waits(prefetch: int) -> float:
        return sum(_replayed(epoch, workers * prefetch) for epoch in epochs)

    today = waits(now)
    if abs(today - measured) > _TOLERANCE * measured:
        return NOTHING
    least = waits(most)
    factor = now
    while factor < most:
        factor = min(2 * factor, most)
        saved = today - waits(factor)
        if saved >= _ENOUGH * (today - least):
            return Prefetch(factor, saved, measured) if saved > 0 else NOTHING
    return NOTHING


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


def _epochs(scope: Scope) -> list[_Epoch]:
    batches = scope.batches
    frame = pd.DataFrame(
        {
            **{name: integer(batches, name) for name in ("rank", "epoch", "batch", "worker")},
            "start": number(batches, "fetch_start_ns"),
            "end": number(batches, "ready_ns"),
            "arrival": number(batches, "arrival_ns"),
            "wait": number(batches, "wait_ns"),
        }
    )
    waits = scope.waits
    steps = pd.DataFrame(
        {
            **{name: integer(waits, name) for name in ("rank", "epoch", "batch")},
            "step": np.nan_to_num(number(waits, "step_ns")),
        }
    )
    frame = frame.merge(steps, on=["rank", "epoch", "batch"], how="left")
    frame = frame.sort_values(["rank", "epoch", "batch"], kind="stable")
    epochs = (_epoch(rows) for _, rows in frame.groupby(["rank", "epoch"], sort=False))
    return [epoch for epoch in epochs if epoch is not None]


def _epoch(rows: pd.DataFrame) -> _Epoch | None:
    if len(rows) < _LEAST_BATCHES or (rows["batch"].diff().dropna() != 1).any():
        return None
    rows = rows.head(_MOST_BATCHES)
    times = rows[["start", "end", "arrival", "wait", "step"]]
    if times.isna().any(axis=None) or (rows["worker"] < 0).any():
        return None
    # A worker that works off several batches at once is occupied from one to the next.
    end, wait = number(rows, "end"), number(rows, "wait")
    began = np.fmax(number(rows, "start"), rows.groupby("worker")["end"].shift().to_numpy())
    delivery = np.maximum(number(rows, "arrival") - end, 0.0)
    waited = delivery[wait > 0]  # the others lay there until the loop came
    return _Epoch(
        worker=integer(rows, "worker"),
        made=np.maximum(end - began, 0.0),
        begin=rows.groupby("worker")["start"].transform("first").to_numpy(),
        delivery=np.minimum(delivery, np.median(waited) if waited.size else 0.0),
        step=number(rows, "step"),
        wait=wait,
    )


def _replayed(epoch: _Epoch, ahead: int) -> float:
    """Waits after the first batch where `ahead` batches are asked for before they are taken.

    As torch does: with each batch that is taken, one more is asked for, of the worker whose turn it
    is. Steps, and the time that each batch takes its worker, stay as they were.
    """
    free: dict[int, float] = {}
    taken: list[float] = []
    waits, now = 0.0, 0.0
    columns = (epoch.worker, epoch.begin, epoch.made, epoch.delivery, epoch.step)
    for place, (worker, begin, made, delivery, step) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        start = max(free.get(worker, begin), begin if place < ahead else taken[place - ahead])
        free[worker] = end = start + made
        arrived = end + delivery
        if place:
            waits += max(arrived - now, 0.0)
        now = max(now, arrived)
        taken.append(now)
        now += step
    return waits
