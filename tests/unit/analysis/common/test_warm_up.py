"""A first step that took far longer than all others is kept apart, and nothing is lost."""

import numpy as np
import pandas as pd
import pytest

from lotus.analysis.common.columns import float_column
from lotus.analysis.common.scope import scopes
from lotus.analysis.common.warm_up import WARM_UP, without_warm_up
from lotus.analysis.summary import summarise
from lotus.analysis.verdict import run_time
from tests.unit.simulated import Plan

SLOW = {"Slow": 20.0}


def waits(*steps: float, batch: int = 0) -> pd.DataFrame:
    count = len(steps)
    return pd.DataFrame(
        {
            "pid": 1,
            "batch": np.arange(batch, batch + count),
            "start_ns": np.arange(count) * 1e9,
            "wait_ns": 1e6,
            "step_ns": np.array(steps) * 1e6,
            "step_cpu_ns": np.array(steps) * 5e5,
        }
    )


def test_what_it_took_beyond_a_usual_step_is_set_apart() -> None:
    before = waits(100.0, *[10.0] * 8)
    after = without_warm_up(before)
    assert after[WARM_UP].tolist() == [90e6, *[0.0] * 8]
    assert (after["step_ns"] + after[WARM_UP]).tolist() == before["step_ns"].tolist()
    assert after["step_cpu_ns"].iloc[0] == pytest.approx(5e6)  # still half of its time
    assert before["step_ns"].iloc[0] == 100e6


@pytest.mark.parametrize(
    "ordinary",
    [
        waits(40.0, *[10.0] * 8),
        waits(100.0, *[10.0] * 7, 60.0),  # another one is as long, nearly
        waits(100.0, *[10.0] * 7),  # too few to tell
        waits(100.0, *[10.0] * 8, batch=5),  # the first one recorded, not the first one
        waits(*[np.nan] * 9),
        waits(),
    ],
)
def test_an_ordinary_first_step_is_left_alone(ordinary: pd.DataFrame) -> None:
    after = without_warm_up(ordinary)
    assert float_column(after, WARM_UP).tolist() == [0.0] * len(ordinary)
    assert float_column(after, "step_ns").tolist() == pytest.approx(
        float_column(ordinary, "step_ns").tolist(), nan_ok=True
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_the_verdict_is_that_of_a_run_without_it(workers: int) -> None:
    plain, warmed = (
        summarise(Plan(workers=workers, operations=SLOW, first_step=extra).run()).loaders[0]
        for extra in (0.0, 60_000.0)
    )
    assert warmed.verdict.kind == plain.verdict.kind == "input-bound"
    assert warmed.verdict.causes[0].title == plain.verdict.causes[0].title
    # With workers, some batches are made while the first step lasts.
    assert warmed.verdict.input_share == pytest.approx(plain.verdict.input_share, abs=0.1)
    assert warmed.times["step_limit_samples_per_s"] == pytest.approx(
        plain.times["step_limit_samples_per_s"]
    )
    assert "first training step took 60.0 s longer" in " ".join(warmed.verdict.flaws)
    assert not plain.verdict.flaws


def test_it_is_a_part_of_the_wall_time() -> None:
    run = Plan(epochs=2, operations=SLOW, first_step=5_000.0).run()
    run.manifest["start_ns"] = int(run.epochs["start_ns"].min() - 1e9)
    run.manifest["end_ns"] = int(run.epochs["end_ns"].max())
    time = run_time.run_time(run)
    assert time is not None
    assert sum(part.ns for part in time.parts) == pytest.approx(time.wall_ns, rel=1e-9)
    assert time.of(run_time.FIRST_STEP) == pytest.approx(5e9)
    loop = scopes(run)[0].waits
    assert time.of(run_time.STEP) == pytest.approx(loop["step_ns"].sum(), rel=0.02)
