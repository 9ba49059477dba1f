"""The epochs of a loader as they would be had other programs left it the cores: an estimate.

A step that is kept from a core hides the making of batches behind it: beside other programs, a loop
may not wait for what it would wait for with the cores to itself.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from lotus.analysis.common.columns import ratio
from lotus.analysis.common.scope import Scope
from lotus.analysis.machine.core_use import CoreUse
from lotus.analysis.replay.loader_replay import replay
from lotus.analysis.replay.recorded_epochs import RecordedEpoch, recorded_epochs

_ENOUGH_BATCHES = 20_000  # replayed one by one


def undisturbed_epochs(scope: Scope, use: CoreUse) -> Iterator[RecordedEpoch]:
    """The recorded epochs without the delays that are owed to other programs.

    Taken out is `CoreUse.others_part_of_step` of the time in which steps and the making of batches
    were ready to run without a core. None where other programs took nothing.
    """
    part = use.others_part_of_step
    if part > 0:
        delay_share = float(np.nan_to_num(use.fetch.delay_share))
        for epoch in recorded_epochs(scope):
            yield _undisturbed(epoch, part, delay_share)


@dataclass(frozen=True)
class UndisturbedLoop:
    """A loop with workers without other programs, by a replay: nanoseconds, without first waits.

    Of a loop with many batches, the first ones. Both are 0.0 where other programs took nothing, and
    where no epoch can be replayed.
    """

    wait_ns: float = 0.0
    step_ns: float = 0.0

    @property
    def wait_share(self) -> float:
        """The share of it that waits take, 0 to 1; NaN: not known."""
        return ratio(self.wait_ns, self.wait_ns + self.step_ns) if self.step_ns > 0 else math.nan


UNKNOWN_LOOP = UndisturbedLoop()


def undisturbed_loop(scope: Scope, use: CoreUse) -> UndisturbedLoop:
    """Replay the undisturbed epochs with the loader's settings."""
    if scope.num_workers < 1:
        return UNKNOWN_LOOP
    prefetch = np.array([int(scope.settings.get("prefetch_factor") or 2)])
    waited = worked = 0.0
    batches = 0
    for epoch in undisturbed_epochs(scope, use):
        replayed = replay(
            epoch.made[:, None],
            epoch.step[:, None],
            np.array([len(epoch.begin)]),
            prefetch,
            delivery=epoch.delivery[:, None],
            begin=(epoch.begin - epoch.begin.min())[:, None],
        )
        waited += float(replayed.waits[1:].sum())
        worked += float(epoch.step.sum())
        batches += len(epoch.made)
        if batches >= _ENOUGH_BATCHES:
            break
    return UndisturbedLoop(waited, worked)


def _undisturbed(epoch: RecordedEpoch, part: float, delay_share: float) -> RecordedEpoch:
    # Delays are measured of the fetch. The pickling after it is taken to lack a core for as much
    # of its time, and the way to the loop for as much as fetches did on average.
    of_fetch = np.nan_to_num(epoch.made_delay / np.maximum(epoch.fetch, 1.0))
    left = 1.0 - part * np.minimum(of_fetch, 1.0)
    # A batch that takes longer than the loop waits for it lay ready. Of that, its way is only what
    # others needed, or what the loop needs to receive one.
    waited = epoch.delivery[epoch.delivery <= epoch.wait]
    way = np.minimum(epoch.delivery, np.median(waited if waited.size else epoch.wait))
    return replace(
        epoch,
        made=epoch.made * left,
        fetch=epoch.fetch * left,
        delivery=way * (1.0 - part * delay_share),
        step=np.maximum(epoch.step - part * np.nan_to_num(epoch.step_delay), 0.0),
    )
