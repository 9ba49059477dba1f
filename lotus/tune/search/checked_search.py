"""Searches settings of a program, and checks the best one in the program's own training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from lotus.settings.space import Setting
from lotus.tune.search import search, trial_recording
from lotus.tune.search.check import step_check
from lotus.tune.search.check.stretches import Trains
from lotus.tune.search.outcome.result import Result
from lotus.tune.search.search import SearchPlan, SearchProgress


class RecordedProgram(Trains, Protocol):
    """A program whose trials are recorded, as
    `lotus.tune.session.program_pipe.PipedProgram` does.
    """

    @property
    def run(self) -> Path | None:
        """The run directory; None: there is none."""

    @property
    def workers(self) -> Mapping[Setting, Sequence[int]]:
        """The processes that made batches with each setting."""


def find(
    program: RecordedProgram,
    plan: SearchPlan,
    check_s: float | None = None,
    on_progress: Callable[[SearchProgress], object] | None = None,
    on_stretch: Callable[[Setting], object] | None = None,
) -> Result:
    """Return the setting that feeds a program fastest, with the costs of its operations.

    The check takes `check_s` seconds, 0 for none. None: a third of the plan's budget, and up to
    half of it if the search ends early. `on_progress` and `on_stretch` are those of `search.search`
    and `step_check.check`.
    """
    seconds = plan.budget_s / 3 if check_s is None else check_s
    plan = dataclasses.replace(plan, check_follows=seconds > 0)
    result = search.search(program, plan, on_progress=on_progress)
    result = trial_recording.with_operations(result, program.run, program.workers)
    if check_s is None:  # what the trials left is for the check
        seconds = min(seconds + max(plan.budget_s - result.seconds, 0.0), plan.budget_s / 2)
    result = dataclasses.replace(result, check_s=check_s)
    return step_check.check(result, program, seconds, on_stretch)
