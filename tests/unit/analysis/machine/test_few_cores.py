"""Programs and workers that may use fewer cores than the machine has."""

import pandas as pd
import pytest

from lotus.analysis.common.scope import scopes
from lotus.analysis.machine.core_use import core_use
from tests.unit.analysis.machine.test_core_use import QUIET, cores, judged
from tests.unit.simulated import Plan


@pytest.mark.parametrize(("cpus", "named"), [("0", True), ("0-1", False)])
def test_workers_that_are_bound_to_fewer_cores_are_seen(cpus: str, named: bool) -> None:
    run = cores(Plan(operations={"Slow": 20.0}, workers=2, cores=2).run(), (0.5, 0.5, 0.0), QUIET)
    run.epochs["cpus"], run.workers["cpus"] = "0-1", cpus
    first, *others = judged(run).causes
    assert (first.kind == "affinity") == named
    assert ("the workers may use only 1 of the machine's 2 cores" in first.title) == named
    # AND no other advice says that they share all cores
    assert any("already share 1 core:" in cause.advice for cause in others) == named


def test_that_the_program_may_use_few_cores_is_said_where_others_have_those() -> None:
    run = cores(Plan(operations={"Slow": 20.0}, cores=1).run(), (0.2, 0.8, 0.0), QUIET)
    assert not judged(run).flaws
    run.manifest["cpu"]["logical"] = 2
    judgement = judged(run)
    told = [flaw for flaw in judgement.flaws if "may use only 1 of the machine's 2 cores" in flaw]
    assert len(told) == (judgement.causes[0].kind != "affinity") == 1


def test_workers_that_fill_the_few_cores_they_may_use_wait_for_one_another() -> None:
    # GIVEN two workers with half of one core each, while other programs have the other core
    plan = Plan(operations={"Slow": 20.0}, workers=2, cores=2, batches=200, step=1)
    run = cores(plan.run(), (0.5, 0.5, 0.0), QUIET)
    begin, end = float(run.epochs["start_ns"].min()), float(run.epochs["end_ns"].max())
    times = {"time_ns": [begin, end], "busy_ns": [0.0, 2 * (end - begin)]}
    run.machine = pd.DataFrame(times).assign(idle_ns=0.0, stolen_ns=0.0)
    run.epochs["cpus"], run.workers["cpus"] = "0-1", "0-1"
    use = core_use(scopes(run)[0])
    assert use.rivals
    assert use.others_part_of_making > 0.2
    # WHEN the workers may use one core only
    run.workers["cpus"] = "0"
    # THEN it is they who have it
    use = core_use(scopes(run)[0])
    assert not use.rivals
    assert use.others_part_of_making == 0.0 < use.others_part_of_step
    assert judged(run).causes[0].kind == "affinity"


@pytest.mark.parametrize(("quota", "kind"), [(500, "affinity"), (1000, "step-threads")])
def test_below_one_core_no_number_of_threads_is_the_cause(quota: int, kind: str) -> None:
    """GIVEN a program that enters a group with a quota after it was started, and steps in two
    threads."""
    plan = Plan(operations={"Slow": 0.5}, workers=1, cores=2, batches=200, step=30)
    run = cores(plan.run(), (0.1, 0.85, 0.0), (0.1, 0.85, 0.5))
    begin, end = float(run.epochs["start_ns"].min()), float(run.epochs["end_ns"].max())
    run.manifest["cpu"]["logical"] = 2
    run.machine = pd.DataFrame(
        {
            "time_ns": [begin - 1e9, begin + 1e9, end],
            "throttled_ns": [0, 0, 1e9],
            "quota_millicores": [0, quota, quota],
        }
    )
    (scope,) = scopes(run)
    assert scope.cores == quota / 1000
    first = judged(run).causes[0]
    assert first.kind == kind
    assert (first.title == "a CPU quota leaves the program 0.5 of the machine's 2 cores") == (
        kind == "affinity"
    )
    assert ("limits.cpu" in first.advice) == (kind == "affinity")


def test_a_quota_of_the_time_before_the_loops_is_none_of_theirs() -> None:
    run = Plan(operations={"Slow": 0.5}, cores=2).run()
    begin = float(run.epochs["start_ns"].min())
    times = {"time_ns": [begin - 2e9, begin - 1e9, begin + 1e9]}
    run.machine = pd.DataFrame({**times, "quota_millicores": [500, 500, 0]})
    assert scopes(run)[0].cores == 2
