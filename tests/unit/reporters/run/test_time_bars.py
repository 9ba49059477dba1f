"""The bars of a run's wall time, and the sentence on its time without a core."""

import math

import pytest

from lotus.analysis.verdict.run_time import IMPORTS, SETUP, STEP, WAIT, RunPart, RunTime
from lotus.reporters.run.charts.loader_charts import run_time
from lotus.reporters.run.parts.time_bars import lines_of, parts_of, without_core


def spent(delay_before_ns: float) -> RunTime:
    seconds = {IMPORTS: 3, SETUP: 2, WAIT: 4, STEP: 1}
    parts = tuple(
        RunPart(kind, 0 if kind in (WAIT, STEP) else -1, 1e9 * ns) for kind, ns in seconds.items()
    )
    return RunTime(10e9, parts, 0, delay_before_ns)


def test_the_bars_have_the_shares_of_the_wall_time() -> None:
    time = spent(math.nan)
    heading, first, *others = lines_of(time, list(parts_of(time, {})))
    assert heading == "Where the 10.0 s went"
    assert [line.split("  ")[1] for line in (first, *others)] == [
        "imports and set-up", "waiting for data", "training step",
    ]  # fmt: skip
    assert first.endswith("████████████               5.00 s   50%")


@pytest.mark.parametrize(
    ("delay_ns", "told"),
    [(math.nan, False), (0.0, False), (0.9e9, False), (1.2e9, True), (4.9e9, True)],
)
def test_a_set_up_without_a_core_is_told(delay_ns: float, told: bool) -> None:
    time = spent(delay_ns)
    sentence = without_core(time)
    assert bool(sentence) == told
    lines = list(lines_of(time, list(parts_of(time, {}))))
    assert (lines[-1].strip() == sentence) == told
    assert all(len(line) <= 80 for line in lines)
    assert sentence in run_time(list(parts_of(time, {})), sentence).note


def test_without_a_known_time_nothing_is_told() -> None:
    assert without_core(None) == ""
    assert list(lines_of(None, [])) == []
