"""Options of the program before `--`: the error shows the line to type."""

import re
import shlex
from pathlib import Path

import pytest

from lotus import cli
from lotus.recording import launcher
from lotus.recording.launcher import CommandStartError


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("trace --epochs 3 -- python train.py", "trace -- python train.py --epochs 3"),
        ("trace --epochs=3 -- python train.py", "trace -- python train.py --epochs=3"),
        ("trace -e 3 -- python train.py --lr 1", "trace -- python train.py --lr 1 -e 3"),
        ("trace --epochs 3 python train.py", "trace -- python train.py --epochs 3"),
        ("trace --mode test python train.py -o x", "trace -- python train.py -o x --mode test"),
        ("trace --amp train.py", "trace -- python train.py --amp"),
        (
            "trace --epochs 3 --level op -o x --perf -- train.py 'a b'",
            "trace --level op -o x --perf -- python train.py 'a b' --epochs 3",
        ),
        ("trace --every=2 --lr 1 -- bash run.sh", "trace --every=2 -- bash run.sh --lr 1"),
        ("trace --epochs", "trace -- python train.py --epochs"),
        ("tune --epochs 3 -- python train.py", "tune -- python train.py --epochs 3"),
        ("run --epochs 3 -- torchrun train.py", "run -- torchrun train.py --epochs 3"),
        ("trace --epochs 3 horovodrun train.py", "trace -- horovodrun train.py --epochs 3"),
        (
            "sweep --workers 1,2 --epochs 3 -- python train.py",
            "sweep --workers 1,2 -- python train.py --epochs 3",
        ),
        ("map build --epochs 3 -- python train.py", "map build -- python train.py --epochs 3"),
    ],
)
def test_the_right_line_is_shown(typed: str, line: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(shlex.split(typed)) == 2
    error = capfd.readouterr().err
    assert re.match(r"lotus: (--?\w+) is not an option of lotus ", error)
    assert error.endswith(f"goes behind it: lotus {line}\n")


def test_a_mistyped_option_of_lotus_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trace", "--leve", "op", "--", "python", "train.py"]) == 2
    assert (
        "--leve is not an option of lotus trace (did you mean --level?)" in capfd.readouterr().err
    )


@pytest.mark.parametrize(
    ("typed", "error"),
    [
        (
            "report --epochs 3",
            "--epochs is not an option of lotus report; `lotus report --help` lists what it takes",
        ),
        (
            "report first --htlm x.html",
            "--htlm is not an option of lotus report (did you mean --html?); `lotus report --help` "
            "lists what it takes",
        ),
        (
            "report first second",
            "second is one word too many for lotus report; `lotus report --help` lists what it "
            "takes",
        ),
        (
            "cache ls --jsn",
            "--jsn is not an option of lotus cache ls (did you mean --json?); `lotus cache ls "
            "--help` lists what it takes",
        ),
    ],
)
def test_verbs_without_a_program_say_what_they_do_not_take(
    typed: str, error: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(shlex.split(typed)) == 2
    assert capfd.readouterr().err == f"lotus: {error}\n"


def test_a_script_that_is_not_there_keeps_its_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandStartError, match=r"there is no file train\.py in ") as error:
        launcher.resolve(["train.py", "--epochs", "3"])
    assert str(error.value).endswith("-- python PATH/train.py --epochs 3")
