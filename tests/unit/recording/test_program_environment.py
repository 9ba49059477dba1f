"""The variables that a program gets from lotus."""

import os
from pathlib import Path

import pytest

from lotus.format.manifest import TraceSettings
from lotus.recording import program_environment
from lotus.recording.program_environment import VARIABLES

RUN = Path("/runs/first")
EVERYTHING = TraceSettings(
    "op+cpu",
    batches="10:20",
    every=4,
    max_log=1 << 20,
    ops=("train:crop",),
    counters="cycles",
    ranges=("nvtx",),
)


def test_every_variable_of_a_recording_is_known() -> None:
    full = program_environment.with_tracing({}, RUN, EVERYTHING, quiet=True)
    assert full.keys() == {*VARIABLES, "PYTHONPATH"}
    usual = program_environment.with_tracing({}, RUN, TraceSettings())
    assert usual.keys() == {"LOTUS_RUN", "LOTUS_LEVEL", "PYTHONPATH"}


def test_a_run_inside_another_has_its_own_settings() -> None:
    outer = program_environment.with_tracing({"HOME": "/root"}, RUN, EVERYTHING, quiet=True)
    inner = program_environment.with_tracing(outer, Path("/runs/second"), TraceSettings())
    assert inner.pop("PYTHONPATH") == outer["PYTHONPATH"]
    level = TraceSettings().level
    assert inner == {"HOME": "/root", "LOTUS_RUN": "/runs/second", "LOTUS_LEVEL": level}


@pytest.mark.parametrize(
    ("before", "after"), [(None, []), ("", []), ("/a", ["/a"]), (":/a", ["", "/a"])]
)
def test_the_programs_own_path_comes_after_that_of_lotus(
    before: str | None, after: list[str]
) -> None:
    environ = {} if before is None else {"PYTHONPATH": before}
    path = program_environment.with_settings(environ, "{}")["PYTHONPATH"]
    first, *rest = path.split(os.pathsep)
    assert (Path(first) / "sitecustomize.py").is_file()
    assert rest == after
    assert program_environment.with_settings({"PYTHONPATH": path}, "{}")["PYTHONPATH"] == path


def test_a_tuned_program_keeps_its_settings() -> None:
    applied = program_environment.with_settings({"LOTUS_RUN": "/runs/first"}, '{"loaders": [1]}')
    tuned = program_environment.with_tuning(applied, "{}")
    assert tuned == {**applied, "LOTUS_TUNE": "{}"}
    alone = program_environment.with_tuning({}, "{}")
    assert alone["LOTUS_SETTINGS"] == '{"loaders": []}'
