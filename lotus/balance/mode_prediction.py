"""What each mode of data-parallel training would take for an epoch, from a traced run of it.

sync waits for the slowest rank in each step; the same with a split of the global batch; local for
the rank that is slowest over H steps; hybrid for the slowest of a group in each step and for the
slowest group over H steps; async only for a rank that is many times as slow, as the batches go to
whoever asks next. `lotus run --mode` has them, lotus/inside/distributed/training_modes.py says how
each is done.

All is computed from the recorded steps, with the interval of the block bootstrap
(step_prediction.py). Averaging parameters is taken to cost what averaging gradients does after the
last rank has arrived; in a group of g of N ranks (g - 1) / g over (N - 1) / N of that, as in a
ring; in the background it is taken to cost the steps nothing. How a mode learns, nothing here
tells: only sync makes the updates that the program makes now. The start of an epoch is not counted.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lotus.analysis.common.columns import Floats
from lotus.balance.rank_measurements import EPOCH, RUN, Job
from lotus.balance.step_prediction import Predicted, Taken, in_a_row, predict_each, taken
from lotus.settings.settings_run import ModeOptions

WAITS = 0.05  # of a job's time: ranks that wait less for each other lose nothing by it
_NEAR = 0.95  # of what a mode takes that learns otherwise than now, below which it is an option
_APART = 1.2  # how many times as slow the slower ranks are, to be called a group of their own
_SURE = 4.0  # standard errors that the gap between them must be
_STRETCH = 100  # steps in a row that are kept of long runs: some times as many as `every`


@dataclass(frozen=True)
class PredictedMode:
    """One mode. `name`: that of `lotus run --mode`, or "split": sync with the new batch sizes."""

    name: str
    epoch: Predicted  # seconds
    times: float  # as long as sync is now
    learns_the_same: bool  # its updates are those of the program as it is
    groups: tuple[tuple[int, ...], ...] = ()  # of ranks: hybrid


@dataclass(frozen=True)
class Modes:
    """All modes that this job can be run in, sync as it is first."""

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
        """The mode of that name. Raises KeyError."""
        return {row.name: row for row in self.rows}[name]

    @property
    def gain(self) -> float:
        """The part of the recommended mode's time that the option saves; NaN: there is none."""
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
    """What the modes take. None where synchronisation was not traced: waiting is in all times then.

    `before`, `after`: a step of the job as it is, and with batches of `sizes`; lasts: what that
    gains, it gains in steps as well that it was not chosen by.
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
    """An epoch in each of the modes that learn otherwise, and that this job can be run in."""
    waits = held_up(step, job.collective_ns, question.staleness)
    every = min(question.every, batches)
    # The last round of an epoch may be a short one.
    averaging = job.collective_ns * math.ceil(batches / every) * every / batches
    depth = np.array([rank.workers * rank.prefetch for rank in job.ranks], np.float64)
    dealt = depth if _dealt_out(job) else None

    def epochs(steps: Taken) -> Floats:
        return np.array(
            [
                batches * local(steps, averaging, every),
                batches * hybrid(steps, groups, job.collective_ns, averaging, every),
                asynchronous(steps, waits, dealt, batches) + job.collective_ns,
            ]
        )

    predicted = predict_each(job, job.batch_sizes, epochs, seed, _STRETCH)
    known = dict(zip(("local", "hybrid", "async"), predicted, strict=True))
    if not groups:
        del known["hybrid"]
    if len(set(job.batch_sizes)) > 1:
        del known["async"]
    return known


def _dealt_out(job: Job) -> bool:
    """Whether batches can go to whichever rank asks next
    (lotus/inside/distributed/shared_queue_sampler.py).
    """
    return job.loader is not None and job.loader.sampler == "DistributedSampler"


def batches_of_epoch(job: Job) -> int:
    """How many batches a rank took in an epoch, the most of all; of the ranks, those in between."""
    most = []
    for rank in job.ranks:
        own = rank.key[rank.key >> RUN == 0]
        most.append(int((own & ((1 << EPOCH) - 1)).max()) + 1 if len(own) else 1)
    return max(int(np.median(most)), 1)


def local(steps: Taken, averaging_ns: float, every: int) -> float:
    """A step where ranks meet after so many for an averaging, ns."""
    count = min(every, len(steps.own))
    return float(steps.in_a_row(count, averaging_ns).max(axis=1).mean()) / count


def hybrid(
    steps: Taken,
    groups: Sequence[Sequence[int]],
    collective_ns: float,
    averaging_ns: float,
    every: int,
) -> float:
    """The same where each group's ranks average their gradients in each step; NaN: no groups."""
    if not groups:
        return math.nan
    count, ranks = min(every, len(steps.own)), steps.own.shape[1]
    after = np.empty(ranks)
    for group in groups:
        after[list(group)] = collective_ns * _of_ring(len(group), ranks) + averaging_ns / count
    whole = steps.whole(after)
    each = np.column_stack([whole[:, list(group)].max(axis=1) for group in groups])
    return float(in_a_row(each, count).max(axis=1).mean()) / count


def _of_ring(ranks: int, all_ranks: int) -> float:
    """What a ring of fewer ranks takes, where what it moves counts: as a part of that of all."""
    return (1 - 1 / ranks) / (1 - 1 / all_ranks)


def asynchronous(steps: Taken, waits: Floats, depth: Floats | None, batches: int) -> float:
    """An epoch, without the averaging at its end, where no rank waits for another to go on, ns.

    `waits` (ranks,): as `held_up` has it. `depth` (ranks,): batches that a rank has asked for ahead
    of the one that it trains on; None: each has `batches` of its own.
    """
    mean = np.maximum(steps.mean(), 1.0)
    each = mean * waits
    if depth is None:
        return batches * float(each.max())
    depth = np.minimum(depth, batches - 1)
    # Of what is left to the ranks when there is none to ask for, the slowest counts, not the mean.
    left = min(int(depth.max()) + 1, len(steps.own))
    more = float(steps.in_a_row(left).max(axis=1).mean()) - left * float(mean.max())
    return _dealt(each, depth, batches * len(each)) + max(more, 0.0)


def held_up(step: Floats, collective_ns: float, staleness: int) -> Floats:
    """How many times as long ranks take because they may be only so far ahead: (ranks,).

    The recorded steps (steps, ranks) are taken again. One round of averaging follows the other; a
    rank takes part where it ends a step, and waits where it has made staleness + 1 steps since it
    did so and the round is not over.
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
    """When the last of `total` batches is done, of ranks that take `each` (ranks,) for one.

    Those that a slow rank has asked for ahead are left to it when the others have none any more.
    """

    def asked_for(time: float) -> Floats:
        return np.asarray(depth + np.floor(time / each) + 1)

    early, late = 0.0, total * float(each.min())
    for _ in range(60):
        middle = (early + late) / 2
        early, late = (early, middle) if asked_for(middle).sum() >= total else (middle, late)
    return float((asked_for(late) * each).max())


def groups_of(job: Job, step: Floats) -> tuple[tuple[int, ...], ...]:
    """Ranks of one host each, or two classes by their speed; none where that tells nothing."""
    hosts: dict[str, list[int]] = {}
    for rank in job.ranks:
        hosts.setdefault(rank.host, []).append(rank.rank)
    groups = list(hosts.values()) if len(hosts) > 1 else _by_speed(step)
    # Groups of one rank are no groups: that is local.
    return tuple(tuple(group) for group in groups) if max(map(len, groups), default=0) > 1 else ()


def _by_speed(step: Floats) -> list[list[int]]:
    """Two classes of ranks that are clearly apart, the slower last; empty: there are none."""
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
    """The part of what ranks wait for each other, of (steps, ranks), that is for one rank always.

    If every rank took its mean in each step, the others would wait for the one with the largest;
    what they wait beyond that is for single slow steps. The rank is chosen in one half of the
    steps, its lead taken from the other: of ranks that are alike one always has the largest mean.
    """
    waits = float(step.max(axis=1).mean() - step.mean())
    half = len(step) // 2
    if half < 1 or not waits > 1e-9 * float(step.mean()):
        return math.nan
    means = step[:half].mean(axis=0), step[half:].mean(axis=0)
    leads = [
        float(other[int(np.argmax(chosen_by))] - other.mean())
        for chosen_by, other in (means, means[::-1])
    ]
    return min(max(sum(leads) / 2 / waits, 0.0), 1.0)


def _recommended(rows: Sequence[PredictedMode], lasts: bool) -> PredictedMode:
    """The split, where it learns the same and is quicker beyond doubt; else sync as it is."""
    first = rows[0]
    for row in rows[1:]:
        if lasts and row.learns_the_same and row.epoch.seconds < first.epoch.low:
            return row
    return first


def _option(rows: Sequence[PredictedMode], recommended: PredictedMode) -> str | None:
    """The quickest mode, if it is so by more than 5 % and than the intervals allow."""
    quickest = min(rows, key=lambda row: row.epoch.seconds)
    near = quickest.epoch.seconds >= _NEAR * recommended.epoch.seconds
    # False where there are too few steps for an interval.
    apart = quickest.epoch.high < recommended.epoch.low
    return None if quickest.learns_the_same or near or not apart else quickest.name
