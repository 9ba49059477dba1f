"""Which operation within another one takes most of its time."""

from dataclasses import replace

import pandas as pd
import pytest

from lotus.analysis.attached.verdict.sampled_verdict import summarise
from tests.unit.sampled_program import STEP, WAIT, Program, operation, turns

CALLED = [
    "Views.__call__", "Compose.__call__", "Module._call_impl", "RandomApply.forward",
    "Module._wrapped_call_impl", "Module._call_impl", "Blur.forward", "gaussian_blur",
]  # fmt: skip


@pytest.mark.parametrize(
    ("calls", "title"),
    [
        (CALLED, "Views, most of it Blur"),
        (CALLED[:4], "Views"),  # in what only calls others
        ([CALLED[0], "helper", "Views.crop"], "Views"),  # its own functions
        ([CALLED[0], "Views.__call__.<locals>.__call__"], "Views"),
        (CALLED[:1], "Views (of Pair, 5 of 6 times)"),
    ],
)
def test_the_innermost_with_most_of_the_time_is_named(calls: list[str], title: str) -> None:
    views = operation(title if "(of" in title else "Views")
    evidence = Program(turns((WAIT, 8), (STEP, 2)), [lambda tick: views]).evidence()
    labels = evidence.labels
    (label,) = labels.index[labels["name"] == views[1]]
    rows = [(label, depth, function, "/app/data.py", 1) for depth, function in enumerate(calls)]
    chains = pd.DataFrame(rows, columns=evidence.chains.columns)
    verdict = summarise(replace(evidence, chains=chains)).verdict
    assert verdict is not None
    assert verdict.causes[0].title == title
