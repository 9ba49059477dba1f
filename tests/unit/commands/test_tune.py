"""What `lotus tune` asks of the search and of the check."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lotus import cli
from lotus.recording import launcher
from lotus.tune.search import search, step_check, trial_recording
from lotus.tune.session import subprocess_tuning
from tests.unit.trained_program import Trains, result_of


@pytest.mark.parametrize(("options", "given"), [([], None), (["--check", "10s"], 10.0)])
def test_the_result_knows_what_the_check_was_given(
    monkeypatch: pytest.MonkeyPatch, options: list[str], given: float | None
) -> None:
    program: Any = Trains(0.1, 0.1)
    program.run, program.workers = None, {}
    checked: list[Any] = []

    def tune(command: list[str], search_settings: Any, **options: Any) -> SimpleNamespace:
        search_settings(program)
        return SimpleNamespace(result=None, problem="", unwritten="", written=None, outcome=None)

    monkeypatch.setattr(search, "search", lambda program, plan, **options: result_of(program))
    monkeypatch.setattr(trial_recording, "with_operations", lambda result, *rest: result)
    monkeypatch.setattr(step_check, "check", lambda result, *rest: checked.append(result))
    monkeypatch.setattr(subprocess_tuning, "tune", tune)
    monkeypatch.setattr(launcher, "end_as", lambda outcome: 0)
    words = ["tune", "-q", "-f", *options, "--", "python", "train.py"]
    assert cli.main(words) == 0
    assert checked[0].check_s == given
