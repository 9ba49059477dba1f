"""A program whose ceilings were measured: whether it is started again, and for what."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from lotus.advise.alternatives import applied_alternatives, ceiling_run, tried_alternatives
from lotus.advise.alternatives.ceiling_run import CeilingRun
from lotus.advise.ceilings.ceilings import Ceilings
from lotus.common.errors import LotusError
from lotus.inside.common import alternative_files
from lotus.recording.launcher import ProgramOutcome
from lotus.tune.session import subprocess_tuning
from lotus.tune.session.subprocess_tuning import Tuning
from tests.unit.advise.alternatives.test_applied_alternatives import measured
from tests.unit.advise.ceilings.test_ceilings import Fed

COMMAND = ["python", "train.py"]


def run_of(
    monkeypatch: pytest.MonkeyPatch,
    *,
    ended_by_us: bool = True,
    reached: bool = True,
    killed_by: int | None = None,
    ceilings: Ceilings | None = None,
    names: list[str] | None = None,
) -> tuple[CeilingRun, dict[str, Any]]:
    """The run of a program that comes to its loader or not, and what was asked of it."""
    asked: dict[str, Any] = {}
    outcome = ProgramOutcome(None if killed_by else 0, killed_by, 7)

    def measure(command: list[str], experiment: Any, **options: Any) -> Tuning:
        asked.update(options)
        result = experiment(SimpleNamespace(watched=Fed().watched)) if reached else None
        return Tuning(result, outcome, "" if reached else "it ended", ended_by_us)

    monkeypatch.setattr(subprocess_tuning, "measure", measure)
    done = ceiling_run.measure(COMMAND, lambda program: ceilings, names, loader=3, watch=5)  # type: ignore[arg-type,return-value]
    return done, asked


def test_the_program_is_asked_for_what_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    done, asked = run_of(monkeypatch, ceilings=measured())
    assert asked == {"loader": 3, "watch": 5, "choices": None}
    assert (done.command, done.ceilings, done.allows_trials) == (COMMAND, measured(), True)
    names = ["uint8_tensors", "draft_decode"]
    _, asked = run_of(monkeypatch, ceilings=measured(), names=names)
    assert asked["choices"] == applied_alternatives.choices(names)


@pytest.mark.parametrize(
    ("options", "allows"),
    [
        ({}, True),  # no ceiling could be measured
        ({"reached": False}, False),
        ({"ended_by_us": False}, False),
        ({"ceilings": measured(), "killed_by": signal.SIGINT}, False),
        ({"ceilings": measured(), "killed_by": signal.SIGKILL}, True),
    ],
)
def test_alternatives_are_tried_where_the_loader_was_reached(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], allows: bool
) -> None:
    done, _ = run_of(monkeypatch, **options)
    assert done.allows_trials == allows
    assert done.is_interrupted == (options.get("killed_by") == signal.SIGINT)


@pytest.mark.parametrize(("loader", "number"), [(3, 3), ("train.py:12", None), (None, None)])
def test_they_are_tried_on_the_loader_that_was_measured(
    monkeypatch: pytest.MonkeyPatch, loader: int | str | None, number: int | None
) -> None:
    tried: list[Any] = []
    monkeypatch.setattr(
        tried_alternatives, "attempt", lambda *args, **options: tried.append((*args, options))
    )
    done, _ = run_of(monkeypatch)
    done.try_alternatives(["draft_decode"], ["Upload"], loader)
    [(command, trials, options)] = tried
    target = Fed().watched.loader
    assert (command, trials.loader) == (COMMAND, target.number if number is None else number)
    assert (trials.names, trials.skipped) == (["draft_decode"], ["Upload"])
    assert options == {"site": target.call_site, "storage": True, "on_event": None}


def test_without_a_loader_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = run_of(monkeypatch, reached=False)
    with pytest.raises(LotusError, match="it ended"):
        done.try_alternatives([])


def test_alternatives_are_chosen_by_name() -> None:
    known = alternative_files.names()
    assert tried_alternatives.chosen() == known
    assert tried_alternatives.chosen(skipped=known[:1]) == known[1:]
    assert tried_alternatives.chosen([known[1], known[0]], [known[0]]) == [known[1]]
    with pytest.raises(LotusError, match=f"--only flip: there is no .* {known[0]}"):
        tried_alternatives.chosen(["flip"])
