"""The default strategy: the split whose steps are shortest, as far as the recorded steps tell.

With times that never vary the slowest rank's is least where all take the same mean time. But a
step waits for whoever is slowest in it, and a rank whose times vary much is so more often: it
should take less. So the split is made (exactly) for the means, and for means raised by so many
standard deviations; of these the one counts under which the recorded steps, each rank's scaled to
its new batch, end soonest on average.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lotus.analysis.common.columns import Floats
from lotus.balance.minmax import split
from lotus.balance.rank_measurements import RUN, Job
from lotus.balance.step_prediction import aligned, collective, mean_step
from lotus.balance.time_fit import Curve, LinearFit, curve

_LEAST = 4  # steps in a half
LEVELS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)  # standard deviations


def least(job: Job, curves: Sequence[Curve], caps: Sequence[int | None]) -> list[int]:
    """Samples of each rank. Raises ValueError where the caps leave no way."""
    steps = aligned(job)
    total, after = job.global_batch, collective(job)
    sizes = split([_lines(rank_curve, after) for rank_curve in curves], total, caps)
    best = mean_step(steps, curves, np.array(sizes, np.float64), after)
    for level in LEVELS:
        raised = [
            _at_level(rank_curve, rank.sizes, rank.step_ns, rank.fetch_sizes, rank.fetch_ns, level)
            for rank_curve, rank in zip(curves, job.ranks, strict=True)
        ]
        tried = split([_lines(rank_curve, after) for rank_curve in raised], total, caps)
        value = mean_step(steps, curves, np.array(tried, np.float64), after)
        if value < best:
            sizes, best = tried, value
    return sizes


def lasting(job: Job, curves: Sequence[Curve], caps: Sequence[int | None]) -> float:
    """The part of a step that a split saves in steps which it was not chosen by.

    One half of each run's steps chooses, the other is scaled, and the other way round. Where ranks
    are alike it is not above 0 but by chance, whatever the split by all steps seems to save; with
    fewer than 4 steps in a half it is 0.
    """
    halves = _half(job, False), _half(job, True)
    if min(len(rank.key) for half in halves for rank in half.ranks) < _LEAST:
        return 0.0
    saved, after = [], collective(job)
    for chosen_by, judged_by in (halves, halves[::-1]):
        chosen = least(chosen_by, [curve(rank) for rank in chosen_by.ranks], caps)
        steps = aligned(judged_by)
        now, then = (
            mean_step(steps, curves, np.array(sizes, np.float64), after)
            for sizes in (job.batch_sizes, chosen)
        )
        saved.append(1.0 - then / max(now, 1.0))
    return sum(saved) / 2


def _half(job: Job, late: bool) -> Job:
    """The job with the early or the late half of each run's steps."""
    ranks = []
    for rank in job.ranks:
        run = rank.key >> RUN
        is_late = np.zeros(len(run), np.bool_)
        for number in np.unique(run):
            is_late |= (run == number) & (rank.key > np.median(rank.key[run == number]))
        kept = is_late == late
        ranks.append(
            replace(rank, sizes=rank.sizes[kept], step_ns=rank.step_ns[kept], key=rank.key[kept])
        )
    return replace(job, ranks=tuple(ranks))


def _lines(curve: Curve, collective_ns: float) -> list[tuple[float, float]]:
    """(fixed, slope) of lines of which the largest is the curve with a collective after its step,
    while which an input that runs ahead goes on."""
    (fixed, slope), *others = curve.lines()
    return [(fixed + collective_ns, slope), *others]


def _at_level(
    curve: Curve, sizes: Floats, step: Floats, fetch_sizes: Floats, fetch: Floats, level: float
) -> Curve:
    """The curve with the step's times so many standard deviations above their mean.

    An input that runs ahead evens out what it varies by; one that does not is part of the step.
    """
    raised = replace(curve, step=_raised(curve.step, sizes, step, level))
    if curve.in_turn:
        raised = replace(raised, input=_raised(curve.input, fetch_sizes, fetch, level))
    return raised


def _raised(line: LinearFit, sizes: Floats, times: Floats, level: float) -> LinearFit:
    expected = line.fixed + line.slope * sizes
    ratio = times[expected > 0] / expected[expected > 0]
    factor = 1.0 + level * float(ratio.std()) if len(ratio) else 1.0
    return replace(line, fixed=line.fixed * factor, slope=line.slope * factor)
