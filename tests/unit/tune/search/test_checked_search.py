"""The time that a search leaves for the check of its result."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from lotus.tune.search import checked_search, search
from lotus.tune.search.check import step_check
from lotus.tune.search.search import SearchPlan
from tests.unit.trained_program import Trains, result_of


@pytest.mark.parametrize(
    ("given_s", "took_s", "check_s"),
    [
        (None, 60.0, 20.0),
        (None, 70.0, 20.0),
        (None, 55.0, 25.0),
        (None, 5.0, 30.0),
        (10.0, 5.0, 10.0),
        (0.0, 5.0, 0.0),
    ],
)
def test_the_check_has_a_third_of_the_budget_and_what_the_trials_left(
    monkeypatch: pytest.MonkeyPatch, given_s: float | None, took_s: float, check_s: float
) -> None:
    program: Any = Trains(0.1, 0.1)
    program.run, program.workers = None, {}
    plans: list[SearchPlan] = []

    def find(program: Any, plan: SearchPlan, **options: Any) -> Any:
        plans.append(plan)
        return dataclasses.replace(result_of(program), seconds=took_s)

    def check(result: Any, program: Any, seconds: float, on_stretch: Any) -> Any:
        return result, seconds

    monkeypatch.setattr(search, "search", find)
    monkeypatch.setattr(step_check, "check", check)
    result, seconds = checked_search.find(program, SearchPlan(budget_s=60.0), given_s)
    assert (seconds, result.check_s) == (check_s, given_s)
    assert [plan.check_follows for plan in plans] == [check_s > 0]
