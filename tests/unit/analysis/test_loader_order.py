"""Which of several loaders of a run comes first."""

from types import SimpleNamespace

import pandas as pd

from lotus.analysis.summary import summarise
from tests.unit.analysis.machine.test_core_use import QUIET, cores
from tests.unit.simulated import Plan


def beside(*runs: SimpleNamespace) -> SimpleNamespace:
    """Return the runs, of one process, as one."""
    both = SimpleNamespace(**vars(runs[0]))
    for name in ("ops", "samples", "batches", "waits", "workers", "epochs", "loaders"):
        tables = [getattr(run, name) for run in runs]
        setattr(both, name, pd.concat(tables, ignore_index=True))
    return both


def test_the_loader_that_the_run_waits_for_comes_first() -> None:
    training = Plan(batches=60, operations={"Quick": 0.1}, step=40.0).run()
    validation = Plan(batches=10, operations={"Slow": 60.0}, loader=1, step=1.0).run()
    both = beside(training, validation)
    assert [each.scope.loader for each in summarise(both).loaders] == [1, 0]
    validation.waits["wait_ns"] /= 1000
    both.waits = pd.concat([training.waits, validation.waits], ignore_index=True)
    assert [each.scope.loader for each in summarise(both).loaders] == [0, 1]


def test_a_loader_whose_steps_lose_more_than_another_one_waits_comes_first() -> None:
    slow = Plan(batches=8, operations={"Slow": 60.0}, loader=1, step=1.0)
    plan = Plan(batches=60, operations={"Quick": 0.1}, step=40.0)
    steps = cores(plan.run(), QUIET, (0.3, 0.6, 0.5))
    both = beside(steps, cores(slow.run(), QUIET, QUIET))
    first, second = summarise(both).loaders
    assert (first.scope.loader, first.verdict.causes[0].kind) == (0, "step-threads")
    assert first.verdict.lost_in_steps_ns > 1.5 * second.times["wait_ns"]
    # AND not where it is less, or where the steps only compute.
    for step, batches in (((0.3, 0.6, 0.5), 6), (QUIET, 60)):
        short = Plan(batches=batches, operations={"Quick": 0.1}, step=40.0)
        both = beside(cores(short.run(), QUIET, step), cores(slow.run(), QUIET, QUIET))
        assert [each.scope.loader for each in summarise(both).loaders] == [1, 0]


def test_long_steps_come_before_what_a_validation_in_them_waits_for() -> None:
    """GIVEN a validation within every fifth step, which takes far longer than it waits
    THEN the loop whose steps it makes long comes first, and not where it mostly waits."""
    steps = Plan(
        batches=60, operations={"Quick": 0.1}, step=lambda batch: 500.0 if batch % 5 == 4 else 10.0
    )
    for slow, of_step, order in ((1.0, 9.0, [0, 1]), (30.0, 1.0, [1, 0])):
        inner = Plan(batches=200, operations={"Slow": slow}, workers=0, loader=1, step=of_step)
        both = beside(steps.run(), inner.run())
        found = summarise(both).loaders
        assert found[0].times["step_ns"] > 0
        assert [each.scope.loader for each in found] == order
