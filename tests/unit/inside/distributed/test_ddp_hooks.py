"""What goes before the end of a program: never in its way."""

import signal
import sys
from typing import Any

import pytest

from lotus.inside.apply.settings_applier import Applier
from lotus.inside.distributed.ddp_hooks import Acting


class Feature(Acting):
    """One that hooks nothing."""

    feature = "mode"

    def hook_loaders(self, module: Any) -> None:
        pass


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the program's own `sys.excepthook` is called with."""
    errors: list[Any] = []
    monkeypatch.setattr(sys, "excepthook", lambda *error: errors.append(error))
    return errors


def feature() -> Feature:
    return Feature(Applier({"LOTUS_SETTINGS": "{}"}))


@pytest.mark.parametrize("fault", [ValueError("of ours"), SystemExit(7), KeyboardInterrupt()])
def test_what_fails_before_the_end_changes_nothing_of_it(shown: list[Any], fault: Any) -> None:
    def call(kind: Any, error: Any) -> None:
        raise fault

    feature().before_uncaught(call)
    error = RuntimeError("of the program")
    sys.excepthook(RuntimeError, error, None)
    assert shown == [(RuntimeError, error, None)]


def test_a_handler_of_the_program_ends_it_as_it_says_when_its_error_was_shown(
    shown: list[Any],
) -> None:
    def handler(number: int, frame: Any) -> None:
        raise SystemExit(3)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        feature().before_uncaught(lambda kind, error: signal.raise_signal(signal.SIGUSR1))
        error = RuntimeError("of the program")
        with pytest.raises(SystemExit) as ended:
            sys.excepthook(RuntimeError, error, None)
        assert ended.value.code == 3
        assert shown == [(RuntimeError, error, None)]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_it_is_taken_back_also_below_a_hook_of_the_program(shown: list[Any]) -> None:
    made, called = feature(), list[Any]()
    made.before_uncaught(lambda kind, error: called.append(kind))
    below = sys.excepthook
    sys.excepthook = lambda *error: below(*error)
    sys.excepthook(ValueError, ValueError(), None)
    made.applier.uninstall()
    sys.excepthook(ValueError, ValueError(), None)
    assert (len(called), len(shown)) == (1, 2)
