"""The command line as a whole: its help, its cheapness, its errors."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lotus import cli
from lotus.commands.common import arguments
from tests.simulation import simulate

HEAVY = ("torch", "pandas", "numpy", "rich", "msgspec", "torchvision", "PIL")


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lotus", *arguments], capture_output=True, text=True
    )


@pytest.mark.parametrize(
    "statement",
    [
        "import lotus",
        "from lotus import cli; cli.main(['--help'])",
        "from lotus import cli; cli.main(['trace', '-q', '-o', sys.argv[1], '--', 'true'])",
        "from lotus import cli; cli.main(['tune', '-q', '-o', sys.argv[1], '--', 'true'])",
    ],
)
def test_nothing_heavy_is_imported(statement: str, tmp_path: Path) -> None:
    code = f"""
import sys
try:
    {statement}
except SystemExit:
    pass
found = [name for name in {HEAVY!r} if name in sys.modules]
assert not found, found
"""
    run = subprocess.run([sys.executable, "-c", code, tmp_path / "run"], capture_output=True)
    assert run.returncode == 0, run.stderr.decode()


def test_help_names_every_command_and_each_has_an_example() -> None:
    overview = _run("--help").stdout
    for name in ("trace", "report", "tune", "demo"):
        assert f"\n    {name} " in overview
        text = _run(name, "--help").stdout
        assert "example" in text
        assert f"  lotus {name}" in text


@pytest.mark.parametrize("verb", ["report", "report --json", "report --markdown", "compare"])
def test_a_reader_that_has_gone_ends_a_verb_quietly(verb: str, tmp_path: Path) -> None:
    simulate(tmp_path / "run")
    name, *options = verb.split()
    runs = [tmp_path / "run"] * (2 if name == "compare" else 1)
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "lotus", name, *options, *runs]
    run = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    # As a shell reports a program that SIGPIPE ended.
    assert (run.returncode, run.stderr) == (128 + signal.SIGPIPE, b"")


def test_the_version_is_that_of_the_package() -> None:
    import lotus

    assert _run("--version").stdout == f"lotus {lotus.__version__}\n"


def test_an_unknown_command_is_a_usage_error() -> None:
    run = _run("frobnicate")
    assert run.returncode == 2
    assert "frobnicate" in run.stderr
    assert "Traceback" not in run.stderr


def test_half_a_command_names_the_whole_ones(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cache"]) == 2
    assert "lotus cache ls, lotus cache rm" in capfd.readouterr().err
    assert cli.main(["cache", "--help"]) == 0
    listed = capfd.readouterr().out
    assert re.findall(r"^    (\w+ ?\w*) ", listed, re.M) == ["cache ls", "cache rm"]


def test_without_a_command_all_are_listed(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert capfd.readouterr().out == cli.parser().format_help()


def test_unknown_attributes_of_lotus_are_attribute_errors() -> None:
    import lotus

    with pytest.raises(AttributeError, match="frobnicate"):
        _ = lotus.frobnicate
    assert {"load", "span", "trace"} <= set(dir(lotus))
    assert lotus.span("x") is not None


@pytest.mark.parametrize(
    ("text", "size"),
    [("500MB", 500_000_000), ("2G", 2_000_000_000), ("1.5KiB", 1536), ("10", 10), ("7 kB", 7000)],
)
def test_sizes_are_read_with_their_units(text: str, size: int) -> None:
    assert arguments.size(text) == size


@pytest.mark.parametrize(
    "arguments",
    [
        ["--max-log", "lots"],
        ["--max-log", "0"],
        ["--batches", "5"],
        ["--batches", "9:5"],
        ["--every", "0"],
        ["--every", "x"],
        ["--op", "no_colon"],
        ["--op", "a.b:"],
        ["--level", "everything"],
    ],
    ids=" ".join,
)
def test_a_wrong_option_is_a_usage_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["trace", *arguments, "--", "true"])
    assert caught.value.code == 2
    assert arguments[1] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("whatif --workers two", "'two' is not a whole number from 0 to 4,096; try: lotus whatif"),
        ("sweep --workers a,b", "; try: lotus sweep --workers 1,2,4,8 -o S -- python train.py"),
        ("export RUN", "--format; try: lotus export RUN --format perfetto"),
        ("export RUN --format chrom", "(did you mean chrome?); try: lotus export RUN --format"),
        ("merge", "; try: lotus merge node0/run node1/run -o job"),
        ("demo --workload nope", "; try: lotus demo --workload segmentation"),
        ("attach tab.py", "is no PID (`lotus attach` alone finds the process with torch"),
        ("--nonsense", "; try: lotus trace -- python train.py\n"),
    ],
)
def test_a_usage_error_is_one_line_that_ends_with_a_command(
    line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(line.split())
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_kept_workers_have_one_name_in_all_verbs() -> None:
    for word in ("--persistent", "--persistent-workers"):
        sweep = cli.parser(["sweep"]).parse_args(["sweep", word, "on,off"])
        assert sweep.persistent == (True, False)
        assert cli.parser(["whatif"]).parse_args(["whatif", word]).persistent_workers is True
    for verb in ("sweep", "whatif"):
        listed = next(iter(cli.parser([verb])._subparsers._group_actions)).choices[verb]  # type: ignore[union-attr]
        assert "--persistent-workers" not in listed.format_help()


@pytest.mark.parametrize(
    ("word", "meant"), [("trase", "did you mean `lotus trace`? "), ("xyz", "")]
)
def test_a_word_that_is_no_verb_is_one_line(
    word: str, meant: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([word, "--", "python", "train.py"]) == 2
    assert capfd.readouterr().err == (
        f"lotus: there is no command '{word}'; {meant}`lotus --help` lists the commands\n"
    )


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_shell_completes_verbs_and_options(
    shell: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("shtab")
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    assert cli.main(["completion", shell]) == 0
    script = tmp_path / "lotus"
    script.write_text(capfd.readouterr().out)
    assert subprocess.run([shell, "-n", script]).returncode == 0
    if shell == "bash":
        ask = "source {}; COMP_WORDS=({}); COMP_CWORD={}; _shtab_lotus; echo ${{COMPREPLY[@]}}"
        for words, completed in (("lotus sw", "sweep"), ("lotus report --ht", "--html")):
            line = ask.format(script, words, len(words.split()) - 1)
            done = subprocess.run([shell, "-c", line], capture_output=True, text=True)
            assert done.stdout.split() == [completed]


def test_an_error_is_one_line_that_steers_no_terminal(tmp_path, capfd):
    assert cli.main(["report", str(tmp_path / "a\n\x1b[2J\u202eb")]) == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert "a\\n\\x1b[2J\\u202eb" in error


def test_a_full_disk_behind_stdout_is_said() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "lotus", "completion", "bash"],
            stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "lotus: cannot write to the standard output: No space left on device\n"


def test_a_run_that_may_not_be_read_is_one_line_with_what_to_type(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "np"
    run.mkdir()

    def refuse(arguments: list[str]) -> int:  # as Path.is_file() does in the commands
        raise PermissionError(13, "Permission denied", str(run / "run.json"))

    monkeypatch.setattr(cli, "_run", refuse)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != run)
    monkeypatch.setattr(os, "geteuid", lambda: run.stat().st_uid + 1)
    assert cli.main(["report", str(run)]) == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert f"lotus: {run} cannot be read by this user (it belongs to " in error
    assert f"chmod -R go+rX {run}, or run lotus as its owner" in error
