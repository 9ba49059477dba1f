"""The time of a loop, from which every cause takes its part in turn; pure accounting.

Every nanosecond of the loop is charged once: to the training step, to the start-up, to the
shut-down or, for each wait, to what kept its batch away. The loop is the recorded one, or the one
that a replay without other programs has: both are charged by the same rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from lotus.analysis.batches.long_steps import LongSteps
from lotus.analysis.common.columns import blocks, float_column, ratio, total
from lotus.analysis.replay.prefetch_replay import NOTHING, Prefetch, enough_prefetch
from lotus.analysis.replay.undisturbed_epochs import UndisturbedLoop, undisturbed_epochs
from lotus.analysis.verdict.loop_time.batch_making import BatchMaking
from lotus.analysis.verdict.loop_time.split_waits import split_waits
from lotus.common.numbers.array_types import Bools, Floats
from lotus.common.storage import long_arrays

# An operation is cold where at least this much of its time went to storage; time in which others
# had its core does not count.
COLD_SHARE = 0.3
# The longest that sending takes with a core; of tensors, the pipe has little but their names.
_SENDING_NS, _SENDING_NS_PER_BYTE = 2e6, 100.0


class Excess(NamedTuple):
    """The time of outliers beyond what is typical, as far as it was waited for."""

    ns: float
    within: str  # the component that most of it was in; "": none
    without_core: float  # beside `ns`: the time in which others had the core, nanoseconds


class Ledger:
    """The time of a loop that is not charged yet: ns per batch (n,), or batch and component (n, c).

    `making_waits`: waits in which a batch was being made. The other waits are `sending`,
    `pinning`, `handover`, `index`, and in `startup` the parts of the start-up. `take` hands out
    what is left of `making_waits`, `take_phase` what is left of the others. `sampler_ns`: what the
    sampler took in `iter()` and `next` (NaN: not known), `drawn_ns`: of it, before the first
    batches. `phases`: sums of `wait_phases`.

    `batch_making` is the recorded making of batches, `use` the use of the cores in this loop.
    `undisturbed`: the loop to charge; None: the recorded one.

    A matrix of a million batches takes 100 MB: none is built that is not kept.
    """

    def __init__(
        self, batch_making: BatchMaking, undisturbed: UndisturbedLoop | None = None
    ) -> None:
        self.batch_making, self.scope = batch_making, batch_making.scope
        self.undisturbed = undisturbed
        self.batches, self.loop, self.use = (
            batch_making.scope.batches,
            batch_making.loop,
            batch_making.use,
        )
        sent_part: Floats | float = 0.0
        took, self._own_part = batch_making.took_ns, batch_making.own_part
        if undisturbed is not None:
            self.batches, self.use = undisturbed.batches, batch_making.use.without_others
            self.loop = _loop_of(batch_making.loop, self.batches)
            took, sent_part = took * undisturbed.own_part, undisturbed.sent_part
            self._own_part = np.minimum(batch_making.own_part / undisturbed.own_part, 1.0)
        waits = split_waits(self.batches, batch_making, sent_part)
        self.sending, self.pinning = waits.sending, waits.pinning
        self.handover, self.index = waits.handover, waits.index
        self.phases = waits.phases
        self._without_record = waits.unrecorded_ns
        of_iter = float_column(self.loop, "iter_sampler_ns")
        in_iter = min(total(of_iter), self.iter_ns)
        self.drawn_ns = in_iter + waits.drawn_ns
        drawing = float_column(self.scope.waits, "sampler_ns")
        known = np.isfinite(drawing).any() and not self.scope.partial
        self.sampler_ns = in_iter + total(drawing) if known else math.nan
        self.drawn_in_iter_ns = in_iter if np.isfinite(of_iter).any() else math.nan
        self.first_excess_ns = waits.first_excess_ns
        self.startup = {
            "iter_ns": self.iter_ns - in_iter,
            "workers_ns": waits.workers_ns,
            "first_batch_ns": waits.first_batch_ns,
            "first_send_ns": waits.first_send_ns,
        }
        # The wait for each nanosecond of making: of all of it, and of it without delays by others.
        rate = waits.making / batch_making.took_ns
        self._rate = long_arrays.kept(waits.making / took)[:, None]
        self.making_waits = long_arrays.zeros(batch_making.components.parts.shape)
        for rows in blocks(len(self.making_waits)):
            self.making_waits[rows] = rate[rows, None] * batch_making.components.parts[rows]
        # Of `making_waits`, before any cause took its part.
        self.all_making_ns = total(waits.making)
        self.delay_share = 0.0  # of `making_waits`, that was taken for other programs
        self.usual_steps: Bools | None = None  # after which waits; None: there are no long ones
        self.long_steps_ns = 0.0  # of the step, beyond usual ones
        self.step_short_ns = 0.0  # of the step, waiting for the few cores that the program may use
        self.lost_to_threads = 0.0  # of `making_waits`, that threads which compete for cores lost
        self.sent_late = 0.0  # of the sending, for the same reason
        self._excess_without_core: list[Floats] = []  # of outliers of each kind (r, c)
        self.charged_ns = 0.0  # of waits and start-up, `iter()` included
        self.step_left_ns = self.step_ns  # that no cause has taken
        self.crowded_first_ns = self._crowded_first()
        self.start_without_core = self._start_without_core()
        self.waits_without_core = self._delivery_without_core()

    @property
    def iter_ns(self) -> float:
        """Time blocked in `iter()`."""
        return total(float_column(self.loop, "iter_ns"))

    @property
    def wait_ns(self) -> float:
        """Time blocked in `next`."""
        return total(float_column(self.loop, "wait_ns"))

    @property
    def step_ns(self) -> float:
        """Time in the training step."""
        return total(float_column(self.loop, "step_ns"))

    @property
    def own_ns(self) -> float:
        """Time of lotus's own work in the training step, which an untraced run does not have."""
        return min(total(float_column(self.loop, "own_ns")), self.step_ns)

    @property
    def tail_ns(self) -> float:
        """Time from the last batch of each epoch to its end."""
        return total(float_column(self.loop, "tail_ns"))

    @property
    def loop_ns(self) -> float:
        """Time of the whole loop."""
        return total(float_column(self.loop, "loop_ns"))

    def storage(self, rows: slice) -> Floats:
        """Return what is left of `making_waits` in which batches waited for storage (n, c)."""
        if self.batch_making.storage is None:
            return np.zeros_like(self.making_waits[rows])
        return np.minimum(
            self._rate[rows] * self.batch_making.storage[rows], self.making_waits[rows]
        )

    @property
    def cold(self) -> Bools:
        """The components that wait for storage (c,)."""
        own, waited = (np.zeros(self.making_waits.shape[1]) for _ in range(2))
        for rows in blocks(len(self.making_waits)):
            own += (self.making_waits[rows] * self._own_part[rows, None]).sum(axis=0)
            waited += self.storage(rows).sum(axis=0)
        return np.asarray((waited > 0) & (waited >= COLD_SHARE * own), np.bool_)

    def _crowded_first(self) -> float:
        """Take from the start-up what first batches lost to threads that compete for the cores.

        Workers lose it in each batch, so it is no cost of starting them.
        """
        if not self.use.fetch.crowded or not self.scope.num_workers:
            return 0.0
        ns = float(np.nan_to_num(self.startup["first_batch_ns"] * self.use.fetch.lost_share))
        self.startup["first_batch_ns"] -= ns
        self.first_excess_ns *= 1.0 - float(np.nan_to_num(self.use.fetch.lost_share))
        return ns

    def _start_without_core(self) -> float:
        """Return how long starting took in which others had a core that it was ready to run on.

        In `iter()` it is the main process that waits for a core, as when it forks; afterwards it
        waits for its workers.
        """
        if not self.use.rivals:
            return 0.0
        workers = self.scope.workers
        wall = float_column(workers, "ready_ns") - float_column(workers, "start_ns")
        delay = float_column(workers, "startup_delay_ns")
        known = ~np.isnan(wall + delay)
        part = min(ratio(total(delay[known]), total(wall[known])), 1.0)
        of_workers = float(np.nan_to_num(part) * self.startup["workers_ns"])
        in_iter = total(float_column(self.loop, "iter_run_delay_ns"))
        return of_workers + min(in_iter, self.startup["iter_ns"])

    @property
    def end_without_core(self) -> float:
        """How long others had the cores during shut-downs, ns.

        The main process is blocked then, and workers that end are not measured. They are taken to
        lack cores for the same share of their time as the process that starts them.
        """
        started = self.startup["iter_ns"] + self.startup["workers_ns"]
        return self.tail_ns * min(self.start_without_core / started, 1.0) if started > 0 else 0.0

    def _delivery_without_core(self) -> float:
        """Take the waits for batches that were made, in which others had the main process's core.

        This comes before sending and hand-over are charged, which these waits would be part of. If
        the program itself keeps the cores busy, its own workers may have had the core, unless
        processes that make no batches did.
        """
        taken = self.use.kept or (self.use.others and not self.use.full)
        if not taken:
            return 0.0
        ns = total(float_column(self.scope.waits, "wait_run_delay_ns"))
        if not self.scope.num_workers:  # the making of batches is part of these waits
            ns -= total(float_column(self.scope.batches, "run_delay_ns"))
        return self.take_delivery(max(ns, 0.0))

    @property
    def left(self) -> Floats:
        """The part of each batch's wait and of the step after it that is not charged (n,), ns."""
        step = np.nan_to_num(float_column(self.batches, "step_ns"))
        step = step * ratio(self.step_left_ns, self.step_ns)
        other_waits = self.sending + self.pinning + self.handover + self.index
        return np.asarray(self.making_waits.sum(axis=1) + other_waits + step, np.float64)

    def take_step(self) -> float:
        """Take what is left of the training step."""
        ns, self.step_left_ns = self.step_left_ns, 0.0
        return ns

    def take_long_steps(self, long: LongSteps) -> float:
        """Take what long steps took beyond usual ones, as far as it is left; return how much."""
        self.usual_steps = ~long.rows
        self.long_steps_ns = long.excess_ns * min(ratio(self.step_left_ns, self.step_ns), 1.0)
        self.step_left_ns -= self.long_steps_ns
        return self.long_steps_ns

    def take_share_of_step(self, share: float) -> float:
        """Take this share of what is left of the training step; return how much it was."""
        ns = self.step_left_ns * share
        self.step_left_ns -= ns
        return ns

    def take_phase(self, name: str) -> float:
        """Take what is left of `sending`, `pinning`, `handover` or `index`."""
        ns = total(getattr(self, name))
        setattr(self, name, np.zeros(len(self.scope.batches)))
        return ns

    @property
    def received_cpu_ns(self) -> float:
        """CPU time of the main process in `next`, except for its work after a batch has arrived.

        NaN: not measured.
        """
        cpu = float_column(self.scope.waits, "wait_cpu_ns")
        if not np.isfinite(cpu).any():
            return math.nan
        return max(total(cpu) - total(self.handover), 0.0)

    def take_sending(self) -> float:
        """Take what is left of the sending, except the time without a core.

        How long a worker's feeder thread had no core is not measured. If others have the cores, or
        the threads of the workers compete for them, it is the time that neither its bytes nor the
        CPU time of the main process in `next`, which receives the batch, account for.
        """
        crowded = self.use.fetch.crowded and self.scope.num_workers > 0
        if self.use.others or self.use.kept or crowded:
            late = self.take_late_sending()
            # The workers' threads cause the share that they cause of the making, others the rest.
            lost = self.use.fetch.lost_share if crowded and self.use.rivals else 1.0 * crowded
            self.sent_late += late * lost
            self.waits_without_core += late * (1.0 - lost)
        return self.take_phase("sending")

    def take_late_sending(self) -> float:
        """Take what neither the bytes nor the CPU time of receiving account for of the sending."""
        size = np.nan_to_num(float_column(self.scope.batches, "send_bytes"), nan=math.inf)
        kept = np.minimum(self.sending, _SENDING_NS + _SENDING_NS_PER_BYTE * size)
        more = ratio(self.received_cpu_ns - total(kept), total(self.sending - kept))
        kept += (self.sending - kept) * float(np.clip(np.nan_to_num(more), 0.0, 1.0))
        late = total(self.sending - kept)
        self.sending = kept
        return late

    def take(self, part: Callable[[slice], Floats]) -> float:
        """Take from `making_waits`, as far as there is as much; return how much it was.

        `part` returns how much to take from a slice of the batches (n, c).
        """
        ns = 0.0
        for rows in blocks(len(self.making_waits)):
            taken = np.minimum(part(rows), self.making_waits[rows])
            self.making_waits[rows] -= taken
            ns += total(taken)
        return ns

    def take_share(self, share: float) -> float:
        """Take this share of `making_waits`; return how much it was."""
        return self.take(lambda rows: self.making_waits[rows] * share)

    def take_share_with_core(self, share: float) -> float:
        """Take this share of `making_waits`; return the part in which others did not have its core.

        The other part is charged to those who had it.
        """
        own = 0.0
        for rows in blocks(len(self.making_waits)):
            own += total(self.making_waits[rows] * self._own_part[rows, None]) * share
        ns = self.take_share(share)
        if not self.use.rivals:
            return ns
        self.waits_without_core += ns - own
        return own

    def take_delivery(self, ns: float) -> float:
        """Take from the waits for batches that were made; return how much it was."""
        delivery = total(self.sending) + total(self.handover)
        part = min(ratio(ns, delivery), 1.0) if delivery > 0 else 0.0
        self.sending = self.sending * (1.0 - part)
        self.handover = self.handover * (1.0 - part)
        return part * delivery

    def take_handover(self, ns: float) -> float:
        """Take from the work of the main process in `next`; return how much it was."""
        handover = total(self.handover)
        part = min(ratio(ns, handover), 1.0) if handover > 0 else 0.0
        self.handover = self.handover * (1.0 - part)
        return part * handover

    def take_held(self, share: float) -> float:
        """Take this share of all waits but the start-up; return how much it was.

        It is first taken from waits for batches that were already made: work of the main process.
        """
        delivery = total(self.sending) + total(self.handover)
        making = total(self.making_waits)
        wanted = share * (delivery + making)
        of_delivery = self.take_delivery(wanted)
        of_making = min(ratio(wanted - of_delivery, making), 1.0) if making > 0 else 0.0
        self.making_waits = self.making_waits * (1.0 - of_making)
        return of_delivery + of_making * making

    def take_component(self, column: int) -> float:
        """Take all that is left of a component."""
        ns = total(self.making_waits[:, column])
        self.making_waits[:, column] = 0.0
        return ns

    @cached_property
    def better_prefetch(self) -> Prefetch:
        """The prefetch factor that hides costly batches which come again; NOTHING if none does.

        NOTHING also if no core is left: making batches further ahead would need one.
        """
        if self.use.full:
            return NOTHING
        epochs = None
        if self.undisturbed is not None:
            epochs = undisturbed_epochs(self.scope, self.batch_making.use)
        return enough_prefetch(self.scope, self.batch_making.slow_every > 0, epochs)

    def take_excess(self, kind: int) -> Excess:
        """Take what outliers of a kind took beyond what is typical of their worker.

        `kind`: ALONE, BY_CHANCE or TOGETHER. Their time without a core is left for
        `take_excess_without_core`.
        """
        affected, of_kinds = self.batch_making.excess
        parts, without_core = of_kinds[kind], 0.0
        if self.batch_making.use.rivals:
            own = self.batch_making.with_core(parts)
            lacking, parts = parts * (1.0 - own), parts * own
            if self.use.rivals:
                self._excess_without_core.append(lacking)
                waited = self._rate[affected] * lacking
                without_core = total(np.minimum(waited, self.making_waits[affected]))
        return self._excess(self._take_of_affected(parts), parts.sum(axis=0), without_core)

    def take_beyond_usual(self, costly: Bools) -> Excess:
        """Take what these batches (n,) took beyond a usual one, as far as it is left."""
        fetch, known = self.batch_making.components.fetch, self.batch_making.known & costly
        usual = float(np.median(fetch[self.batch_making.known])) if known.any() else 0.0
        beyond = np.zeros(len(fetch))
        beyond[known] = np.maximum(1.0 - usual / fetch[known], 0.0) * self._own_part[known]
        each = np.zeros(self.making_waits.shape[1])
        for rows in blocks(len(self.making_waits)):
            each += (self.making_waits[rows] * beyond[rows, None]).sum(axis=0)
        return self._excess(
            self.take(lambda rows: self.making_waits[rows] * beyond[rows, None]), each
        )

    def _excess(self, taken_ns: float, each: Floats, without_core: float = 0.0) -> Excess:
        """Return the excess that was taken; `each`: how much of it each component had (c,)."""
        most = int(np.argmax(each)) if each.size else 0
        named = each.size and each[most] > 0.5 * each.sum()
        within = self.batch_making.components.names[most] if named else ""
        return Excess(taken_ns, within, without_core)

    def take_excess_without_core(self) -> float:
        """Take what is left of the outliers' time without a core; return how much it was."""
        parts, self._excess_without_core = self._excess_without_core, []
        return sum(map(self._take_of_affected, parts))

    def _take_of_affected(self, parts: Floats) -> float:
        """Take from the batches that have outliers, as far as they were waited for (r, c)."""
        affected = self.batch_making.excess[0]

        def taken(rows: slice) -> Floats:
            mine = slice(*np.searchsorted(affected, (rows.start, rows.stop)))
            result = np.zeros(self.making_waits[rows].shape)
            result[affected[mine] - rows.start] = self._rate[affected[mine]] * parts[mine]
            return result

        return self.take(taken)

    @property
    def uncharged_ns(self) -> float:
        """Waits of batches that have no record, and waits that no cause has taken."""
        left = self.wait_ns + self.iter_ns - self.charged_ns
        return max(self._without_record, left, 0.0)

    def take_rest(self) -> float:
        """Take what no cause has taken."""
        rest, self._without_record = self.uncharged_ns, 0.0
        return rest


def _loop_of(recorded: pd.DataFrame, batches: pd.DataFrame) -> pd.DataFrame:
    """Return the epochs that have waits in `batches`, with their sums; their edges as recorded."""
    waited = np.isfinite(float_column(batches, "wait_ns"))
    sums = batches[waited].groupby(["rank", "epoch"], as_index=False)[["wait_ns", "step_ns"]].sum()
    loop = recorded.drop(columns=["wait_ns", "step_ns"]).merge(sums, on=["rank", "epoch"])
    parts = ("iter_ns", "wait_ns", "step_ns", "tail_ns")
    return loop.assign(loop_ns=sum(loop[name] for name in parts))
