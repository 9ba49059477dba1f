"""The callbacks of Lightning and transformers: what the frameworks' own loggers get."""

import os
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import lotus
from lotus.analysis.verdict.run_time import run_time
from tests.compat.conftest import ALONE, PROGRAMS
from tests.integration.conftest import LOTUS, PYTHON, ROOT, Ended, Start

Run = Callable[..., Ended]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """run(library, program, *words, before=()): a program in an empty directory."""

    def start(library: str, program: str, *words: str, before: tuple[str, ...] = ()) -> Ended:
        try:
            version(library)
        except PackageNotFoundError:
            pytest.skip(f"{library} is not installed: make test-extras")
        command = [*before, PYTHON, str(PROGRAMS / program), *words]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        own = {**ALONE, "HOME": str(tmp_path), "PYTHONPATH": path}
        return Start(command, tmp_path, "program", own).end()

    return start


def test_lightnings_loggers_get_waits_and_cause_after_each_epoch(run: Run, tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    ended = run("lightning", "lightning_callback.py")
    assert (ended.code, ended.out.strip().splitlines()[-1]) == (0, b"fitted 24"), ended.err
    (folder,) = (tmp_path / "logs" / "lightning_logs").iterdir()
    written = events.EventAccumulator(str(folder)).Reload()
    waits = written.Scalars("lotus/wait_share")
    assert [each.step for each in waits] == [12, 24]
    assert all(0.2 < each.value <= 1 for each in waits)
    assert all(each.value > 0 for each in written.Scalars("lotus/samples_per_s"))
    assert written.Scalars("lotus/cause_share/dataset")[0].value > 0.2
    err = ended.err.decode()
    assert "HIGHLY INPUT-BOUND" in err
    assert "next: lotus report" in err
    kept = lotus.load(tmp_path / "R")
    assert len(kept.waits) >= 24
    assert kept.manifest["state"] == "ended"
    time = run_time(kept)
    assert time is not None
    assert time.of("callback") == kept.epochs["callback_ns"].sum() > 0


def test_a_fit_without_a_logger_says_the_verdict_all_the_same(run: Run) -> None:
    ended = run("lightning", "lightning_callback.py", "quiet")
    assert ended.code == 0
    assert b"INPUT-BOUND" in ended.err


def test_a_fit_that_fails_fails_as_before_and_is_judged(run: Run, tmp_path: Path) -> None:
    ended = run("lightning", "lightning_callback.py", "fail")
    assert ended.code == 1
    assert b"RuntimeError: mine" in ended.err
    assert b"INPUT-BOUND" in ended.err
    assert lotus.load(tmp_path / "R").manifest["state"] == "ended"


def test_under_lotus_trace_the_callback_looks_at_that_run(run: Run, tmp_path: Path) -> None:
    ended = run("lightning", "lightning_callback.py", before=(*LOTUS, "trace", "-o", "outer", "--"))
    assert ended.code == 0, ended.err
    assert ended.err.count(b"next: lotus report") == 1  # of lotus trace
    assert not (tmp_path / "R").exists()
    assert len(lotus.load(tmp_path / "outer").waits) >= 24


def test_transformers_log_has_the_waits_of_each_epoch(run: Run, tmp_path: Path) -> None:
    ended = run("transformers", "transformers_callback.py")
    assert ended.code == 0, ended.err
    rows = [line.split() for line in ended.out.decode().splitlines() if line.startswith("logged")]
    assert [float(row[1]) for row in rows] == [1.0, 2.0]
    assert all(0.2 < float(row[2]) <= 1 and float(row[3]) > 0 for row in rows)
    assert b"INPUT-BOUND" in ended.err


def test_a_training_of_transformers_that_fails_fails_as_before_and_is_judged(
    run: Run, tmp_path: Path
) -> None:
    ended = run("transformers", "transformers_callback.py", "fail")
    assert ended.code == 1
    assert ended.err.index(b"RuntimeError: mine") < ended.err.index(b"INPUT-BOUND")
    assert ended.err.count(b"next: lotus report") == 1
    assert lotus.load(tmp_path / "R").manifest["state"] == "ended"
