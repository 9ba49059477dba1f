"""Replicates of the shares of a sampled loop, of which comparisons are made."""

import numpy as np
import pytest

from lotus.analysis.attached.verdict.sampled_verdict import summarise
from lotus.analysis.attached.verdict.share_replicates import share_replicates
from tests.unit.sampled_program import STEP, WAIT, Program, always, operation, turns

MAKER = always(operation("Blur"))


def test_waits_are_as_unsure_as_the_verdict_says() -> None:
    """Steps of one sample: between two stacks it is not known when they began."""
    evidence = Program(turns((WAIT, 1), (STEP, 1)), [MAKER] * 2, ticks=2000).evidence()
    (loop,) = summarise(evidence).loops
    low, high = loop.verdict.input_low, loop.verdict.input_high
    assert high - low > 0.1
    drawn = share_replicates(evidence, loop, (1, 2))
    (wait, waits), (step, steps) = drawn.wait, drawn.step
    assert (wait, step) == (loop.verdict.input_share, loop.verdict.step_share)
    ends = np.quantile(waits, [0.025, 0.975])
    assert ends[1] - ends[0] == pytest.approx(high - low, rel=0.15)
    # What is counted as a wait is no step.
    assert np.corrcoef(waits, steps)[0, 1] < -0.9
