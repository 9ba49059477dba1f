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

from lotus.analysis.columns import Floats
from lotus.balance.fit import Curve, Line
from lotus.balance.measured import Job
from lotus.balance.minmax import split
from lotus.balance.predict import aligned, mean_step

LEVELS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)  # standard deviations


def least(job: Job, curves: Sequence[Curve], caps: Sequence[int | None]) -> list[int]:
    """Samples of each rank. Raises ValueError where the caps leave no way."""
    steps = aligned(job)
    total = job.global_batch
    found = split([one.lines() for one in curves], total, caps)
    best = mean_step(steps, curves, np.array(found, np.float64))
    for level in LEVELS:
        raised = [
            _at_level(curve, rank.sizes, rank.step_ns, rank.fetch_sizes, rank.fetch_ns, level)
            for curve, rank in zip(curves, job.ranks, strict=True)
        ]
        tried = split([one.lines() for one in raised], total, caps)
        value = mean_step(steps, curves, np.array(tried, np.float64))
        if value < best:
            found, best = tried, value
    return found


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


def _raised(line: Line, sizes: Floats, times: Floats, level: float) -> Line:
    expected = line.fixed + line.slope * sizes
    ratio = times[expected > 0] / expected[expected > 0]
    factor = 1.0 + level * float(ratio.std()) if len(ratio) else 1.0
    return replace(line, fixed=line.fixed * factor, slope=line.slope * factor)
