"""`lotus export` on the command line: where it writes, what it says, what it refuses."""

import importlib
import inspect
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from lotus import cli
from lotus.commands import export
from lotus.export import formats
from lotus.export.export_request import DirectoryFormat, ExportRequest, FileFormat
from tests.logs import RunBuilder
from tests.simulation import simulate

ROOT = Path(formats.__file__).parents[2]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    simulate(tmp_path / "some run")
    return tmp_path


def lotus(capfd, *words):
    code = cli.main(["export", *words])
    captured = capfd.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("format", [name for name in formats.FORMATS if name != "parquet"])
def test_it_is_named_after_the_run_and_the_next_step_is_told(here, capfd, format):
    code, out, _ = lotus(capfd, "some run", "--format", format)
    assert code == 0
    path, following = out.splitlines()
    ending = formats.FORMATS[format].ending or f"-{format}"
    assert path == f"some run{ending}"
    assert Path(path).exists()
    assert any(word in following for word in ("https://", "flamegraph.pl", "pprof", "read_csv"))
    if format == "csv":
        assert Path(following.partition("('")[2].removesuffix("')")).is_file()
    # WHEN it is asked for again THEN what is there is left
    before = os.stat(path).st_mtime_ns
    code, _, err = lotus(capfd, "some run", "--format", format)
    assert code == 2
    assert "overwrite it with -f" in err
    assert os.stat(path).st_mtime_ns == before
    assert lotus(capfd, "some run", "--format", format, "-f")[0] == 0
    assert sorted(file.name for file in here.iterdir()) == ["some run", path]


def test_a_run_whose_name_would_steer_a_terminal_does_not(here, capfd):
    (here / "some run").rename(here / "a\x1b[31m\x9brun")
    code, out, _ = lotus(capfd, "a\x1b[31m\x9brun", "--format", "folded")
    assert code == 0
    assert out.splitlines()[0] == r"a\x1b[31m\x9brun.folded.txt"
    assert out.replace("\n", "").isprintable()


@pytest.mark.parametrize("output", ["-", "/dev/stdout"])
def test_standard_output_has_the_file_and_nothing_else(here, output):
    words = [sys.executable, "-m", "lotus", "export", "some run", "--format", "chrome"]
    done = subprocess.run(
        [*words, "-o", output], capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["traceEvents"]) > 10
    assert [file.name for file in here.iterdir()] == ["some run"]


@pytest.mark.parametrize(("format", "code"), [("perfetto", 2), ("pprof", 2), ("folded", 0)])
def test_a_terminal_is_given_text_only(here, format, code):
    main, terminal = os.openpty()
    words = [sys.executable, "-m", "lotus", "export", "some run", "--format", format, "-o", "-"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, stdout=terminal, stderr=subprocess.PIPE, env=env)
    os.close(terminal)
    assert done.returncode == code
    if code:
        assert b"name a file with -o" in done.stderr
    else:
        assert b";step " in os.read(main, 10_000)
    os.close(main)


def test_a_reader_that_goes_away_is_no_error_of_ours(here):
    python = shlex.quote(sys.executable)
    words = f"{python} -m lotus export 'some run' --format chrome -o - | head -c 1"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, shell=True, capture_output=True, env=env)
    assert done.stdout == b"{"
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--format", "perfetto", "--with", "x.json"], "--format chrome"),
        (["--format", "pprof", "--weight", "time"], "--weight is for"),
        (["--format", "folded", "--weight", "nothing"], "takes one of time"),
        (["--format", "csv", "-o", "-"], "makes a directory"),
        (["--format", "chrome", "-o", "absent/x.json"], "cannot write absent/x.json"),
        (["--format", "chrome", "-o", "some run"], "is a directory"),
        (["--format", "chrome", "--with", "absent.json"], "cannot read absent.json"),
        (["--format", "csv", "-o", "a-file"], "not a directory"),
    ],
)
def test_what_is_refused(here, capfd, words, error):
    (here / "a-file").write_text("mine")
    code, out, err = lotus(capfd, "some run", *words)
    assert (code, out) == (2, "")
    assert error in err
    assert err.count("\n") == 1
    assert sorted(file.name for file in here.iterdir()) == ["a-file", "some run"]
    assert (here / "a-file").read_text() == "mine"


def test_parquet_says_what_it_needs(here, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = lotus(capfd, "some run", "--format", "parquet")
    assert code == 2
    assert "pip install pyarrow" in err
    assert "--format csv" in err


def test_a_run_without_a_loader(here, capfd):
    builder = RunBuilder(here / "bare")
    builder.process(100)
    builder.end()
    for format in ("perfetto", "chrome", "csv"):
        code, _, err = lotus(capfd, "bare", "--format", format)
        assert code == 0
        assert ("no loader was iterated" in err) == (format != "csv")
    for format in ("folded", "speedscope", "pprof"):
        code, _, err = lotus(capfd, "bare", "--format", format)
        assert code == 2
        assert "no loader was iterated" in err


def test_no_run_and_no_format(here, capfd):
    assert lotus(capfd, "absent", "--format", "chrome")[0] == 2
    with pytest.raises(SystemExit):
        cli.main(["export", "some run"])


@pytest.mark.parametrize("format", formats.FORMATS.values(), ids=lambda format: format.name)
def test_every_row_names_a_module_that_follows_the_protocol(format):
    if format.needs:
        pytest.importorskip(format.needs)
    module = importlib.import_module(f"lotus.export.{format.module}")
    name, kind = ("pieces", FileFormat) if format.ending else ("fill", DirectoryFormat)
    own = inspect.signature(getattr(module, name))
    expected = inspect.signature(getattr(kind, name))
    assert list(own.parameters.values()) == list(expected.parameters.values())[1:]
    assert own.return_annotation == expected.return_annotation
    assert format.options <= set(ExportRequest.__dataclass_fields__)
    assert f"\n  {format.name} " in export.EPILOG
