"""Telling the program's exceptions from our own."""

import importlib
import signal
import sys
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

import pytest

from lotus.inside.common.guard import hook, of_the_program


class Interrupted(Loader):
    """Makes modules whose import a signal interrupts, in a function of importlib."""

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name.startswith("interrupted_") else None

    def exec_module(self, module: ModuleType) -> None:
        removed: Any = importlib._bootstrap  # type: ignore[attr-defined]
        removed._call_with_frames_removed(signal.raise_signal, signal.SIGUSR1)


@hook
def importing(name: str) -> None:
    __import__(name)  # as an import statement: importlib.import_module keeps the frames


@hook
def dividing(name: str) -> None:
    len(name) // 0


@pytest.fixture
def handler(monkeypatch: pytest.MonkeyPatch) -> Any:
    def raising(number: int, frame: object) -> NoReturn:
        raise ValueError("of the program")

    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    before = signal.signal(signal.SIGUSR1, raising)
    yield
    signal.signal(signal.SIGUSR1, before)


def test_a_handler_that_interrupts_our_import_is_the_programs(handler: None) -> None:
    with pytest.raises(ValueError, match="of the program") as caught:
        importing("interrupted_here")
    assert of_the_program(caught.value)


def test_our_own_error_is_not(handler: None) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        dividing("")
    assert not of_the_program(caught.value)
