"""The command that tries an advice, and the gain beside it."""

import dataclasses
import re
from pathlib import Path

import pytest

from lotus.advise.alternatives.known_operations import KNOWN, has_alternatives
from lotus.analysis.replay.gain_prediction import Prediction
from lotus.analysis.summary import Summary, summarise
from lotus.analysis.verdict.advice.remedy import CODE, Remedy
from lotus.analysis.verdict.run_time import SETUP, STEP, WAIT, RunPart, RunTime
from lotus.common.text.formatting import factor, operation_name
from lotus.inside.common import alternative_files
from lotus.reporters.run import short_report
from lotus.reporters.run.parts import trial
from tests.unit.simulated import Plan

SLOW = {"operations": {"Read": 20.0}, "step": 8.0, "batches": 100}


def summary(**plan: object) -> Summary:
    run = Plan(**(SLOW | plan)).run()  # type: ignore[arg-type]
    run.path = "lotus-runs/train-1"
    run.manifest |= {"command": ["python", "train.py"], "exit_code": 0}
    return summarise(run)


def command(**plan: object) -> str:
    return trial.trial_command(summary(**plan))


def test_workers_are_tried_by_tune_or_where_an_epoch_is_too_short_for_it_by_a_sweep() -> None:
    assert command(workers=1) == "lotus tune -- python train.py"
    short = command(workers=1, batches=20, operations={"Read": 10.0})
    assert short == "lotus sweep --workers 1,6 --repeat 2 -- python train.py"


def test_a_stateful_loader_is_set_in_the_code_and_measured_again() -> None:
    stateful = summary(workers=1)
    stateful.loaders[0].scope.settings["snapshot_every_n_steps"] = 1
    text = "lotus trace -- python train.py, then: lotus compare"
    assert trial.trial_command(stateful) == text


def test_workers_that_are_kept_are_tried_by_a_sweep() -> None:
    starting = {"operations": {"Read": 1.0}, "spawn": 400.0, "batches": 20, "epochs": 6}
    text = "lotus sweep --workers 2 --persistent on,off --repeat 2 -- python train.py"
    assert command(**starting) == text


def test_a_change_of_code_is_measured_by_another_trace() -> None:
    slow_sampler = {"operations": {"Read": 0.1}, "step": 0.1, "sampler": 30.0}
    text = "lotus trace -- python train.py, then: lotus compare"
    assert command(**slow_sampler) == text
    failed = summary(**slow_sampler)
    failed.manifest["exit_code"] = 1  # `lotus compare` would choose another run
    text = "lotus trace -o NEW -- python train.py, then: lotus compare lotus-runs/train-1 NEW"
    assert trial.trial_command(failed) == text
    elsewhere = summary(**slow_sampler)
    elsewhere.__dict__["path"] = "/runs/my train"
    text = "lotus trace -o NEW -- python train.py, then: lotus compare '/runs/my train' NEW"
    assert trial.trial_command(elsewhere) == text


def test_where_nothing_is_to_be_gained_there_is_nothing_to_try(tmp_path: Path) -> None:
    assert command(operations={"Read": 0.1}, step=20.0) == ""
    lines = "\n".join(short_report.lines(summary(operations={"Read": 0.1}, step=20.0)))
    assert "expected:" not in lines
    assert "try it:" not in lines


def test_the_end_of_a_trace_has_the_gain_and_the_command() -> None:
    lines = short_report.lines(summary(workers=1))
    assert any(line.startswith("expected: ") and "times as fast" in line for line in lines)
    assert "try it: lotus tune -- python train.py" in lines


def test_other_implementations_are_offered_where_some_are_known() -> None:
    resize = summary(operations={"Resize": 50.0}, workers=2, step=1.0, cores=2)
    first = resize.loaders[0].verdict.causes[0]
    assert first.advice.startswith("Make Resize cheaper")
    assert not first.remedy.setting
    shown = "\n".join(short_report.lines(resize))
    assert "other implementations of it: lotus advise -- python train.py" in shown
    blur = summary(operations={"Blur": 50.0}, workers=2, step=1.0, cores=2)
    assert trial.alternatives_command(blur) == ""


def test_a_setting_is_tried_before_other_implementations() -> None:
    resize = summary(operations={"Resize": 50.0}, workers=0, step=1.0, cores=2)
    assert resize.loaders[0].verdict.causes[0].remedy.setting
    assert trial.alternatives_command(resize) == ""


def test_operations_with_alternatives_are_those_of_the_files() -> None:
    texts = "".join(part.decode() for part in alternative_files.code(alternative_files.names()))
    for name in KNOWN:
        assert name == "Loader" or f'"{name}"' in texts or f".{name}" in texts
    for title in ("Resize", "Compose/Resize", "Resize (waits)", "ToTensor, most of it copy"):
        assert has_alternatives(title)
    assert has_alternatives(operation_name("Loader"))
    assert not has_alternatives("ResizeMine")


def test_the_causes_at_the_end_of_a_trace_add_up() -> None:
    many = {f"Op{number}": 2.0 for number in range(9)}
    lines = short_report.lines(summary(operations=many, step=1.0))
    start = next(at for at, line in enumerate(lines) if line.startswith("Why "))
    rows = [re.match(r" +([\d.]+)%  (.*)", line) for line in lines[start + 1 : start + 6]]
    assert [row is not None for row in rows] == [True] * 5
    shares, names = zip(*(row.groups() for row in rows if row), strict=True)
    assert names[-1] == "the rest"
    assert sum(map(float, shares)) == pytest.approx(100, abs=2.5)


@pytest.mark.parametrize(
    ("prediction", "text"),
    [
        (Prediction(), "not predictable from this run"),
        (Prediction(2.0, 1.5, 2.5), "2 times as fast (1.5 to 2.5), by a replay of its batches"),
        (
            Prediction(0.4, 1.6e-5, 7600.0),
            "cannot be told by a replay of its batches: these are too few",
        ),
        (Prediction(2.0, 1.995, 2.005), "2 times as fast, by a replay of its batches"),
        (
            Prediction(2.0, 1.0, 2.5, at_best=True),
            "at most 2 times as fast, by a replay of its batches",
        ),
    ],
)
def test_a_gain_has_its_interval(prediction: Prediction, text: str) -> None:
    assert trial.expected(Remedy({"num_workers": 4}, expected=prediction)) == text


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (0.0, "2 times as fast, by a replay of its batches"),
        (0.5e9, "2 times as fast, by a replay of its batches"),
        (10e9, "2 times as fast, by a replay of its batches; all loops together 1.33 times"),
    ],
)
def test_the_gain_of_one_of_several_loops_is_also_told_for_all(other: float, words: str) -> None:
    run = summary(operations={"Slow": 10.0}, step=1.0)
    loader = run.loaders[0]
    # The loops of 10 s gain 5 s; imports and the like are no part of this.
    parts = [RunPart(SETUP, -1, 7e9), RunPart(WAIT, loader.scope.loader, 8e9)]
    parts += [RunPart(STEP, loader.scope.loader, 2e9), RunPart(STEP, 99, other)]
    run = dataclasses.replace(run, time=RunTime(30e9, tuple(parts), 0))
    remedy = Remedy({"num_workers": 4}, expected=Prediction(2.0, 2.0, 2.0))
    assert trial.expected_in_run(remedy, loader, run) == words
    assert trial.expected_in_run(CODE, loader, run) == ""


def test_nothing_is_said_of_the_gain_of_a_change_of_code() -> None:
    assert not trial.expected(CODE)


def test_large_gains_are_whole_numbers() -> None:
    assert [factor(each) for each in (1.234, 15.25, 999.6, 1480.4)] == [
        "1.23", "15.2", "1,000", "1,480",
    ]  # fmt: skip
