"""The default strategy: the split with the shortest mean step, according to the recorded steps.

If times never varied, the step would be shortest when all ranks have the same mean time. But a step
waits for its slowest rank, and a rank whose times vary more is the slowest more often, so it should
get fewer samples. So exact splits are computed for the means and for the means raised by several
numbers of standard deviations. Each is evaluated on the recorded steps, with each rank's times
scaled to its new batch, and the one with the shortest mean step is chosen.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lotus.balance.minmax import split
from lotus.balance.rank_measurements import RUN, Job
from lotus.balance.step_prediction import aligned, collective, mean_step
from lotus.balance.time_fit import Curve, LinearFit, curve
from lotus.common.numbers.array_types import Floats

_LEAST = 4  # steps in a half
LEVELS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)  # standard deviations


def least(job: Job, curves: Sequence[Curve], caps: Sequence[int | None]) -> list[int]:
    """Return each rank's samples. Raises ValueError if the caps allow no split."""
    steps = aligned(job)
    total, after = job.global_batch, collective(job)
    sizes = split([_lines(rank_curve, after) for rank_curve in curves], total, caps)
    best = mean_step(steps, curves, np.array(sizes, np.float64), after)
    for level in LEVELS:
        raised = [
            _at_level(rank_curve, rank.sizes, rank.step_ns, rank.fetch_sizes, rank.fetch_ns, level)
            for rank_curve, rank in zip(curves, job.ranks, strict=True)
        ]
        candidate = split([_lines(rank_curve, after) for rank_curve in raised], total, caps)
        value = mean_step(steps, curves, np.array(candidate, np.float64), after)
        if value < best:
            sizes, best = candidate, value
    return sizes


def lasting(job: Job, curves: Sequence[Curve], caps: Sequence[int | None]) -> float:
    """Return the part of a step that a split saves in steps that were not used to choose it.

    The split is chosen by one half of each run's steps and evaluated on the other half, and vice
    versa. If ranks are alike, the result is above 0 only by chance, however much the split by all
    steps seems to save. It is 0 with fewer than 4 steps in a half.
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
    """Return the job with the early or the late half of each run's steps."""
    ranks = []
    for rank in job.ranks:
        run = rank.key >> RUN
        is_late = np.zeros(len(run), np.bool_)
        for number in np.unique(run):
            is_late |= (run == number) & (rank.key > np.median(rank.key[run == number]))
        in_half = is_late == late
        ranks.append(
            replace(
                rank,
                sizes=rank.sizes[in_half],
                step_ns=rank.step_ns[in_half],
                key=rank.key[in_half],
            )
        )
    return replace(job, ranks=tuple(ranks))


def _lines(curve: Curve, collective_ns: float) -> list[tuple[float, float]]:
    """Return (fixed, slope) of lines whose maximum is the curve with a collective after its step.

    An input that runs ahead continues during the collective.
    """
    (fixed, slope), *input_lines = curve.lines()
    return [(fixed + collective_ns, slope), *input_lines]


def _at_level(
    curve: Curve, sizes: Floats, step: Floats, fetch_sizes: Floats, fetch: Floats, level: float
) -> Curve:
    """Return the curve with the step's times raised by `level` standard deviations.

    An input that runs ahead averages out its variation; one that does not is part of the step.
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
