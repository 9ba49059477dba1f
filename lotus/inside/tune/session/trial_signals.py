"""Handles signals during trials: they end the trials first and then reach the program."""

from __future__ import annotations

import signal
import threading
from functools import partial

from ...common.control import deferred_interrupts
from ...common.guard import mark
from .program_end import end

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any


class TrialSignals:
    """Replaces the handlers of Ctrl-C and of all signals that the program handles, during trials.

    An exception that a handler raises ends the trials cleanly; `raised` is that exception.
    """

    def __init__(self) -> None:
        self.raised: BaseException | None = None
        self._replaced: dict[int, tuple[Any, Any]] = {}  # by number: our handler, theirs

    def take(self) -> None:
        """Replace the program's handlers; only in its main thread."""
        self.raised, self._replaced = None, {}
        if threading.current_thread() is not threading.main_thread():
            return
        for number in signal.valid_signals():
            theirs = signal.getsignal(number)
            handler: Callable[[int, Any], object]
            if number == signal.SIGINT:
                if theirs in (signal.SIG_IGN, None):
                    continue
                handler = partial(self._interrupt, deferred_interrupts.Insisting())
            elif callable(theirs):
                handler = partial(self._pass_on, theirs)
            else:
                continue
            ours = deferred_interrupts.ours(handler)
            self._replaced[number] = (ours, signal.signal(number, ours))

    def give_back(self) -> None:
        """Put the program's handlers back where they have not been replaced since."""
        deferred_interrupts.forget()
        for number, (ours, theirs) in self._replaced.items():
            if signal.getsignal(number) is ours:
                signal.signal(number, theirs)

    def raise_again(self) -> None:
        """Raise in the program the exception that was raised during the trials, if any."""
        if self.raised is None:
            return
        _, theirs = self._replaced.get(signal.SIGINT, (None, signal.default_int_handler))
        if type(self.raised) is KeyboardInterrupt and theirs is not signal.default_int_handler:
            signal.raise_signal(signal.SIGINT)  # the program has a handler of its own
        else:
            raise self.raised

    def _interrupt(
        self, insisting: deferred_interrupts.Insisting, number: int, frame: object
    ) -> None:
        if insisting.again():  # the first one should have ended the trials and has not
            end(128 + number)
        self._stop(KeyboardInterrupt())

    def _pass_on(self, handler: Callable[..., Any], number: int, frame: FrameType | None) -> None:
        try:
            handler(number, frame)
        except BaseException as error:
            self._stop(error)

    def _stop(self, error: BaseException) -> None:
        """Raise an exception now or, if that would do harm, at the next wait."""
        mark(error)
        if self.raised is None:
            self.raised = error
            deferred_interrupts.stop(error)
