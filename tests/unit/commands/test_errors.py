"""What is refused is refused in one line that says what to do next."""

import os
import shlex
from pathlib import Path

import pytest

from lotus import cli
from lotus.compare import sides
from tests.logs import RunBuilder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a run that iterated nothing, and things that are no run."""
    RunBuilder(tmp_path / "run").end()
    (tmp_path / "file").write_text("x")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "run.json").write_text("{}")
    (tmp_path / "sweep").mkdir()
    (tmp_path / "sweep" / "sweep.json").write_text('{"schema": 1, "settings": [], "runs": []}')
    (tmp_path / "many").mkdir()
    for number in range(3):
        run = tmp_path / "many" / str(number)
        run.mkdir()
        (run / "run.json").write_text("{}")
    monkeypatch.setattr(sides, "_MOST_RUNS", 2)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "next_step"),
    [
        ("trace", "try `lotus trace -- python train.py`"),
        ("trace -- ./foreign", "name a program in it"),
        ("report nothing", "record one with: lotus trace -o DIRECTORY -- python train.py"),
        ("report file", "give the directory that lotus trace made"),
        ("report run --loader 7", "there are: none"),
        ("map run", "record them with: lotus trace --counters --perf -o DIRECTORY -- COMMAND"),
        ("map validate run", "record with lotus trace --perf -- COMMAND"),
        ("map apply nothing.json file", "type: lotus map build --help"),
        ("map build --budget 0 -- python train.py", "as in: --budget 5"),
        ("map build --wanted 2 -- python train.py", "see: lotus map build --help"),
        ("whatif run", "record one with: lotus trace --level op+cpu -- COMMAND"),
        ("top nothing", "lotus trace -o nothing -- COMMAND makes it one"),
        ("top file", "give the directory that lotus trace made"),
        ("top foreign", "give the directory that lotus trace made"),
        ("compare run", "type: lotus compare A B"),
        ("compare run 'no-*'", "see what is there with: ls"),
        ("compare many run", "name fewer"),
        ("report sweep", "its runs can be read: lotus report sweep/runs/NAME"),
        ("sweep -o foreign -- true", "choose another directory with -o"),
        ("sweep --resume nothing", "make a sweep with: lotus sweep --workers 1,2,4"),
        ("run --settings nothing.json -- true", "create it with `lotus tune -o nothing.json"),
        ("run --settings advice.json -- true", "`lotus advise -o advice.json -- COMMAND`"),
        ("run --settings plan.json -- true", "`lotus plan -o plan.json -- COMMAND`"),
        ("run --settings balance.json -- true", "`lotus balance RUN -o balance.json`"),
        ("tune", "try `lotus tune -- python train.py`"),
        ("schema nothing", "there are: advise, attach, "),
    ],
)
def test_an_error_is_one_line_that_says_what_to_do_next(
    words: str, next_step: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = sorted(os.listdir(folder))
    assert cli.main(shlex.split(words)) in (2, 126)
    *progress, error = capfd.readouterr().err.splitlines()
    assert error.startswith("lotus: ")
    assert next_step in error
    assert not progress
    assert sorted(os.listdir(folder)) == before, "nothing is left behind"


@pytest.mark.parametrize("words", ["trace -- train.py", "report", "compare a b"])
def test_a_working_directory_that_was_removed_is_one_line_too(
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert cli.main(words.split()) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("lotus: ")
