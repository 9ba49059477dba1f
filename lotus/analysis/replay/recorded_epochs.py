"""The epochs of a loader as times that can be replayed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from lotus.analysis.common.columns import float_column, int_column, ratio, starts_of_runs, total
from lotus.analysis.common.scope import Scope
from lotus.analysis.replay.loader_replay import Replay, replay
from lotus.common.numbers.array_types import Floats, Ints

LEAST_BATCHES = 16  # of an epoch that is replayed
_MOST_BATCHES = 20_000
_BLOCK = 1 << 16  # batches that are joined with what was taken of them at a time
_NAMES = ("rank", "epoch", "batch")


@dataclass(frozen=True)
class RecordedEpoch:
    """An epoch of one rank in the order of its batches; nanoseconds (n,)."""

    rows: Ints  # of the batches in their table
    made: Floats  # how long its worker was, or would be, occupied with the batch
    fetch: Floats  # of that: without the pickling, which there is none of without workers
    delivery: Floats  # from made to arrived
    step: Floats  # training step after it
    wait: Floats
    cpu: Floats  # on a core, for the batch: in its worker, in `next` and in the step; NaN: unknown
    begin: Floats  # when each worker could begin with its first one (workers,); empty without any
    made_delay: Floats  # of `fetch`: ready to run, without a core; NaN: unknown
    step_delay: Floats  # the same of `step`
    # Of `wait`: the main process's own work after its batch had arrived, as drawing indices of
    # later ones; none with pinned memory, which another thread copies meanwhile.
    handover: Floats
    wait_delay: Floats  # the main process in `wait`: ready to run, without a core; NaN: unknown
    # Of `made`: what other threads of a process that makes its batches itself used, and may have
    # only waited busily for work (of torch's threads, after each operation); else 0.
    idle: Floats

    def with_prefetch(self, factors: Sequence[int]) -> Replay:
        """Replay an epoch of workers with each of these prefetch factors: the cases."""
        cases = len(factors)
        made, step, delivery, begin = (
            np.repeat(times[:, None], cases, axis=1)
            for times in (self.made, self.step, self.delivery, self.begin - self.begin.min())
        )
        workers = np.full(cases, len(self.begin))
        return replay(made, step, workers, np.array(factors), delivery=delivery, begin=begin)


def recorded_epochs(scope: Scope, least: int = LEAST_BATCHES) -> Iterator[RecordedEpoch]:
    """Yield the epochs whose batches were all recorded, each made by the worker in turn.

    Of an epoch's batches at most the first 20,000; no epoch with fewer than `least`. What was made
    and not taken, as at the end of an iterable data set, is left out.
    """
    if scope.partial or scope.settings.get("in_order") is False:
        return
    batches, waits = scope.batches, scope.waits
    main_cpu = float_column(waits, "wait_process_cpu_ns") + _step_cpu(waits)
    for made, taken in _blocks(batches, waits):
        frame = pd.DataFrame(
            {
                **{name: int_column(batches, name)[made] for name in (*_NAMES, "worker")},
                "row": made,
                "start": float_column(batches, "fetch_start_ns")[made],
                "fetch": float_column(batches, "fetch_ns")[made],
                "end": float_column(batches, "ready_ns")[made],
                "arrival": float_column(batches, "arrival_ns")[made],
                "called": float_column(batches, "wait_start_ns")[made],
                "made_cpu": float_column(batches, "process_cpu_ns")[made],
                "thread_cpu": float_column(batches, "cpu_ns")[made],
                "made_delay": float_column(batches, "run_delay_ns")[made],
            }
        )
        steps = pd.DataFrame(
            {
                **{name: int_column(waits, name)[taken] for name in _NAMES},
                "wait": float_column(waits, "wait_ns")[taken],
                "step": np.nan_to_num(float_column(waits, "step_ns")[taken]),
                "main_cpu": main_cpu[taken],
                "step_delay": float_column(waits, "step_run_delay_ns")[taken],
                "wait_delay": float_column(waits, "wait_run_delay_ns")[taken],
            }
        )
        frame = frame.merge(steps, on=list(_NAMES), how="left")
        frame = frame.sort_values(list(_NAMES), kind="stable")
        for _, rows in frame.groupby(["rank", "epoch"], sort=False):
            rows = rows[: _taken(rows)].head(_MOST_BATCHES)
            epoch = _epoch(rows, scope.num_workers, least)
            if epoch is not None and scope.settings.get("pin_memory"):
                epoch = replace(epoch, handover=np.zeros(len(epoch.wait)))
            if epoch is not None:
                yield epoch


def _blocks(batches: pd.DataFrame, waits: pd.DataFrame) -> Iterator[tuple[Ints, Ints]]:
    """Yield rows of both tables of some whole epochs, as many as _BLOCK batches, in their order.

    Of an epoch with more than _MOST_BATCHES: those, and one that was taken later if any was.
    """
    made, taken = _ordered(batches), _ordered(waits)
    key, key_of_taken = _epoch_keys(batches)[made], _epoch_keys(waits)[taken]
    number_of, number_taken = int_column(batches, "batch"), int_column(waits, "batch")
    known = ~np.isnan(float_column(waits, "wait_ns"))
    begins = starts_of_runs([key]) if len(key) else np.zeros(0, np.int64)
    first, last = (np.searchsorted(key_of_taken, key[begins], side) for side in ("left", "right"))
    parts: list[tuple[Ints, Ints]] = []
    held = 0  # batches in `parts`
    for index, mine in enumerate(np.split(made, begins[1:]) if len(begins) else ()):
        their = taken[first[index] : last[index]]
        if len(mine) > _MOST_BATCHES:
            further = mine[_MOST_BATCHES:]
            later = further[np.isin(number_of[further], number_taken[their[known[their]]])]
            mine = np.concatenate((mine[:_MOST_BATCHES], later[:1]))
            their = their[np.isin(number_taken[their], number_of[mine])]
        parts.append((mine, their))
        held += len(mine)
        if held >= _BLOCK:
            yield _together(parts)
            parts, held = [], 0
    if parts:
        yield _together(parts)


def _together(parts: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    return np.concatenate([mine for mine, _ in parts]), np.concatenate([rows for _, rows in parts])


def _ordered(frame: pd.DataFrame) -> Ints:
    """Return the rows by rank, epoch and batch."""
    return np.lexsort(tuple(int_column(frame, name) for name in reversed(_NAMES)))


def _epoch_keys(frame: pd.DataFrame) -> Ints:
    """Return one number for the rank and epoch of each row, both of which are 32 bits wide."""
    return (int_column(frame, "rank") << 32) + int_column(frame, "epoch")


def _step_cpu(waits: pd.DataFrame) -> Floats:
    """Return the CPU time of the training steps, ns; NaN if none was measured.

    The last step of an epoch, which no `next` ends, is not measured: it is taken to have the same
    share of its time as the others.
    """
    step, cpu = (
        np.nan_to_num(float_column(waits, "step_ns")),
        float_column(waits, "step_process_cpu_ns"),
    )
    known = np.isfinite(cpu)
    return np.where(known, cpu, ratio(total(cpu[known]), total(step[known])) * step)


def _taken(rows: pd.DataFrame) -> int:
    """Return how many batches there are up to the last one that was taken."""
    taken = np.flatnonzero(~np.isnan(float_column(rows, "wait")))
    return int(taken[-1]) + 1 if taken.size else 0


def _epoch(rows: pd.DataFrame, workers: int, least: int) -> RecordedEpoch | None:
    worker = int_column(rows, "worker")
    if len(rows) < max(least, 2) or (rows["batch"].diff().dropna() != 1).any():
        return None
    if not workers:
        return _made_by_the_loop(rows) if (worker < 0).all() else None
    in_turn = (worker == int_column(rows, "batch") % workers).all()
    times = rows[["start", "fetch", "end", "arrival", "wait", "step"]]
    if not in_turn or rows["batch"].iloc[0] or times.isna().any(axis=None):
        return None
    # A worker that makes several batches before any is taken is occupied from one to the next.
    end, wait = float_column(rows, "end"), float_column(rows, "wait")
    began = np.fmax(float_column(rows, "start"), rows.groupby("worker")["end"].shift().to_numpy())
    delivery = np.maximum(float_column(rows, "arrival") - end, 0.0)
    waited = delivery[wait > 0]  # the others were ready before the loop came
    return RecordedEpoch(
        rows=int_column(rows, "row"),
        made=np.maximum(end - began, 0.0),
        fetch=float_column(rows, "fetch"),
        delivery=np.minimum(delivery, np.median(waited) if waited.size else 0.0),
        step=float_column(rows, "step"),
        wait=wait,
        cpu=float_column(rows, "made_cpu") + float_column(rows, "main_cpu"),
        begin=float_column(rows, "start")[:workers],
        made_delay=float_column(rows, "made_delay"),
        step_delay=float_column(rows, "step_delay"),
        handover=_handover(rows),
        wait_delay=float_column(rows, "wait_delay"),
        idle=np.zeros(len(rows)),
    )


def _handover(rows: pd.DataFrame) -> Floats:
    called, wait = float_column(rows, "called"), float_column(rows, "wait")
    since = np.fmax(float_column(rows, "arrival"), called)
    return np.clip(np.nan_to_num(called + wait - since), 0.0, wait)


def _made_by_the_loop(rows: pd.DataFrame) -> RecordedEpoch | None:
    if rows[["fetch", "wait", "step"]].isna().any(axis=None):
        return None
    # A worker computes in one thread: it does alone the work of the process's other threads.
    helpers = np.nan_to_num(float_column(rows, "made_cpu") - float_column(rows, "thread_cpu"))
    helpers = np.maximum(helpers, 0.0)
    return RecordedEpoch(
        rows=int_column(rows, "row"),
        made=float_column(rows, "fetch") + helpers,
        fetch=float_column(rows, "fetch"),
        delivery=np.zeros(len(rows)),
        step=float_column(rows, "step"),
        wait=float_column(rows, "wait"),
        cpu=float_column(rows, "main_cpu"),  # its own process makes the batches
        begin=np.zeros(0),
        made_delay=float_column(rows, "made_delay"),
        step_delay=float_column(rows, "step_delay"),
        handover=np.zeros(len(rows)),
        wait_delay=float_column(rows, "wait_delay"),
        idle=helpers,
    )
