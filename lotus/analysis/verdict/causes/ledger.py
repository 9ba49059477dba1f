"""The time of a loop, from which every cause takes its part in turn; pure accounting.

Every nanosecond of the loop is charged once: to the training step, to the start-up, to the
shut-down or, for each wait, to what kept its batch away. Outliers (a few slow samples, batches that
were slow as a whole, one slow worker, files read from cold storage) take what they cost beyond the
ordinary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from lotus.analysis.batches.components import (
    components,
    core_taken,
    first_excess,
    first_of_process,
    interpreter_held,
    off_cpu,
    slow_workers,
    storage_parts,
)
from lotus.analysis.batches.sampler_draws import drawn_ns
from lotus.analysis.batches.waits import PHASES, loop_times, paced, wait_phases
from lotus.analysis.common.columns import (
    Bools,
    Floats,
    Ints,
    blocks,
    flag,
    integer,
    mean,
    number,
    ratio,
    total,
)
from lotus.analysis.common.scope import Scope
from lotus.analysis.data.repeated_samples import divided_data
from lotus.analysis.machine.core_use import CoreUse, core_use
from lotus.analysis.observations.looks import looks_of_main
from lotus.analysis.observations.step_lock import step_lock
from lotus.analysis.replay.prefetch_replay import NOTHING, Prefetch, enough_prefetch
from lotus.analysis.replay.undisturbed_epochs import (
    UndisturbedLoop,
    undisturbed_epochs,
    undisturbed_loop,
)
from lotus.analysis.samples.outlier_samples import (
    costliest,
    outlier_parts,
    outlier_samples,
    regular_distance,
)
from lotus.analysis.samples.slow_batches import slow_as_a_whole
from lotus.analysis.verdict.causes.hidden_waits import HiddenWaits
from lotus.common import long_arrays
from lotus.common.long_arrays import kept

# An operation is cold where at least this much of its time went to storage; time in which others
# had its core does not count.
COLD_SHARE = 0.3
# Workers that use this much of the cores wait for a core, not for storage or a network.
CROWDED = 0.7
# Kinds of outliers, as `Outliers` has them.
ALONE, BY_CHANCE, TOGETHER = range(3)
# The longest that sending takes with a core; of tensors, the pipe has little but their names.
_SENDING_NS, _SENDING_NS_PER_BYTE = 2e6, 100.0
# Others had the cores where they did for more than this share of the time of the fetches.
SHARED = 0.2


class Excess(NamedTuple):
    """What outliers took beyond what is typical, as far as it was waited for."""

    ns: float
    within: str  # the component that most of it was in; "": none
    without_core: float  # beside `ns`: that others had the core, nanoseconds
    hidden_ns: float  # the loop would wait for it, had other programs not slowed the steps down


class Ledger:
    """What is left of a loop's time: nanoseconds, per batch (n,) or per batch and component (n, c).

    `making`: waits in which a batch was being made. The other waits: `sending`, `pinning`,
    `handover`, `index`, and in `startup` the parts of the start-up. `take` hands out what is left
    of `making`, `take_phase` what is left of the others. `drawn_ns`: what the sampler took before
    the first batches, in `iter()` or, without workers, in `next`. `phases`: sums of `wait_phases`.

    Of a million batches a matrix takes 100 MB: none is made but to be kept.
    """

    def __init__(self, scope: Scope) -> None:
        batches = scope.batches
        self.scope = scope
        self.use = core_use(scope)
        self.shares = divided_data(scope)
        self.looks_of_main = looks_of_main(scope)
        self.loop = loop_times(scope.epochs, scope.waits)
        self.step_lock = step_lock(scope, self.looks_of_main.tell)
        self.components = components(batches, scope.fetched, scope.calls)
        self.first = first_of_process(batches, scope.workers)
        self.crowded = _crowded(scope, self.use)
        whole = slow_as_a_whole(scope).whole
        self.outliers = outlier_samples(scope, self.first, whole)
        self.workers = slow_workers(batches, self.components.fetch, self.first)
        fetch = self.components.fetch
        # In the order of their worker, one in so many samples is slow; 0: not regularly.
        self.slow_every = 0
        if self.outliers.alone.any():
            of_all = costliest(self.outliers, self.outliers.alone)
            chosen = self.outliers.samples.iloc[of_all].reset_index(drop=True)
            self.slow_every = regular_distance(scope.fetched.times(), chosen)
        self._known = fetch > 0
        self._making_ns = kept(np.where(self._known, self.components.making, 1.0))
        excess = first_excess(batches, fetch, self.first)
        self.held = kept(np.minimum(interpreter_held(batches, fetch), fetch - excess))
        # The part of each fetch in which others did not have its core.
        taken = core_taken(batches, fetch) / np.where(self._known, fetch, 1.0)
        self.own_part = kept(1.0 - np.minimum(taken, 1.0))
        self.delay_share = 0.0  # of `making`, that was taken for other programs
        self.step_short_ns = 0.0  # of the step, waiting for the few cores that the program may use
        self.lost_to_threads = 0.0  # of `making`, that threads which fight for the cores lost
        self._excess_without_core: list[Floats] = []  # of outliers of each kind (r, c)
        self.charged_ns = 0.0  # of waits and start-up, `iter()` included
        self.step_left_ns = self.step_ns  # that no cause has taken
        self._split_waits(excess)
        self.making = long_arrays.zeros(self.components.parts.shape)
        for rows in blocks(len(self.making)):
            self.making[rows] = self._rate[rows] * self.components.parts[rows]
        self.crowded_first_ns = self._crowded_first()
        self.start_without_core = self._start_without_core()
        self._storage = self._storage_limit()
        self.made_without_core = self._made_without_core()
        self.hidden = HiddenWaits(self.undisturbed, self.components.parts, self.own_part)

    @property
    def stalls_held(self) -> bool:
        """Whether a thread that keeps the interpreter for 5 ms at a time causes what is slow by
        chance."""
        return self.looks_of_main.tell and not self.scope.num_workers

    @property
    def iter_ns(self) -> float:
        """Blocked in `iter()`."""
        return total(number(self.loop, "iter_ns"))

    @property
    def wait_ns(self) -> float:
        """Blocked in `next`."""
        return total(number(self.loop, "wait_ns"))

    @property
    def step_ns(self) -> float:
        """In the training step."""
        return total(number(self.loop, "step_ns"))

    @property
    def own_ns(self) -> float:
        """Of the training step: lotus's own work, which an untraced run does not have."""
        return min(total(number(self.loop, "own_ns")), self.step_ns)

    @property
    def tail_ns(self) -> float:
        """From the last batch of each epoch to its end."""
        return total(number(self.loop, "tail_ns"))

    @property
    def loop_ns(self) -> float:
        """All of the loop."""
        return total(number(self.loop, "loop_ns"))

    def _split_waits(self, excess: Floats) -> None:
        batches = self.scope.batches
        phases = wait_phases(batches, self.scope.workers)
        self.phases = {name: total(number(phases, name)) for name in PHASES}
        charged = {
            name: column.to_numpy() for name, column in paced(phases, batches, self.first).items()
        }
        del phases
        making = np.where(self._known, charged["making"], 0.0)
        unknown = total(np.where(self._known, 0.0, charged["making"]))
        self._without_record = total(charged["unseen"]) + unknown
        lazily = making * excess / self._making_ns
        making = making - lazily
        # The first pickling of a process imports what it needs.
        pickle_excess = first_excess(batches, number(batches, "pickle_ns"), self.first)
        late = np.minimum(charged["sending"], pickle_excess)
        charged["sending"] = charged["sending"] - late

        # The first batch of an epoch is waited for whatever the pipeline: its making is start-up,
        # but for as much as later ones are waited for as well. Those come one from each worker, so
        # that a batch which takes as long is waited for by as many of them together; unless what
        # workers have prefetched is thrown away, which the next first batch could have been.
        first = flag(batches, "first")
        drawn = np.zeros(len(batches))
        if not self.scope.num_workers:  # nothing else comes before the making of a first batch
            before = number(batches, "fetch_start_ns") - number(batches, "wait_start_ns")
            before = np.clip(np.nan_to_num(before), 0.0, charged["handover"])
            drawn = np.where(first, before, 0.0)
            charged["handover"] = charged["handover"] - drawn
        rest = making + charged["sending"] + charged["pinning"] + charged["handover"]
        later = ~first & ~np.isnan(number(batches, "wait_ns"))
        fill, steady = mean(rest[first]), mean((rest - charged["handover"])[later])
        shared = 1 if self.scope.each_is_left else max(self.scope.num_workers, 1)
        alike = min(float(np.nan_to_num(steady)) * shared / fill, 1.0) if fill > 0 else 1.0
        weight = np.where(first, alike, 1.0)
        making, self.sending, self.pinning, self.handover = (
            kept(part * weight)
            for part in (making, charged["sending"], charged["pinning"], charged["handover"])
        )
        self.index = kept(charged["index"])
        in_iter = drawn_ns(self.scope, self.loop)
        self.drawn_ns = in_iter + total(drawn)
        self.first_excess_ns = total(lazily)  # of `first_batch_ns`: beyond later batches
        self.startup = {
            "iter_ns": self.iter_ns - in_iter,
            "workers_ns": total(charged["startup"]),
            "first_batch_ns": total(lazily) + total(rest * (1.0 - weight)),
            "first_send_ns": total(late),
        }
        # Pickling that stopped a fetch belongs to the sending.
        held = making * self.held / self._making_ns
        self.sending = kept(self.sending + held)
        # The excess of a first batch is already charged: the rest is split in proportion.
        self._rate = kept((making - held) / self._making_ns)[:, None]

    def _storage_limit(self) -> Floats | None:
        scope, split = self.scope, self.components
        if self.crowded:
            return None
        kinds = scope.operations
        names: set[str] = set()
        if len(kinds):
            names = set(kinds.loc[kinds["kind"].astype(str) == "loader", "operation"].astype(str))
        parts = storage_parts(split, scope.batches, names, self.held, self.first)
        if parts is not None:
            parts *= self._rate
        return parts

    def storage(self, rows: slice) -> Floats:
        """What is left of `making` in which these batches waited for storage (n, c)."""
        limit: float | Floats = 0.0 if self._storage is None else self._storage[rows]
        return np.minimum(limit, self.making[rows])

    @property
    def cold(self) -> Bools:
        """The components that wait for storage (c,)."""
        own, waited = (np.zeros(len(self.components.names)) for _ in range(2))
        for rows in blocks(len(self.making)):
            own += (self.making[rows] * self.own_part[rows, None]).sum(axis=0)
            waited += self.storage(rows).sum(axis=0)
        return np.asarray((waited > 0) & (waited >= COLD_SHARE * own), np.bool_)

    def _crowded_first(self) -> float:
        """Take from the start-up what first batches lost to threads that fight for the cores.

        Workers lose it in each batch, so it is no cost of starting them.
        """
        if not self.use.fetch.crowded or not self.scope.num_workers:
            return 0.0
        ns = float(np.nan_to_num(self.startup["first_batch_ns"] * self.use.fetch.lost_share))
        self.startup["first_batch_ns"] -= ns
        self.first_excess_ns *= 1.0 - float(np.nan_to_num(self.use.fetch.lost_share))
        return ns

    def _start_without_core(self) -> float:
        """How long the loop waited for workers that start while others had their core."""
        workers = self.scope.workers
        wall = number(workers, "ready_ns") - number(workers, "start_ns")
        delay = number(workers, "startup_delay_ns")
        known = ~np.isnan(wall + delay)
        part = min(ratio(total(delay[known]), total(wall[known])), 1.0)
        return float(np.nan_to_num(part) * self.startup["workers_ns"]) if self.use.rivals else 0.0

    def _made_without_core(self) -> float:
        """Take the waits for batches that were made, in which others had the main process's core.

        Before the sending and the hand-over are charged, of which they would be a part. On cores
        that the program itself keeps busy, its own workers may have had it.
        """
        if not self.use.others or self.use.full or not self.scope.num_workers:
            return 0.0
        return self.take_made(total(number(self.scope.waits, "wait_run_delay_ns")))

    @property
    def left(self) -> Floats:
        """What no cause has taken of each batch's wait and of the step after it (n,), ns."""
        step = np.nan_to_num(number(self.scope.batches, "step_ns"))
        step = step * ratio(self.step_left_ns, self.step_ns)
        made = self.sending + self.pinning + self.handover + self.index
        return np.asarray(self.making.sum(axis=1) + made + step, np.float64)

    def take_step(self) -> float:
        """Take what is left of the training step."""
        ns, self.step_left_ns = self.step_left_ns, 0.0
        return ns

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
        """CPU time of the main process in `next`, but for what it does there once a batch is here.

        NaN: not measured.
        """
        cpu = number(self.scope.waits, "wait_cpu_ns")
        if not np.isfinite(cpu).any():
            return math.nan
        return max(total(cpu) - total(self.handover), 0.0)

    def take_sending(self) -> float:
        """Take what is left of the sending, but what others kept from the cores.

        What a worker's feeder thread was without a core is not measured: on cores that others have,
        it is what neither its bytes nor the CPU time of the main process in `next`, which receives
        the batch, account for.
        """
        if self.use.others:
            size = np.nan_to_num(number(self.scope.batches, "send_bytes"), nan=math.inf)
            kept = np.minimum(self.sending, _SENDING_NS + _SENDING_NS_PER_BYTE * size)
            more = ratio(self.received_cpu_ns - total(kept), total(self.sending - kept))
            kept += (self.sending - kept) * float(np.clip(np.nan_to_num(more), 0.0, 1.0))
            self.made_without_core += total(self.sending - kept)
            self.sending = kept
        return self.take_phase("sending")

    def take(self, part: Callable[[slice], Floats]) -> float:
        """Take from `making`, as far as there is as much; return how much it was.

        `part` tells of some batches how much is to be taken (n, c).
        """
        ns = 0.0
        for rows in blocks(len(self.making)):
            taken = np.minimum(part(rows), self.making[rows])
            self.making[rows] -= taken
            ns += total(taken)
        return ns

    def take_share(self, share: float) -> float:
        """Take this share of `making`; return how much it was."""
        return self.take(lambda rows: self.making[rows] * share)

    def take_made(self, ns: float) -> float:
        """Take from the waits for batches that were made; return how much it was."""
        made = total(self.sending) + total(self.handover)
        part = min(ratio(ns, made), 1.0) if made > 0 else 0.0
        self.sending = self.sending * (1.0 - part)
        self.handover = self.handover * (1.0 - part)
        return part * made

    def take_handover(self, ns: float) -> float:
        """Take from the work of the main process in `next`; return how much it was."""
        handover = total(self.handover)
        part = min(ratio(ns, handover), 1.0) if handover > 0 else 0.0
        self.handover = self.handover * (1.0 - part)
        return part * handover

    def take_held(self, share: float) -> float:
        """Take this share of all waits but the start-up; return how much it was.

        First of those in which the batch was made already: what the main process does itself.
        """
        made = total(self.sending) + total(self.handover)
        making = total(self.making)
        wanted = share * (made + making)
        of_made = self.take_made(wanted)
        of_making = min(ratio(wanted - of_made, making), 1.0) if making > 0 else 0.0
        self.making = self.making * (1.0 - of_making)
        return of_made + of_making * making

    def take_component(self, place: int) -> float:
        """Take all that is left of a component."""
        ns = total(self.making[:, place])
        self.making[:, place] = 0.0
        return ns

    @cached_property
    def undisturbed(self) -> UndisturbedLoop:
        """The loop without other programs."""
        return undisturbed_loop(self.scope, self.use)

    @cached_property
    def better_prefetch(self) -> Prefetch:
        """The prefetch factor that hides costly batches which come again; NOTHING where none does.

        What is made ahead would need a core: nothing where there is none left.
        """
        if self.use.full:
            return NOTHING
        waits = self.undisturbed.waits_for_data
        epochs = undisturbed_epochs(self.scope, self.use) if waits else ()
        return enough_prefetch(self.scope, self.slow_every > 0, epochs)

    @cached_property
    def _excess(self) -> tuple[Ints, list[Floats]]:
        """What the outliers took beyond what is typical: alone, by chance, together."""
        return outlier_parts(self.components, self.scope, self.outliers)

    def take_excess(self, kind: int) -> Excess:
        """Take what outliers of a kind took beyond what is typical of their worker.

        `kind`: ALONE, BY_CHANCE or TOGETHER. What they were without a core is left, for
        `take_excess_without_core`.
        """
        affected, parts = self._excess[0], self._excess[1][kind]
        without_core = 0.0
        if self.use.rivals:
            excess = np.zeros(len(self.own_part))
            excess[affected] = parts.sum(axis=1)
            own = _of_the_samples(excess, self.own_part, self.components.fetch)[affected]
            self._excess_without_core.append(parts * (1.0 - own))
            waited = self._rate[affected] * self._excess_without_core[-1]
            without_core = total(np.minimum(waited, self.making[affected]))
            parts = parts * own
        each = parts.sum(axis=0)
        most = int(np.argmax(each)) if each.size else 0
        named = each.size and each[most] > 0.5 * each.sum()
        within = self.components.names[most] if named else ""
        return Excess(self._take_of_affected(parts), within, without_core, self.hidden.take(each))

    def take_excess_without_core(self) -> float:
        """Take what is left of what outliers were without a core; return how much it was."""
        parts, self._excess_without_core = self._excess_without_core, []
        return sum(map(self._take_of_affected, parts))

    def _take_of_affected(self, parts: Floats) -> float:
        """Take from the batches that have outliers, as far as they were waited for (r, c)."""
        affected = self._excess[0]

        def taken(rows: slice) -> Floats:
            mine = slice(*np.searchsorted(affected, (rows.start, rows.stop)))
            result = np.zeros(self.making[rows].shape)
            result[affected[mine] - rows.start] = self._rate[affected[mine]] * parts[mine]
            return result

        return self.take(taken)

    def lag(self) -> Floats:
        """The fraction of each batch's making that is owed to its worker being slow (n,)."""
        batches, slow = self.scope.batches, self.workers[self.workers["slow"]]
        if not len(slow):
            return np.zeros(len(batches))
        keys = {"rank": integer(batches, "rank"), "worker": integer(batches, "worker")}
        joined = pd.DataFrame(keys).merge(slow, on=["rank", "worker"], how="left")
        return np.nan_to_num(1.0 - 1.0 / joined["times"].to_numpy(np.float64))

    @property
    def uncharged_ns(self) -> float:
        """Waits of batches that have no record, and waits that no cause has taken."""
        left = self.wait_ns + self.iter_ns - self.charged_ns
        return max(self._without_record, left, 0.0)

    def take_rest(self) -> float:
        """Take what no cause has taken."""
        rest, self._without_record = self.uncharged_ns, 0.0
        return rest


def _of_the_samples(excess: Floats, own_part: Floats, fetch: Floats) -> Floats:
    """The part of each batch's excess in which others did not have its core (n, 1), 0 to 1.

    What the batch was without a core beyond what is usual for batches without an excess.
    """
    delay = (1.0 - own_part) * fetch
    without = (excess <= 0) & (fetch > 0)
    usual = float(np.median(delay[without])) if without.any() else 0.0
    beyond = np.maximum(delay - usual, 0.0) / np.where(excess > 0, excess, np.inf)
    return np.asarray(1.0 - np.minimum(beyond, 1.0))[:, None]


def _crowded(scope: Scope, use: CoreUse) -> bool:
    if np.isfinite(use.own_share):
        return use.full
    # Of a partly recorded loop the mean stands for all batches.
    used = mean(number(scope.batches, "cpu_ns")) * len(scope.waits)
    loop_ns = total(number(loop_times(scope.epochs, scope.waits), "loop_ns"))
    return ratio(used, loop_ns * scope.cores) > CROWDED


def core_shared(scope: Scope, use: CoreUse) -> float:
    """How much of the workers' time off a core others had it; 0.0 where that is of no weight.

    Where the program itself keeps the cores busy, it is its own workers that wait for one another.
    """
    fetch = np.nan_to_num(number(scope.batches, "fetch_ns"))
    taken, off = (total(part(scope.batches, fetch)) for part in (core_taken, off_cpu))
    if taken < SHARED * total(fetch) or _crowded(scope, use):
        return 0.0
    return ratio(taken, taken + off)
