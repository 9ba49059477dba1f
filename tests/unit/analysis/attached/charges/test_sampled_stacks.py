"""Where a sampled program is between its loops."""

from dataclasses import replace

import pandas as pd

from lotus.analysis.attached.evidence import phases
from lotus.analysis.attached.verdict.sampled_verdict import summarise
from tests.unit.sampled_program import STEP, Program, turns


def test_the_lines_between_the_loops_are_named() -> None:
    outside = (phases.OUTSIDE, "")
    evidence = Program(turns((STEP, 20), (outside, 30))).evidence()
    labels = evidence.labels
    (label,) = labels.index[labels["phase"] == phases.OUTSIDE]
    rows = [(label, 0, "main", "/app/train.py", 70), (label, 1, "rate", "/app/metric.py", 9)]
    chains = pd.DataFrame(rows, columns=evidence.chains.columns)
    verdict = summarise(replace(evidence, chains=chains)).verdict
    assert verdict is not None
    assert verdict.causes[0].title == (
        "the time between the loops, most of it at rate (metric.py:9)"
    )
    assert "Stack samples of it: 100% at rate (metric.py:9)." in verdict.causes[0].advice
