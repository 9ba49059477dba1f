"""The speed-up of a loop by other settings, predicted by a replay from its own times."""

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import pandas as pd

from lotus.analysis.batches.waits import loop_times
from lotus.analysis.common.columns import flag, float_column, median, ratio, total
from lotus.analysis.common.scope import Scope
from lotus.analysis.machine.core_use import FULL
from lotus.analysis.machine.cpu_sums import busy_waiting_ns, helpers_ns, idle_helpers_ns, workers_ns
from lotus.analysis.machine.undelayed_steps import undelayed_step
from lotus.analysis.replay.loader_replay import replay
from lotus.analysis.replay.recorded_epochs import LEAST_BATCHES, RecordedEpoch, recorded_epochs
from lotus.common.numbers import bootstrap
from lotus.common.numbers.array_types import Floats

_DRAWS = 64
_LEAST_OF_EPOCH = 3  # batches; of all epochs there must be LEAST_BATCHES
_MOST_BATCHES = 1000  # of an epoch that is drawn
_SEED = 0  # reports of the same run do not differ
# A replay with the present settings must come this near to the measured time of the loops.
_TOLERANCE = 0.15
# The cost of workers of a loop that had none, if no other loader of the run had any: from the start
# of the first worker to that of the next and of a worker, and their end. At worst so many times.
_BETWEEN_NS, _START_NS, _END_NS, _AT_WORST = 10e6, 50e6, 30e6, 2.0
# What a batch then costs its worker, and again the loop, by being sent: of two tensors, and at
# worst (tools/bench/results/gains.md, what sending costs).
_SENDING_NS, _SENDING_NS_PER_BYTE, _SENDING_AT_WORST = 0.8e6, 0.4, 2.0
# Times as long as before, of work beside which more than half of the cores compute: they share
# power, caches and memory, and often two of them are one core (on a VM, this is not told).
_BESIDE_OTHERS, _BESIDE_OTHERS_AT_WORST = 1.15, 1.4
_LEAST_HELPERS = 0.2  # cores that a step's other threads use: it computes in several
# Times as long as before, of a step in several threads that wait for each other, while workers
# share its cores: twice, as each of two that share a core has half of it. Measured were 2.3 and, on
# a busy machine, up to 4.6 (tools/bench/results/gains.md, two workers beside torch's two threads on
# two cores). Workers share them for twice as long as they need without.
_SHARED_STEP, _SHARED_STEP_AT_WORST = 2.0, 4.5
# Of what other threads of the process used while it made its batches, and may only have waited for
# work: this part is taken to be work, and at worst all. Where a sample has about as much of it as
# they wait busily after an operation of torch, it is taken to be that, and at worst half is work.
_WORK, _WORK_IF_AS_LONG = 0.5, (0.1, 0.5)
_AS_LONG = (0.7, 1.4)  # times as long
# What the making of batches takes in the main process, as a part of what it took in workers, and
# steps of what they took beside them, without delay.
_LESS_MAKING, _MORE_MAKING, _QUICKER_STEPS = 0.75, 1.5, 0.9
_SAVED = 0.95  # of the start-ups and shut-downs that kept workers do without, at least


@dataclass(frozen=True)
class Prediction:
    """The speed-up of the loop, with its 95 % interval; NaN: not predictable.

    `at_best`: it may be anything less, as where it is not known whether the source of the data
    serves as many workers at once. `by_sums`: by sums of times, and not by a replay of the batches.
    """

    gain: float = math.nan
    low: float = math.nan
    high: float = math.nan
    at_best: bool = False
    by_sums: bool = False

    @property
    def is_possible(self) -> bool:
        """True if the gain could be predicted."""
        return math.isfinite(self.gain)

    @property
    def is_shown(self) -> bool:
        """True if all of its interval is a gain."""
        return self.low >= 1.0


UNKNOWN = Prediction()


@dataclass(frozen=True)
class _FirstWorkers:
    """What is taken of workers of a loop that had none; at best as the defaults."""

    start: float = 0.0  # of all workers, and their end: a share of the loops
    sending_ns: float = 0.0  # of each batch, by its worker and again by the loop
    longer: float = 1.0  # times as long as alone: the making of a batch
    shared_step: float = 1.0  # times as long as alone: a step while workers share its cores
    working: float = 0.0  # part of the time in which threads may have only waited, and worked


class GainPrediction:
    """Predictions for one loader. `cores`: those that its processes had, without others' use."""

    def __init__(self, scope: Scope, cores: float) -> None:
        self._scope = scope
        self._cores = cores
        self._workers = scope.num_workers
        self._prefetch = scope.prefetch_factor
        self._changed = lru_cache(self._predicted)  # several causes ask for the same

    def with_workers(self, workers: int, kept: bool = False) -> Prediction:
        """Predict the gain of so many workers, if each batch keeps its worker as long as it did.

        `kept`: if there were no workers, whether they are kept from one epoch to the next. What
        they cost then is estimated, and the interval reaches down to what they may cost at worst.
        """
        return self._changed(workers, self._prefetch, kept)

    def with_prefetch(self, prefetch: int) -> Prediction:
        """Predict the gain of this prefetch factor."""
        return self._changed(self._workers, prefetch, False)

    def with_kept_workers(self) -> Prediction:
        """Predict the gain of saving the start-ups and shut-downs of all epochs but one.

        By sums. At least, all but one epoch save the least of these, less the longest time in which
        a first batch is made and sent, also by kept workers. At best, the last shut-down is after
        the loop.
        """
        epochs, batches = self._scope.epochs, self._scope.batches
        startups, shutdowns = (
            np.nan_to_num(float_column(epochs, name)) for name in ("startup_ns", "shutdown_ns")
        )
        spent, others = total(startups + shutdowns), len(epochs) - 1
        loop = self._loop_ns + self._last_steps_ns()
        if len(self._scope.ranks) > 1 or others < 1 or not loop > spent:
            return UNKNOWN
        came = float_column(batches, "arrival_ns") - float_column(batches, "fetch_start_ns")
        making = float(np.max(np.nan_to_num(came[flag(batches, "first")]), initial=0.0))
        least = others * (max(float(startups.min()) - making, 0.0) + float(shutdowns.min()))
        least *= _SAVED  # to begin an epoch of kept workers takes some of it
        saved = spent * others / len(epochs)
        return Prediction(
            loop / (loop - saved), loop / (loop - least), loop / (loop - spent), by_sums=True
        )

    def without_making(self) -> Prediction:
        """Predict the gain of batches that cost workers nothing, where these fill the cores.

        By sums, as `with_one_thread`: steps take as long as their threads need all cores, or as
        their own thread, or as those that lacked no core. Nobody waits then.
        """
        scope, waits = self._scope, self._scope.waits
        took, waited, own, everything = (
            total(float_column(waits, f"{name}_ns"))
            for name in ("step", "wait", "step_cpu", "step_process_cpu")
        )
        step = max(everything / self._cores, own)
        alone = undelayed_step(waits)
        if alone:
            step = min(step, alone.all_took_ns)
        if scope.partial or len(scope.ranks) > 1 or not 0 < step < took:
            return UNKNOWN
        gain = self._loop_ns / (self._loop_ns - took - waited + step)
        return Prediction(gain, gain, gain, by_sums=True)

    def with_one_thread(self) -> Prediction:
        """Predict the gain of one thread of torch in the training process, beside workers.

        By sums of CPU times, where these fill the cores: the loop takes as long as they do, or as
        its own thread, or as a worker. What torch's other threads use in `next`, where they only
        wait, is saved; of what they use in steps all at best, or nothing, and then the one thread
        does it. Where some steps lacked no core, all take as much of the cores as these at best.
        """
        scope, waits = self._scope, self._scope.waits
        beside, helpers = idle_helpers_ns(scope), helpers_ns(waits, "step")
        of_wait, of_step, all_of_wait, all_of_step = (
            total(float_column(waits, f"{part}_ns"))
            for part in ("wait_cpu", "step_cpu", "wait_process_cpu", "step_process_cpu")
        )
        making = workers_ns(scope)
        work = making + all_of_wait + all_of_step
        partly = scope.partial or len(scope.ranks) > 1 or not beside > 0
        if partly or not work >= FULL * self._cores * self._loop_ns:
            return UNKNOWN
        of_worker = making / max(self._workers, 1)
        worst = max((work - beside) / self._cores, of_wait + of_step + helpers, of_worker)
        alone = undelayed_step(waits)
        if alone:
            of_step = min(of_step, alone.all_process_cpu_ns)
        best = max(
            (making + all_of_wait - beside + of_step) / self._cores,
            of_wait + of_step,
            of_worker,
        )
        middle, low, high = (self._loop_ns / t for t in ((worst + best) / 2, worst, best))
        return Prediction(middle, low, high, by_sums=True)

    def without_start_ups(self) -> Prediction:
        """Predict the gain of no workers, where starting them takes far longer than all batches.

        By sums, as there may be too few batches to replay: of the steps, and of what the making of
        batches takes on a core.
        """
        scope, batches = self._scope, self._scope.batches
        fetch, delay = (float_column(batches, name) for name in ("fetch_ns", "run_delay_ns"))
        making = total(fetch) - total(np.minimum(np.nan_to_num(delay), fetch))
        last = self._last_steps_ns()
        steps = total(float_column(scope.waits, "step_ns")) + last
        delayed = total(float_column(scope.waits, "step_run_delay_ns"))
        if scope.partial or len(scope.ranks) > 1 or not steps + making > 0:
            return UNKNOWN
        loop = self._loop_ns + last
        least = _QUICKER_STEPS * (steps - delayed) + _LESS_MAKING * making
        return Prediction(
            loop / (steps + making),
            loop / (steps + _MORE_MAKING * making),
            loop / least,
            by_sums=True,
        )

    @cached_property
    def _loop_times(self) -> pd.DataFrame:
        return loop_times(self._scope.epochs, self._scope.waits)

    @cached_property
    def _loop_ns(self) -> float:
        return total(float_column(self._loop_times, "loop_ns"))

    def _last_steps_ns(self) -> float:
        """Training steps after the last batches of epochs that were left, ns.

        Each is taken to be as long as the others; if there are no others, to last until the next
        epoch begins.
        """
        loop = self._loop_times.sort_values("start_ns", kind="stable")
        left = ~flag(loop, "exhausted")[:-1]
        over = float_column(loop, "last_ns") + float_column(loop, "shutdown_ns")
        until = np.maximum(float_column(loop, "start_ns")[1:] - over[:-1], 0.0)[left]
        steps = float_column(self._scope.waits, "step_ns")
        steps = steps[steps > 0]
        return total(np.minimum(until, np.median(steps)) if steps.size else until)

    @cached_property
    def _epochs(self) -> list[RecordedEpoch]:
        return list(recorded_epochs(self._scope, _LEAST_OF_EPOCH))

    @cached_property
    def _rows(self) -> Floats:
        """made, delivery, step, CPU time, fetch and idle of the batches of all epochs (n, 6)."""
        parts = [
            np.stack(
                [epoch.made, epoch.delivery, epoch.step, epoch.cpu, epoch.fetch, epoch.idle], axis=1
            )
            for epoch in self._epochs
        ]
        return np.concatenate(parts) if parts else np.zeros((0, 6))

    @cached_property
    def _measured(self) -> float:
        """Time a batch from the first batch made to the end of the last step, nanoseconds."""
        spent = sum(float((epoch.wait + epoch.step)[1:].sum()) for epoch in self._epochs)
        return ratio(spent, sum(len(epoch.wait) - 1 for epoch in self._epochs))

    @cached_property
    def _drawn(self) -> Floats:
        """Epochs drawn in blocks of neighbouring batches (batches of an epoch, draws, 6)."""
        rows = self._rows
        batches = min(max(len(epoch.made) for epoch in self._epochs), _MOST_BATCHES)
        length = bootstrap.block_length(rows[:, [0, 2]] - rows[:, [0, 2]].mean(axis=0))
        blocks = -(-batches // length)
        random = np.random.default_rng(_SEED)
        begin = random.integers(0, len(rows), (blocks, _DRAWS))
        places = (begin[:, None, :] + np.arange(length)[None, :, None]) % len(rows)
        return np.asarray(rows[places.reshape(-1, _DRAWS)[:batches]])

    @cached_property
    def _today(self) -> Floats:
        """Duration of each drawn epoch with the present settings (draws,)."""
        return self._times(self._workers, self._prefetch)

    def _times(self, workers: int, prefetch: int, first: _FirstWorkers | None = None) -> Floats:
        """Return the duration of each drawn epoch after its first batch (draws,).

        `first`: what is taken of workers of a loop that had none.
        """
        made, delivery, step, _, fetch, idle = np.moveaxis(self._drawn, 2, 0)
        sending = 0.0
        if not workers:
            made = fetch
        elif first:
            sending = first.sending_ns
            made = (made - (1.0 - first.working) * idle) * first.longer + sending
            shared = 2.0 * made * (1.0 - 1.0 / first.shared_step)
            step = np.minimum(step * first.shared_step, step + shared)
        every = np.ones(made.shape[1], np.int64)
        outcome = replay(made, step + sending, workers * every, prefetch * every, delivery=delivery)
        return np.asarray(outcome.end[-1] - outcome.taken[0])

    def _predicted(self, workers: int, prefetch: int, kept: bool) -> Prediction:
        few, loses = len(self._rows) < LEAST_BATCHES, self._step_loses_cores(workers)
        if len(self._scope.ranks) > 1 or few or (loses and self._workers):
            return UNKNOWN
        each = float(self._today.mean()) / max(len(self._drawn) - 1, 1)
        agreement = ratio(each, self._measured)
        if not abs(agreement - 1.0) <= _TOLERANCE:
            return UNKNOWN
        if workers and not self._workers:
            low, gain, high = self._gains_of_first(workers, prefetch, kept)
        else:
            low, gain, high = self._gains(workers, prefetch, self._started_share(workers, kept))
        # The error of the replay with the present settings may be that of the other one, too.
        off = max(agreement, 1.0 / agreement)
        return Prediction(gain, low / off, high * off)

    def _gains_of_first(
        self, workers: int, prefetch: int, kept: bool
    ) -> tuple[float, float, float]:
        """Return (low, middle, high) of the speed-up by workers, of a loop that had none.

        What they cost was not measured: each assumption at its worst lowers the middle by as much,
        and these losses are taken to be independent. At best they cost nothing.
        """
        size = np.nan_to_num(median(float_column(self._scope.batches, "bytes")))
        loses = self._step_loses_cores(workers)
        crowd = self._computing(workers) > self._scope.cores / 2
        working, most_working = self._working()
        usual = _FirstWorkers(
            start=self._started_share(workers, kept),
            sending_ns=_SENDING_NS + _SENDING_NS_PER_BYTE * size,
            longer=_BESIDE_OTHERS if crowd else 1.0,
            shared_step=_SHARED_STEP if loses else 1.0,
            working=working,
        )
        worst = (
            replace(usual, start=_AT_WORST * usual.start),
            replace(usual, sending_ns=_SENDING_AT_WORST * usual.sending_ns),
            replace(usual, longer=_BESIDE_OTHERS_AT_WORST if crowd else 1.0),
            replace(usual, shared_step=_SHARED_STEP_AT_WORST if loses else 1.0),
            replace(usual, working=most_working),
        )
        low, middle, _ = self._gains(workers, prefetch, usual.start, usual)
        losses = [middle - low]
        for each in worst:
            losses.append(middle - self._gains(workers, prefetch, each.start, each)[1])
        _, _, high = self._gains(workers, prefetch, 0.0, _FirstWorkers())
        least = middle - math.sqrt(sum(max(loss, 0.0) ** 2 for loss in losses))
        return max(least, 0.0), middle, high

    def _gains(
        self, workers: int, prefetch: int, extra: float, first: _FirstWorkers | None = None
    ) -> tuple[float, float, float]:
        """Return (low, middle, high) of the speed-up; `extra`: share of the loops for the start."""
        today, after = self._today, self._times(workers, prefetch, first)
        if workers:  # without any, none of the cores' work that sending takes is left
            after = np.maximum(after, self._least_time(today, first))
        gains = 1.0 / (1.0 - self._replayed_share() * (1.0 - after / today) + extra)
        low, middle, high = np.quantile(gains, [0.025, 0.5, 0.975])
        return float(low), float(middle), float(high)

    def _working(self) -> tuple[float, float]:
        """Return the part of helper threads' time that is taken to be work, and that at worst."""
        batches = self._scope.batches
        used, own, size = (
            float_column(batches, name) for name in ("process_cpu_ns", "cpu_ns", "size")
        )
        each = median((used - own) / np.where(size > 0, size, np.nan))
        waiting = busy_waiting_ns(self._scope.epochs)
        least, most = _AS_LONG
        if least <= each / waiting <= most:
            return _WORK_IF_AS_LONG
        # What exceeds it is work.
        return (1.0 - (1.0 - _WORK) * waiting / each if each > waiting else _WORK), 1.0

    def _computing(self, workers: int) -> float:
        """Return how many threads compute at most: in workers and in steps."""
        steps = self._scope.waits
        took, everything = (
            total(float_column(steps, f"step_{name}ns")) for name in ("", "process_cpu_")
        )
        of_step = ratio(everything, took)
        return workers + (of_step if of_step > 1.0 else 1.0)

    def _step_loses_cores(self, workers: int) -> bool:
        """Return True if more workers take cores from a step that computes in several threads.

        Such a step may lose far more than they use: its threads wait for each other.
        """
        steps = self._scope.waits
        took, own, everything = (
            total(float_column(steps, f"step_{name}ns")) for name in ("", "cpu_", "process_cpu_")
        )
        helpers = ratio(everything - own, took)
        more = workers > self._workers and workers + 1.0 + helpers > self._cores
        return more and helpers >= _LEAST_HELPERS

    def _least_time(self, today: Floats, first: _FirstWorkers | None) -> Floats:
        """Return the time that cores need for each drawn epoch: at most as it took, and sending.

        Sending is done by the worker, and again by the loop.
        """
        cpu, idle = self._drawn[1:, :, 3], self._drawn[1:, :, 5]
        if np.isnan(cpu).any() or not self._cores > 0:
            return np.zeros_like(today)
        if not first:
            return np.asarray(np.minimum(cpu.sum(axis=0) / self._cores, today))
        work = (cpu - (1.0 - first.working) * idle).sum(axis=0) * first.longer
        sending = len(cpu) * 2.0 * first.sending_ns
        return np.asarray(np.minimum(work / self._cores, today) + sending / self._cores)

    def _replayed_share(self) -> float:
        """Return share of the loops' time that is replayed: after each epoch's first batch."""
        waits = self._scope.waits
        first = float_column(waits, "batch") == 0
        spent = np.nan_to_num(float_column(waits, "wait_ns")) + np.nan_to_num(
            float_column(waits, "step_ns")
        )
        before = total(np.nan_to_num(float_column(waits, "wait_ns"))[first])
        return min(max(ratio(total(spent) - before, self._loop_ns), 0.0), 1.0)

    def _started_share(self, workers: int, kept: bool) -> float:
        """Return the cost of starting other numbers of workers, as a share of the loops."""
        scope = self._scope
        if not self._workers:
            start = scope.worker_start_ns if scope.worker_start_ns > 0 else _START_NS
            each = start + (workers - 1) * _BETWEEN_NS + _END_NS
            times = 1 if kept else len(scope.epochs)
            return ratio(each * times, self._loop_ns) if workers else 0.0
        in_iter = total(float_column(scope.epochs, "iter_ns"))
        return ratio(in_iter, self._loop_ns) * (workers / self._workers - 1.0)
