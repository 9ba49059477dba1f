"""Predicts an epoch in each mode of data-parallel training, from a traced run.

- sync waits for the slowest rank in each step, with the present or with new batch sizes ("split").
- local waits for the rank that is slowest over H steps.
- hybrid waits for the slowest rank of a group in each step, and for the slowest group over H steps.
- async waits only for a rank that is many times slower, as batches go to whichever rank asks next.

`lotus run --mode` runs them; lotus/inside/distributed/training_modes.py describes each.

All predictions use the recorded steps, with the interval of the block bootstrap
(step_prediction.py). Averaging parameters is assumed to cost as much as averaging gradients does
after the last rank has arrived. In a group of g of N ranks it costs (g - 1) / g over (N - 1) / N of
that, as in a ring; in the background it costs the steps nothing. The predictions say nothing about
how a mode learns: only sync makes the same updates as the program. The start of an epoch is not
counted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lotus.balance.rank_measurements import EPOCH, RUN, Job
from lotus.balance.step_prediction import Predicted, Taken, in_a_row, predict_each, taken
from lotus.common.numbers.array_types import Floats
from lotus.settings.settings_run import ModeOptions

WAITS = 0.05  # of a job's time: ranks that wait less for each other lose nothing by it
_NEAR = 0.95  # share of a mode's time, below which a mode that learns otherwise is an option
_APART = 1.2  # how many times as slow the slower ranks are, to be called a group of their own
_SURE = 4.0  # standard errors that the gap between them must be
_STRETCH = 100  # consecutive steps of long runs that are kept: some times as many as `every`


@dataclass(frozen=True)
class PredictedMode:
    """One mode. `name` is that of `lotus run --mode`, or "split": sync with the new batch sizes."""

    name: str
    epoch: Predicted  # seconds
    times: float  # as long as sync is now
    learns_the_same: bool  # its updates are those of the program as it is
    groups: tuple[tuple[int, ...], ...] = ()  # of ranks: hybrid


@dataclass(frozen=True)
class Modes:
    """All modes in which this job can be run; the first is sync as traced."""

    batches: int  # of an epoch, on each rank
    every: int  # batches from one averaging of parameters to the next: local, hybrid
    staleness: int  # async
    rows: tuple[PredictedMode, ...]
    waiting: float  # part of sync's time that ranks wait for each other, on average
    persistent: float  # of that, the part for ranks that are slow all the time; NaN: no waiting
    recommended: str  # of those that learn the same
    option: str | None  # a mode that is quicker than that, clearly, and learns otherwise
    notes: tuple[str, ...] = ()

    def of(self, name: str) -> PredictedMode:
        """Return the mode of that name. Raises KeyError."""
        return {row.name: row for row in self.rows}[name]

    @property
    def gain(self) -> float:
        """The part of the recommended mode's time that the option saves; NaN without an option."""
        if self.option is None:
            return math.nan
        return 1.0 - self.of(self.option).epoch.seconds / self.of(self.recommended).epoch.seconds


def modes(
    job: Job,
    before: Predicted,
    after: Predicted,
    sizes: Sequence[int],
    seed: int = 0,
    lasts: bool = True,
) -> Modes | None:
    """Predict all modes; None if synchronisation was not traced, as all times then include waiting.

    `before`, `after`: a step of the job as traced, and with batches of `sizes`. `lasts`: whether
    the split also saves time in steps that were not used to choose it.
    """
    if not job.synchronised:
        return None
    question = ModeOptions("local")
    recorded = taken(job, job.batch_sizes, _STRETCH)
    batches, groups = batches_of_epoch(job), groups_of(job, recorded.whole())
    epochs = _apart(job, recorded.whole(), groups, batches, question, seed)
    rows = [("sync", before.many(batches), True)]
    if tuple(sizes) != job.batch_sizes:
        steps = batches * job.global_batch / sum(sizes)
        rows.append(("split", after.many(steps), sum(sizes) == job.global_batch))
    rows += [(name, epoch, False) for name, epoch in epochs.items()]
    now = before.many(batches).seconds
    made = tuple(
        PredictedMode(
            name=name,
            epoch=epoch,
            times=epoch.seconds / now if now > 0 else math.nan,
            learns_the_same=same,
            groups=groups if name == "hybrid" else (),
        )
        for name, epoch, same in rows
    )
    step = recorded.whole(job.collective_ns)
    recommended = _recommended(made, lasts)
    notes = []
    if _recommended(made, True) is not recommended:
        notes.append(
            "the split's gain is due to chance: chosen from one half of the steps, it gains "
            "nothing in the other"
        )
    if "async" not in epochs:
        notes.append("async needs ranks with batches of one size, so it is not among the modes")
    elif not _dealt_out(job):
        notes.append("async: each rank keeps its own batches, as this sampler cannot be shared")
    slowest = float(step.max(axis=1).mean())
    return Modes(
        batches=batches,
        every=question.every,
        staleness=question.staleness,
        rows=made,
        waiting=1.0 - float(step.mean()) / max(slowest, 1.0),
        persistent=persistent(step),
        recommended=recommended.name,
        option=_option(made, recommended),
        notes=tuple(notes),
    )


def _apart(
    job: Job,
    step: Floats,
    groups: Sequence[Sequence[int]],
    batches: int,
    question: ModeOptions,
    seed: int,
) -> dict[str, Predicted]:
    """Predict an epoch in each mode that learns differently and in which this job can be run."""
    waits = held_up(step, job.collective_ns, question.staleness)
    every = min(question.every, batches)
    # The last round of an epoch may have fewer steps.
    averaging = job.collective_ns * math.ceil(batches / every) * every / batches
    depth = np.array([rank.workers * rank.prefetch for rank in job.ranks], np.float64)
    queue_depth = depth if _dealt_out(job) else None

    def epochs(steps: Taken) -> Floats:
        return np.array(
            [
                batches * local(steps, averaging, every),
                batches * hybrid(steps, groups, job.collective_ns, averaging, every),
                asynchronous(steps, waits, queue_depth, batches) + job.collective_ns,
            ]
        )

    predicted = predict_each(job, job.batch_sizes, epochs, seed, _STRETCH)
    predictions = dict(zip(("local", "hybrid", "async"), predicted, strict=True))
    if not groups:
        del predictions["hybrid"]
    if len(set(job.batch_sizes)) > 1:
        del predictions["async"]
    return predictions


def _dealt_out(job: Job) -> bool:
    """Return whether batches can go to whichever rank asks next
    (lotus/inside/distributed/shared_queue_sampler.py).
    """
    return job.loader is not None and job.loader.sampler == "DistributedSampler"


def batches_of_epoch(job: Job) -> int:
    """Return the number of batches per rank in an epoch: the median of ranks, the largest of
    epochs.
    """
    most = []
    for rank in job.ranks:
        own = rank.key[rank.key >> RUN == 0]
        most.append(int((own & ((1 << EPOCH) - 1)).max()) + 1 if len(own) else 1)
    return max(int(np.median(most)), 1)


def local(steps: Taken, averaging_ns: float, every: int) -> float:
    """Return ns per step if ranks average their parameters after every `every` steps."""
    count = min(every, len(steps.own))
    return float(steps.in_a_row(count, averaging_ns).max(axis=1).mean()) / count


def hybrid(
    steps: Taken,
    groups: Sequence[Sequence[int]],
    collective_ns: float,
    averaging_ns: float,
    every: int,
) -> float:
    """Return the same if each group also averages gradients in each step; NaN without groups."""
    if not groups:
        return math.nan
    count, ranks = min(every, len(steps.own)), steps.own.shape[1]
    after = np.empty(ranks)
    for group in groups:
        after[list(group)] = collective_ns * _of_ring(len(group), ranks) + averaging_ns / count
    step_times = steps.whole(after)
    of_groups = np.column_stack([step_times[:, list(group)].max(axis=1) for group in groups])
    return float(in_a_row(of_groups, count).max(axis=1).mean()) / count


def _of_ring(ranks: int, all_ranks: int) -> float:
    """Return the time of a ring of fewer ranks as a part of that of all, if bandwidth limits it."""
    return (1 - 1 / ranks) / (1 - 1 / all_ranks)


def asynchronous(steps: Taken, waits: Floats, depth: Floats | None, batches: int) -> float:
    """Return ns of an epoch in which no rank waits for another, without the averaging at its end.

    `waits` (ranks,): as returned by `held_up`. `depth` (ranks,): batches that a rank has requested
    ahead of the one on which it trains; None: each rank has `batches` of its own.
    """
    mean = np.maximum(steps.mean(), 1.0)
    mean_times = mean * waits
    if depth is None:
        return batches * float(mean_times.max())
    depth = np.minimum(depth, batches - 1)
    # When no batches are left to request, the slowest rank counts, not the mean.
    remaining = min(int(depth.max()) + 1, len(steps.own))
    tail = float(steps.in_a_row(remaining).max(axis=1).mean()) - remaining * float(mean.max())
    return _dealt(mean_times, depth, batches * len(mean_times)) + max(tail, 0.0)


def held_up(step: Floats, collective_ns: float, staleness: int) -> Floats:
    """Return the factors by which ranks slow down because of the limited staleness, (ranks,).

    Replays the recorded steps (steps, ranks). Rounds of averaging follow each other. A rank takes
    part in a round at the end of a step, and waits if it has made staleness + 1 steps since its
    last round and the current round is not over.
    """
    count, ranks = step.shape
    most, rank = staleness + 1, np.arange(ranks)[:, None]
    several = np.maximum(np.tile(step, (2 + most // count, 1)), 1.0)
    running = np.concatenate((np.zeros((1, ranks)), np.cumsum(several, axis=0))).T
    place, now, waited = np.zeros(ranks, np.int64), np.zeros(ranks), np.zeros(ranks)
    while place.mean() < count:
        over = float(now.max()) + collective_ns
        begin = (place % count)[:, None]
        ends = now[:, None] + running[rank, begin + np.arange(1, most + 1)] - running[rank, begin]
        late = ends[:, -1] < over
        last = np.where(late, most - 1, (ends >= over).argmax(axis=1))
        end = ends[rank[:, 0], last]
        now = np.maximum(end, over)
        waited += now - end
        place += last + 1
    return np.asarray(now / (now - waited))


def _dealt(each: Floats, depth: Floats, total: int) -> float:
    """Return when the last of `total` batches is done by ranks that take `each` (ranks,) per batch.

    Batches that a slow rank has already requested stay with it when the other ranks run out.
    """

    def asked_for(time: float) -> Floats:
        return np.asarray(depth + np.floor(time / each) + 1)

    early, late = 0.0, total * float(each.min())
    for _ in range(60):
        middle = (early + late) / 2
        early, late = (early, middle) if asked_for(middle).sum() >= total else (middle, late)
    return float((asked_for(late) * each).max())


def groups_of(job: Job, step: Floats) -> tuple[tuple[int, ...], ...]:
    """Return groups of ranks: one per host, or two by speed; empty if neither is useful."""
    hosts: dict[str, list[int]] = {}
    for rank in job.ranks:
        hosts.setdefault(rank.host, []).append(rank.rank)
    groups = list(hosts.values()) if len(hosts) > 1 else _by_speed(step)
    # Groups of one rank each would be the same as local.
    return tuple(tuple(group) for group in groups) if max(map(len, groups), default=0) > 1 else ()


def _by_speed(step: Floats) -> list[list[int]]:
    """Return two groups of ranks with clearly different speed, the slower last; empty if none."""
    mean = np.maximum(step.mean(axis=0), 1.0)
    order = np.argsort(mean, kind="stable")
    speeds = np.log(mean[order])
    if len(speeds) < 3:
        return []
    place = int(np.argmax(np.diff(speeds)))
    gap = float(speeds[place + 1] - speeds[place])
    within = max(float(speeds[place] - speeds[0]), float(speeds[-1] - speeds[place + 1]))
    error = float((step.std(axis=0) / mean).max()) / math.sqrt(len(step))
    if gap < max(math.log(_APART), 2 * within, _SURE * error):
        return []
    return [sorted(order[: place + 1].tolist()), sorted(order[place + 1 :].tolist())]


def persistent(step: Floats) -> float:
    """Return the part of the waiting, in (steps, ranks), that is always for the same rank.

    If every rank took its mean time in each step, the others would wait for the one with the
    largest mean; all further waiting is for single slow steps. The rank is chosen by one half of
    the steps and its lead measured in the other, because even among equal ranks one has the
    largest mean.
    """
    waits = float(step.max(axis=1).mean() - step.mean())
    half = len(step) // 2
    if half < 1 or not waits > 1e-9 * float(step.mean()):
        return math.nan
    half_means = step[:half].mean(axis=0), step[half:].mean(axis=0)
    leads = [
        float(other[int(np.argmax(chosen_by))] - other.mean())
        for chosen_by, other in (half_means, half_means[::-1])
    ]
    return min(max(sum(leads) / 2 / waits, 0.0), 1.0)


def _recommended(rows: Sequence[PredictedMode], lasts: bool) -> PredictedMode:
    """Return the split if it learns the same and is clearly faster; else sync as traced."""
    first = rows[0]
    for row in rows[1:]:
        if lasts and row.learns_the_same and row.epoch.seconds < first.epoch.low:
            return row
    return first


def _option(rows: Sequence[PredictedMode], recommended: PredictedMode) -> str | None:
    """Return the fastest mode if it is faster by more than 5 % and by more than the intervals."""
    quickest = min(rows, key=lambda row: row.epoch.seconds)
    near = quickest.epoch.seconds >= _NEAR * recommended.epoch.seconds
    # False if there are too few steps for an interval.
    apart = quickest.epoch.high < recommended.epoch.low
    return None if quickest.learns_the_same or near or not apart else quickest.name
