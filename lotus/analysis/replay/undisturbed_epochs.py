"""The epochs of a loader as they would be had other programs left it the cores: an estimate.

A step that is kept from a core hides the making of batches behind it: beside other programs, a loop
may not wait for what it would wait for with the cores to itself.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from lotus.analysis.common.columns import Floats, number, ratio, total
from lotus.analysis.common.scope import Scope
from lotus.analysis.machine.core_use import CoreUse
from lotus.analysis.replay.recorded_epochs import (
    RecordedEpoch,
    recorded_epochs,
    replay_side_by_side,
)

_QUICK = 0.05  # of the batches
_STALLS = 0.02  # of the waits
# Of the loop: of loops that are bound by their step, less than 0.01 was seen.
_LEAST_WAITS = 0.1
# Of the cores' time: a program that is left less waits most for what is measured nowhere.
_LEAST_OWN = 0.02
_ENOUGH_BATCHES = 20_000  # replayed one by one


def undisturbed_epochs(scope: Scope, use: CoreUse) -> Iterator[RecordedEpoch]:
    """The recorded epochs without the delays that are owed to other programs.

    Taken out is `CoreUse.others_part_of_step` of the time in which steps and the making of batches
    were ready to run without a core. None where other programs took nothing, or next to all.
    """
    part = use.others_part_of_step
    if part > 0 and use.own_share >= _LEAST_OWN:
        for epoch in recorded_epochs(scope):
            yield _undisturbed(epoch, part)


@dataclass(frozen=True)
class UndisturbedLoop:
    """A loop with workers without other programs, by a replay: nanoseconds, without first waits.

    Of a loop with many batches, the first ones. The longest 2 % of the waits are left out: stalls
    that other programs cause, but which are no delays of a thread that was ready. All are 0.0
    where other programs took nothing, and where no epoch can be replayed.
    """

    wait_ns: float = 0.0
    step_ns: float = 0.0
    sending_ns: float = 0.0  # of `wait_ns`: what a loop whose batches need no sending does not wait

    @property
    def wait_share(self) -> float:
        """The share of it that waits take, 0 to 1; NaN: not known."""
        return ratio(self.wait_ns, self.wait_ns + self.step_ns) if self.step_ns > 0 else math.nan

    @property
    def waits_for_data(self) -> bool:
        """Whether its waits are more than what such a replay may be wrong by."""
        return self.wait_share > _LEAST_WAITS


UNKNOWN_LOOP = UndisturbedLoop()


def undisturbed_loop(scope: Scope, use: CoreUse) -> UndisturbedLoop:
    """Replay the undisturbed epochs with the loader's settings."""
    if scope.num_workers < 1:
        return UNKNOWN_LOOP
    waits: list[Floats] = []
    worked, batches = 0.0, 0
    for epoch in undisturbed_epochs(scope, use):
        waits.append(_waits(epoch, scope.prefetch_factor)[1:])
        worked += float(epoch.step.sum())
        batches += len(epoch.made)
        if batches >= _ENOUGH_BATCHES:
            break
    if not waits:
        return UNKNOWN_LOOP
    sorted_waits = np.sort(np.concatenate(waits), axis=0)
    usual = len(sorted_waits) - max(int(_STALLS * len(sorted_waits)), 1)
    waited, unsent = (total(case) for case in sorted_waits[:usual].T)
    # What a pin thread copies is ready only then: its time is not told from the sending.
    pins = np.isfinite(number(scope.batches, "pin_ns")).any()
    return UndisturbedLoop(waited, worked, 0.0 if pins else max(waited - unsent, 0.0))


def _waits(epoch: RecordedEpoch, prefetch_factor: int) -> Floats:
    """The waits of a replay, and of one in which batches need no sending (n, 2)."""
    unsent = replace(epoch, made=epoch.fetch, delivery=np.zeros(len(epoch.made)))
    return replay_side_by_side([epoch, unsent], [prefetch_factor] * 2).waits


def _undisturbed(epoch: RecordedEpoch, part: float) -> RecordedEpoch:
    delays = part * np.minimum(np.nan_to_num(epoch.made_delay), epoch.fetch)
    # Sending, and the threads that hand a batch on, are not known to have lacked a core: the
    # quickest lacked it least. A batch that took longer than the loop waited for it lay ready: what
    # was waited for is then how long it takes to receive one.
    sending = np.maximum(epoch.made - epoch.fetch, 0.0)
    way = np.minimum(epoch.delivery, epoch.wait)
    return replace(
        epoch,
        made=epoch.fetch - delays + _quickest(sending),
        fetch=epoch.fetch - delays,
        delivery=np.minimum(epoch.delivery, _quickest(way)),
        step=np.maximum(epoch.step - part * np.nan_to_num(epoch.step_delay), 0.0),
    )


def _quickest(times: Floats) -> Floats:
    """These times, none longer than what the quickest took."""
    return np.minimum(times, np.quantile(times, _QUICK))
