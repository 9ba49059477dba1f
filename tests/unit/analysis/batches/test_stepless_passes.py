"""Passes over a loader without training steps are told of, where they take much of its time."""

from types import SimpleNamespace

import numpy as np
import pytest

from lotus.analysis.batches.stepless_passes import stepless_passes
from lotus.analysis.batches.waits import loop_times
from lotus.analysis.common.columns import int_column
from lotus.analysis.common.scope import scopes
from lotus.analysis.verdict.verdict import verdict
from tests.unit.simulated import Plan


def without_steps(run: SimpleNamespace, *epochs: int) -> SimpleNamespace:
    """The same with steps of 10 us in these epochs."""
    mine = np.isin(int_column(run.waits, "epoch"), epochs)
    run.waits["step_ns"] = np.where(mine, 10_000.0, run.waits["step_ns"])
    return run


def test_a_pass_that_only_takes_batches_is_told_of() -> None:
    run = without_steps(Plan(epochs=3, operations={"Slow": 40.0}, step=20.0).run(), 1)
    scope = scopes(run)[0]
    found = stepless_passes(scope)
    loop = loop_times(scope.epochs, scope.waits)["loop_ns"]
    assert (found.count, found.passes) == (1, 3)
    assert found.share == pytest.approx(loop.iloc[1] / loop.sum())
    (flaw,) = (flaw for flaw in verdict(scope).flaws if "without a training step" in flaw)
    assert flaw.startswith("1 of 3 passes over the loader, with ")


@pytest.mark.parametrize(("step", "epochs"), [(20.0, ()), (1.0, (1,)), (20.0, (0, 1, 2))])
def test_steps_in_all_passes_or_in_none_are_nothing_to_tell(
    step: float, epochs: tuple[int, ...]
) -> None:
    run = without_steps(Plan(epochs=3, step=step).run(), *epochs)
    assert stepless_passes(scopes(run)[0]).count == 0
