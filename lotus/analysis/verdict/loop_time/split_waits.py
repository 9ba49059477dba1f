"""Waits of a loop, each divided by what happened to its batch: making, sending, start-up, ..."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from lotus.analysis.batches.components import first_excess
from lotus.analysis.batches.waits import PHASES, paced, wait_phases
from lotus.analysis.common.columns import flag, float_column, mean, total
from lotus.analysis.verdict.loop_time.batch_making import BatchMaking
from lotus.common.numbers.array_types import Floats
from lotus.common.storage.long_arrays import kept


@dataclass(frozen=True)
class SplitWaits:
    """The parts of all waits: nanoseconds, of each batch (n,) or of all batches.

    `making`: a batch was being made. The other waits: `sending`, `pinning`, `handover`, `index`,
    and those of the start-up: `workers_ns`, `first_batch_ns`, `first_send_ns`. `drawn_ns`: without
    workers, what the sampler took before first batches. `unrecorded_ns`: nothing is known of the
    making. `phases`: sums of `wait_phases`.
    """

    making: Floats
    sending: Floats
    pinning: Floats
    handover: Floats
    index: Floats
    workers_ns: float
    first_batch_ns: float
    first_excess_ns: float  # of `first_batch_ns`: beyond later batches
    first_send_ns: float
    drawn_ns: float
    unrecorded_ns: float
    phases: dict[str, float]


def split_waits(
    batches: pd.DataFrame, batch_making: BatchMaking, sent_part: Floats | float = 0.0
) -> SplitWaits:
    """Divide the waits of these batches.

    They are the batches of `batch_making`, with their times in a loop.
    `sent_part`: the part of the time that each keeps its worker in which it is sent.
    """
    workers = batch_making.scope.num_workers
    phases = wait_phases(batches, batch_making.scope.workers)
    sums = {name: total(float_column(phases, name)) for name in PHASES}
    charged = {
        name: column.to_numpy()
        for name, column in paced(phases, batches, batch_making.first).items()
    }
    del phases
    making = np.where(batch_making.known, charged["making"], 0.0)
    unknown = total(np.where(batch_making.known, 0.0, charged["making"]))
    lazily = making * batch_making.first_excess / batch_making.took_ns
    making = making - lazily
    # The first pickling of a process imports what it needs.
    pickle_excess = first_excess(batches, float_column(batches, "pickle_ns"), batch_making.first)
    late = np.minimum(charged["sending"], pickle_excess)
    charged["sending"] = charged["sending"] - late

    # The loop waits for the first batch of an epoch with any pipeline: its making is start-up,
    # except for as much as the loop waits for later ones. These come from the workers in turn, so
    # the waits for as many of them as there are workers correspond to the making of one; unless
    # what workers have prefetched is thrown away, which the next first batch could have been.
    first = flag(batches, "first")
    drawn = np.zeros(len(batches))
    if not workers:
        sampler = np.nan_to_num(float_column(batches, "sampler_ns"))
        drawn = np.where(first, np.minimum(sampler, charged["handover"]), 0.0)
        charged["handover"] = charged["handover"] - drawn
    rest = making + charged["sending"] + charged["pinning"] + charged["handover"]
    later = ~first & ~np.isnan(float_column(batches, "wait_ns"))
    fill, steady = mean(rest[first]), mean((rest - charged["handover"])[later])
    shared = 1 if batch_making.scope.each_is_left else max(workers, 1)
    alike = min(float(np.nan_to_num(steady)) * shared / fill, 1.0) if fill > 0 else 1.0
    weight = np.where(first, alike, 1.0)
    making, sending, pinning, handover = (
        kept(part * weight)
        for part in (making, charged["sending"], charged["pinning"], charged["handover"])
    )
    # Pickling that stopped a fetch belongs to the sending.
    held = making * np.minimum(batch_making.held / batch_making.took_ns + sent_part, 1.0)
    return SplitWaits(
        making=kept(making - held),
        sending=kept(sending + held),
        pinning=pinning,
        handover=handover,
        index=kept(charged["index"]),
        workers_ns=total(charged["startup"]),
        first_batch_ns=total(lazily) + total(rest * (1.0 - weight)),
        first_excess_ns=total(lazily),
        first_send_ns=total(late),
        drawn_ns=total(drawn),
        unrecorded_ns=total(charged["unseen"]) + unknown,
        phases=sums,
    )
