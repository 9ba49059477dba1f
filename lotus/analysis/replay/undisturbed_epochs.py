"""The epochs of a loader as they would be if other programs had left it the cores: an estimate.

A step that lacks a core hides the making of batches behind it: beside other programs, a loop may
not wait for what it would wait for with the cores to itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import flag, float_column, ratio, total, with_columns
from lotus.analysis.common.scope import Scope
from lotus.analysis.machine.core_use import CoreUse
from lotus.analysis.replay.recorded_epochs import RecordedEpoch, recorded_epochs
from lotus.common.numbers.array_types import Floats

_QUICK = 0.05  # of the batches
_STALLS = 0.02  # of the waits
# Of the loop: in loops that are bound by their step, less than 0.01 was seen.
_LEAST_WAITS = 0.1
# Of the cores' time: a program with less waits mostly for what is not measured anywhere.
_LEAST_OWN = 0.02
_ENOUGH_BATCHES = 20_000  # replayed one by one


def undisturbed_epochs(scope: Scope, use: CoreUse) -> Iterator[RecordedEpoch]:
    """Yield the recorded epochs without the delays that are due to other programs.

    That is the programs' part (`CoreUse.others_part_of_step`, `others_part_of_making`) of the time
    in which steps and the making of batches were ready to run without a core. None where other
    programs took nothing, or next to all.
    """
    if use.others_part_of_step > 0 and use.own_share >= _LEAST_OWN:
        for epoch in recorded_epochs(scope):
            yield _undisturbed(epoch, use)


@dataclass(frozen=True)
class UndisturbedLoop:
    """A loop with workers without other programs, by a replay.

    `batches`: the table of batches with the times of the replay. Those that were not replayed, as
    in a loop of many batches, have no wait, and neither have the longest 2 % of the waits: stalls
    that other programs cause, but that are no delays of a thread that was ready. `own_part`: the
    part of the making of each batch (n,) that is left without the delays. `sent_part`: the part of
    the time that it then keeps its worker in which a replay has it sent.
    """

    batches: pd.DataFrame
    own_part: Floats
    sent_part: Floats

    @property
    def wait_share(self) -> float:
        """The share of waits in it, without first ones, 0 to 1."""
        wait = total(float_column(self.batches, "wait_ns")[~flag(self.batches, "first")])
        return ratio(wait, wait + total(float_column(self.batches, "step_ns")))

    @property
    def waits_for_data(self) -> bool:
        """True if its waits exceed the possible error of such a replay."""
        return self.wait_share > _LEAST_WAITS


def undisturbed_loop(scope: Scope, use: CoreUse) -> UndisturbedLoop | None:
    """Replay the undisturbed epochs with the loader's settings; None if there are none."""
    batches = scope.batches
    fetch, snapshot = (np.nan_to_num(float_column(batches, f"{name}_ns")) for name in _MAKING)
    times = {name: np.full(len(batches), np.nan) for name in _TIMES}
    own, sent, replayed = np.ones(len(batches)), np.zeros(len(batches)), 0
    for epoch in undisturbed_epochs(scope, use) if scope.num_workers else ():
        rows = epoch.rows
        for name, column in _replayed(epoch, scope).items():
            times[name][rows] = column
        own[rows] = np.fmax(epoch.fetch, 1.0) / np.fmax(fetch[rows], 1.0)
        making = epoch.fetch + snapshot[rows]
        sent[rows] = np.maximum(1.0 - making / np.fmax(epoch.made, 1.0), 0.0)
        replayed += len(rows)
        if replayed >= _ENOUGH_BATCHES:
            break
    if not replayed:
        return None
    wait = np.where(flag(batches, "first"), np.nan, times["wait_ns"])
    longest = np.argsort(-wait, kind="stable")  # NaN comes last
    times["wait_ns"][longest[: max(int(_STALLS * np.isfinite(wait).sum()), 1)]] = np.nan
    return UndisturbedLoop(with_columns(batches, times), own, sent)


_MAKING = ("fetch", "snapshot")
_TIMES = (
    *("wait_start_ns", "wait_ns", "step_ns", "idle_ns", "fetch_start_ns", "fetch_ns"),
    *("snapshot_ns", "send_start_ns", "pickle_ns", "ready_ns", "arrival_ns", "pin_start_ns"),
)


def _replayed(epoch: RecordedEpoch, scope: Scope) -> dict[str, Floats]:
    """Return the times of an epoch's batches in a replay (n,), on the clock of the recording.

    A fetch lasts as long as its batch occupies its worker.
    """
    origin = float(epoch.begin.min())
    # The loop is at this work as at a step, while workers go on.
    busy = replace(epoch, step=epoch.step + epoch.handover)
    outcome = busy.with_prefetch([scope.prefetch_factor])
    begin, taken, ready = (
        origin + times[:, 0] for times in (outcome.begin, outcome.taken, outcome.made)
    )
    # An epoch begins with its first `next`, before or after its workers' start.
    begin[0] = np.fmin(float_column(scope.batches, "wait_start_ns")[epoch.rows[0]], taken[0])
    start, workers = ready - epoch.made, len(epoch.begin)
    free = np.concatenate([start[:workers], ready[:-workers]])  # its worker, of the batch before
    return {
        "wait_start_ns": begin,
        "wait_ns": taken - begin + epoch.handover,
        "step_ns": epoch.step,
        "idle_ns": np.maximum(start - free, 0.0),
        "fetch_start_ns": start,
        "fetch_ns": epoch.made,
        "send_start_ns": ready,
        "pickle_ns": np.zeros(len(ready)),
        "ready_ns": ready,
        "arrival_ns": ready + epoch.delivery,
    }


def _undisturbed(epoch: RecordedEpoch, use: CoreUse) -> RecordedEpoch:
    delays = use.others_part_of_making * np.minimum(np.nan_to_num(epoch.made_delay), epoch.fetch)
    # Sending, and the threads that hand a batch on, are not known to have lacked a core: the
    # quickest lacked it least. A batch that took longer than the loop waited for it was ready
    # before: the wait is then the time of receiving it.
    sending = np.maximum(epoch.made - epoch.fetch, 0.0)
    way = np.minimum(epoch.delivery, epoch.wait)
    of_step, of_wait = (
        use.others_part_of_step * np.nan_to_num(delay)
        for delay in (epoch.step_delay, epoch.wait_delay)
    )
    return replace(
        epoch,
        made=epoch.fetch - delays + _quickest(sending),
        fetch=epoch.fetch - delays,
        delivery=np.minimum(epoch.delivery, _quickest(way)),
        step=np.maximum(epoch.step - of_step, 0.0),
        handover=np.maximum(epoch.handover - of_wait, 0.0),
    )


def _quickest(times: Floats) -> Floats:
    """Return these times, none longer than that of the quickest."""
    return np.minimum(times, np.quantile(times, _QUICK))
