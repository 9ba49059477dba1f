"""Messages on stderr: one line each, wrapped on a terminal only."""

import contextlib
import io
import os
import pkgutil
import pty
import sys
from collections.abc import Iterator

import pytest

import lotus.commands
from lotus.common.terminal import stderr
from lotus.common.terminal.stderr import say

LONG = (
    "lotus: an epoch of the loader of Waits (40 samples) at loop.py:12 takes 200 ms, which is too "
    "short to gain from another setting, so none was tried"
)


def test_every_command_stays_on_one_line() -> None:
    files = pkgutil.iter_modules(lotus.commands.__path__)
    verbs = {each.name.partition("_")[0] for each in files if not each.ispkg}
    assert set(stderr._VERBS.split("|")) == verbs


@contextlib.contextmanager
def terminal() -> Iterator[tuple[io.TextIOWrapper, int]]:
    """Yield a stream to a terminal and the descriptor that reads what it shows."""
    outer, inner = pty.openpty()
    try:
        with open(inner, "w") as stream:
            yield stream, outer
    finally:
        os.close(outer)


def shown(text: str, monkeypatch: pytest.MonkeyPatch, columns: str = "60") -> list[str]:
    with terminal() as (stream, outer):
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("COLUMNS", columns)
        say(text)
        return os.read(outer, 65536).decode().splitlines()


def test_a_message_is_wrapped_at_the_width_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(LONG, monkeypatch)
    assert len(lines) == 3
    assert all(len(line) <= 60 for line in lines)
    assert " ".join(line.strip() for line in lines) == LONG
    assert shown(LONG, monkeypatch, "500") == [LONG]
    # This terminal does not say how wide it is.
    assert max(map(len, shown(LONG, monkeypatch, ""))) in range(61, 81)


def test_elsewhere_it_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    say(LONG)
    assert capfd.readouterr().err == LONG + "\n"


@pytest.mark.parametrize(
    "command",
    [
        "`lotus tune --budget 120s -f -- python train.py --epochs 3 --data /somewhere/far/away`",
        "lotus sweep -o /a/folder/with/a/long/name --workers 1,2,4 -- python train.py --epochs 3",
        "kill -CONT 4711",
        "pip install --index-url https://download.pytorch.org/whl/cpu torch torchvision",
    ],
)
@pytest.mark.parametrize("words", range(1, 12))
def test_a_command_stays_on_its_line(
    command: str, words: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = f"lotus: {'word ' * words}failed; repeat it with: {command}"
    lines = shown(message, monkeypatch)
    assert any(command in line for line in lines)
    assert all(len(line) <= 60 for line in lines if command not in line)
    then = shown(f"{message}; it may help", monkeypatch)
    assert any(command in line for line in then)


def test_what_is_no_message_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"  a table whose rows are as wide as they are{' ' * 40}x\nnext: lotus report {'x' * 80}"
    assert shown(text, monkeypatch) == text.split("\n")
    assert shown(f"{text}\n{LONG}", monkeypatch)[:2] == text.split("\n")
