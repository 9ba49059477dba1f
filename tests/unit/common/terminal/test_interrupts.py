"""Ctrl-C raises an exception outside imports, for as long as the context lasts."""

import signal

import pytest

from lotus.common.terminal.interrupts import Interrupts


def test_ctrl_c_raises_and_the_handler_of_before_returns() -> None:
    before = signal.getsignal(signal.SIGINT)
    code = test_ctrl_c_raises_and_the_handler_of_before_returns.__code__
    with Interrupts(code):
        assert signal.getsignal(signal.SIGINT) != before
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) == before


def test_an_ignored_signal_and_a_handler_of_the_caller_remain() -> None:
    before = signal.getsignal(signal.SIGINT)
    code = test_an_ignored_signal_and_a_handler_of_the_caller_remain.__code__
    for theirs in (signal.SIG_IGN, lambda number, frame: None):
        signal.signal(signal.SIGINT, theirs)
        try:
            with Interrupts(code):
                assert signal.getsignal(signal.SIGINT) == theirs
                signal.raise_signal(signal.SIGINT)
        finally:
            signal.signal(signal.SIGINT, before)
