"""`lotus balance`: the batch size of each rank by one of the strategies, and the gain."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from lotus.analysis.common.scope import RunLike
from lotus.balance import bno_quantities
from lotus.balance import plain_splits as shares
from lotus.balance.bno_formula import Orchestrated
from lotus.balance.least_time import lasting, least
from lotus.balance.memory_caps import Cap, caps
from lotus.balance.mode_prediction import Modes, modes
from lotus.balance.more_workers import MoreWorkers, tuned
from lotus.balance.rank_measurements import Job, measure
from lotus.balance.step_prediction import Predicted, collective, predict
from lotus.balance.time_fit import Curve, LinearFit, curve
from lotus.common.errors import LotusError
from lotus.settings.share_plan import MOST_SAMPLES, PlanPrediction, PredictedStep, SharePlan

_MATTERS = 0.8  # of the slowest rank's time: a quicker rank delays nobody
_MOST_TUNED = 8  # ranks whose input is simulated, those with the slowest first


@dataclass(frozen=True)
class SplitOptions:
    """The request. `most`: samples that a rank can hold; `links`: ns between two ranks."""

    strategy: str = "lotus"
    seed: int = 0
    loader: int | None = None
    most: Mapping[int, int] = field(default_factory=dict)
    links: Mapping[tuple[int, int], float] = field(default_factory=dict)
    base: float | None = None  # bno's B


@dataclass(frozen=True)
class RankShare:
    """One rank, before and after; times are seconds."""

    rank: int
    host: str
    before: int
    after: int
    step_before_s: float
    input_before_s: float
    own_before_s: float
    own_after_s: float
    input_binds: bool  # before balancing
    cap: Cap


@dataclass(frozen=True)
class BatchSplit:
    """The result."""

    job: Job
    question: SplitOptions
    shares: tuple[RankShare, ...]
    before: Predicted
    after: Predicted
    tuned: tuple[MoreWorkers, ...]  # of ranks whose input holds the job up
    after_tuned: Predicted | None  # a step, if these were tuned and then balanced; None: no gain
    quantities: Mapping[str, str]  # of bno: what each was taken from
    weights: tuple[Mapping[str, float], ...]  # of bno: K, MW and the sum of NCW of each rank
    modes: Modes | None  # of training, what an epoch takes in each; None: waiting was not traced
    notes: tuple[str, ...]

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The samples of each global batch that every rank takes."""
        return tuple(share.after for share in self.shares)

    @property
    def times(self) -> float:
        """The speed-up in samples per second; `bno` may change the number of samples per step."""
        growth = sum(self.batch_sizes) / self.job.global_batch
        return self.before.seconds / self.after.seconds * growth if self.after.seconds else math.nan

    @property
    def pays(self) -> bool:
        """True if the gain exceeds the variation between the run's steps."""
        return self.after.seconds < self.before.low

    def plan(self) -> SharePlan:
        """Return the content of balance.json."""
        predicted = PlanPrediction(
            step_before_s=PredictedStep(**asdict(self.before)),
            step_after_s=PredictedStep(**asdict(self.after)),
            measured_step_s=self.job.measured_ns / 1e9,
            times_the_samples_per_second=self.times,
            global_batch_before=self.job.global_batch,
            batch_sizes_before=tuple(self.job.batch_sizes),
        )
        return SharePlan(
            batch_sizes=self.batch_sizes,
            strategy=self.question.strategy,
            loader=self.job.loader,
            model=self.job.model,
            predicted=predicted,
            notes=self.notes,
        )


def balance(run: RunLike, question: SplitOptions, also: Sequence[RunLike] = ()) -> BatchSplit:
    """Split the global batch of a run. Raises LotusError if it cannot be split."""
    job = measure(run, question.loader, also)
    total, count = job.global_batch, len(job.ranks)
    if total < count:
        raise LotusError(
            f"a global batch of {total} samples leaves some of {count} ranks without one: give the "
            "program a larger batch, or fewer ranks"
        )
    curves = [curve(rank) for rank in job.ranks]
    limits = caps(job, question.most)
    notes = list(job.notes)
    quantities: Mapping[str, str] = {}
    weights: tuple[Mapping[str, float], ...] = ()
    if question.strategy == "lotus":
        sizes = _least(job, curves, limits)
        notes += _assumptions(curves)
    elif question.strategy == "bno":
        measured = bno_quantities.quantities(job, question.links, question.base)
        orchestrated = bno_quantities.run(measured)
        sizes, quantities = list(orchestrated.sizes), measured.how
        weights = _weights(orchestrated)
        notes.insert(0, bno_quantities.sum_words(orchestrated, job))
    elif question.strategy == "equal":
        sizes = shares.equal(total, count)
    else:
        sizes = shares.at_random(total, count, question.seed)
    if max(sizes) > MOST_SAMPLES:
        raise LotusError(
            f"the run has batches of {max(sizes):,} samples: it is damaged; trace it again"
        )
    notes += _over(sizes, limits)
    before = predict(job, job.batch_sizes, question.seed)
    after = predict(job, sizes, question.seed)
    if question.strategy == "lotus" and after.seconds >= before.seconds:
        # Its lines differ, its steps do not: the recording counts.
        sizes, after = list(job.batch_sizes), before
        notes.append("no split of this global batch is faster than the program's own")
    elif question.strategy == "lotus" and not after.seconds < before.low:
        notes.append(
            "the gain is within the variation of this run's steps: not worth a change, unless a "
            "run of more steps confirms it"
        )
    lasts = True
    if question.strategy == "lotus" and after.seconds < before.low:
        lasts = lasting(job, curves, [cap.samples for cap in limits]) > 0
    better_workers = _tuned(run, job, curves, sizes, question.loader)
    notes += _without_limit(job, sizes, question.most)
    return BatchSplit(
        job=job,
        question=question,
        shares=_shares(job, sizes, curves, limits),
        before=before,
        after=after,
        tuned=tuple(better_workers),
        after_tuned=_after_tuned(job, better_workers, limits, question.seed),
        quantities=quantities,
        weights=weights,
        modes=modes(job, before, after, sizes, question.seed, lasts),
        notes=tuple(dict.fromkeys(notes)),
    )


def _weights(orchestrated: Orchestrated) -> tuple[Mapping[str, float], ...]:
    """Return the weights of each rank in BalanceNet's formula."""
    columns = (orchestrated.k.tolist(), orchestrated.mw.tolist(), orchestrated.ncw.tolist())
    return tuple({"K": k, "MW": mw, "NCW": ncw} for k, mw, ncw in zip(*columns, strict=True))


def _without_limit(job: Job, sizes: Sequence[int], most: Mapping[int, int]) -> list[str]:
    """Return a note on ranks that get larger batches and have no limit, or nothing."""
    larger = [
        str(rank.rank)
        for rank, size in zip(job.ranks, sizes, strict=True)
        if size > rank.batch and rank.rank not in most
    ]
    if not larger:
        return []
    names = ", ".join(larger[:8]) + (" and more" if len(larger) > 8 else "")
    return [
        "the memory of GPUs is not traced: where a larger batch may not fit, set a limit with "
        f"--most RANK=SAMPLES (larger for: {names})"
    ]


def _shares(
    job: Job, sizes: Sequence[int], curves: Sequence[Curve], limits: Sequence[Cap]
) -> tuple[RankShare, ...]:
    return tuple(
        RankShare(
            rank=rank.rank,
            host=rank.host,
            before=rank.batch,
            after=size,
            step_before_s=made.step.at(rank.batch) / 1e9,
            input_before_s=made.input.at(rank.batch) / 1e9,
            own_before_s=made.at(rank.batch) / 1e9,
            own_after_s=made.at(size) / 1e9,
            input_binds=made.input_binds(rank.batch, collective(job)),
            cap=cap,
        )
        for rank, size, made, cap in zip(job.ranks, sizes, curves, limits, strict=True)
    )


def _least(job: Job, curves: Sequence[Curve], limits: Sequence[Cap]) -> list[int]:
    most = [cap.samples for cap in limits]
    try:
        return least(job, curves, most)
    except ValueError:
        room = sum(job.global_batch if cap is None else cap for cap in most)
        raise LotusError(
            f"the ranks can hold {room} samples between them, of a global batch of "
            f"{job.global_batch}: give more with --most RANK=SAMPLES"
        ) from None


def _over(sizes: Sequence[int], limits: Sequence[Cap]) -> list[str]:
    return [
        f"rank {rank} would take {size} samples and can hold {cap.samples} ({cap.why}): it may run "
        "out of memory"
        for rank, (size, cap) in enumerate(zip(sizes, limits, strict=True))
        if cap.samples is not None and size > cap.samples
    ]


def _assumptions(curves: Sequence[Curve]) -> list[str]:
    """Return notes on assumptions in place of what the run did not measure."""
    notes = []
    groups: dict[tuple[str, int], list[str]] = {}
    for name in ("step", "input"):
        lines: list[LinearFit] = [getattr(rank_curve, name) for rank_curve in curves]
        for basis in ("assumed", "last batches"):
            count = sum(line.how == basis for line in lines)
            if count:
                groups.setdefault((basis, count), []).append(name)
    for (basis, count), names in groups.items():
        part = " and ".join(names)
        ranks = "every rank" if count == len(curves) else f"{count} ranks"
        if basis == "assumed":
            notes.append(
                f"{ranks} had batches of one size only, so it is not known which part of the time "
                f"of {part} does not grow with the batch: none is assumed, and the interval allows "
                "for up to all of the shortest time; a run with another batch size (--also RUN) "
                "shows it"
            )
        else:
            notes.append(
                f"only a few smaller last batches of epochs show, on {ranks}, which part of the "
                f"time of {part} does not grow with the batch; a run with another batch size "
                "(--also RUN) shows it better"
            )
    return notes


def _after_tuned(
    job: Job, better_workers: Sequence[MoreWorkers], limits: Sequence[Cap], seed: int
) -> Predicted | None:
    times = {tuned.rank: tuned.times for tuned in better_workers if tuned.times > 1.0}
    if not times:
        return None
    ranks = [
        replace(rank, fetch_ns=rank.fetch_ns / times.get(rank.rank, 1.0)) for rank in job.ranks
    ]
    better = replace(job, ranks=tuple(ranks))
    return predict(better, _least(better, [curve(rank) for rank in ranks], limits), seed)


def _tuned(
    run: RunLike, job: Job, curves: Sequence[Curve], sizes: Sequence[int], loader: int | None
) -> list[MoreWorkers]:
    """Simulate more workers for ranks whose input is the limit before or after the split, slowest
    first.
    """
    bound: dict[int, float] = {}
    for split_so in (job.batch_sizes, sizes):
        pairs = list(zip(curves, split_so, strict=True))
        slowest = max(rank_curve.at(size) for rank_curve, size in pairs)
        for rank, (rank_curve, size) in enumerate(pairs):
            if (
                rank_curve.input_binds(size, collective(job))
                and rank_curve.at(size) >= _MATTERS * slowest
            ):
                bound[rank] = max(bound.get(rank, 0.0), rank_curve.at(size))
    result = []
    for rank in sorted(bound, key=lambda rank: -bound[rank])[:_MOST_TUNED]:
        limited = job.ranks[rank]
        local = sum(other.host == limited.host for other in job.ranks)
        result.append(tuned(run, rank, limited.workers, loader, local))
    return result
