"""What `lotus tune` asks of the search and of the check."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lotus import cli
from lotus.commands import tune as verb
from lotus.common.errors import LotusError
from lotus.recording import launcher
from lotus.settings import tuned_file
from lotus.tune import strategies
from lotus.tune.search import default_space, search, trial_recording
from lotus.tune.search.check import step_check
from lotus.tune.session import subprocess_tuning
from tests.unit.trained_program import Trains, result_of


def test_what_it_takes_is_what_the_search_knows() -> None:
    # The command does not import the search to say so.
    assert sorted(verb._STRATEGIES) == sorted(strategies.NAMES)
    assert verb._VARIED == default_space.VARIED


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


def settings_of(kept: str) -> tuned_file.Tuned:
    program = Trains(0.1, 0.1)
    result = result_of(program)
    if kept != "a gain":
        result = dataclasses.replace(result, best=program.own.normal())
    tuned = result.tuned(["python", "train.py"])
    return dataclasses.replace(tuned, evidence={}) if kept == "by hand" else tuned


@pytest.mark.parametrize("kept", ["no gain", "a gain", "by hand", "no settings"])
def test_a_file_is_overwritten_only_where_nothing_was_found(
    kept: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if kept == "no settings":
        Path("tuned.json").write_text("mine")
    else:
        tuned_file.write(Path("tuned.json"), settings_of(kept))
    started: list[Any] = []

    def tune(command: list[str], search_settings: Any, **options: Any) -> None:
        started.append(options["output"])
        raise LotusError("it started")

    monkeypatch.setattr(subprocess_tuning, "tune", tune)
    assert cli.main(["tune", "--", "python", "train.py"]) == 2
    assert started == ([tuned_file.DEFAULT] if kept == "no gain" else [])
    assert ("tuned.json exists: overwrite it with -f" in capfd.readouterr().err) != bool(started)
