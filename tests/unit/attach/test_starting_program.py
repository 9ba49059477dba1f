"""A program that was started a moment ago is waited for until it has loaded torch."""

import dataclasses
import os
import time

import pytest

from lotus.attach.processes import process_discovery, starting_program
from lotus.attach.processes.process_discovery import ProcessFacts
from lotus.common.errors import LotusError


def process(age_s: float, torch: bool) -> dict[int, ProcessFacts]:
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    ticks = int((now - age_s) * os.sysconf("SC_CLK_TCK"))
    command = ("python", "train.py")
    return {10: ProcessFacts(10, 1, os.geteuid(), "S", ticks, command, "python", True, torch)}


def test_a_young_program_is_waited_for_and_that_is_said_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    before = process(1.0, torch=False)
    loaded = {10: dataclasses.replace(before[10], torch=True)}
    later = iter([before, loaded])
    monkeypatch.setattr(process_discovery, "read_processes", lambda: next(later))
    monkeypatch.setattr(starting_program, "_LOOK_S", 0.0)
    (program,) = starting_program.programs_of(10, before)
    assert program.main == loaded[10]
    assert capfd.readouterr().err == (
        "lotus: process 10 has just started; lotus waits until it has loaded torch\n"
    )
    assert starting_program.programs_of(10, loaded)[0].main == loaded[10]
    assert capfd.readouterr().err == ""


def test_one_that_ends_meanwhile_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_discovery, "read_processes", dict)
    monkeypatch.setattr(starting_program, "_LOOK_S", 0.0)
    with pytest.raises(LotusError, match="no process 10 here"):
        starting_program.programs_of(10, process(1.0, torch=False))


def test_an_older_one_is_refused_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LotusError, match="has not loaded torch"):
        starting_program.programs_of(10, process(100.0, torch=False))
    assert capfd.readouterr().err == ""
