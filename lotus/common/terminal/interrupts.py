"""Ctrl-C at a command: an exception, but never within an import.

A library that is being imported may turn KeyboardInterrupt into another error, or lose it. So one
that comes then is raised once the import has ended; a second one, a moment later, at once.
"""

import _thread
import contextlib
import signal
import sys
import time
from types import CodeType, FrameType

_IMPORTING = "<frozen importlib._bootstrap>"
_AGAIN_S = 0.01
_INSISTS_S = 0.5  # a launcher and the terminal may both deliver one Ctrl-C


class Interrupts:
    """A context in which Ctrl-C raises KeyboardInterrupt, except while its code imports.

    `outermost` is the code of the function that uses it: imports that it runs within are not its
    own. An ignored signal (nohup, a shell's background job) remains ignored, and a handler of a
    program that calls the command remains.
    """

    def __init__(self, outermost: CodeType) -> None:
        self._outermost = outermost
        self._before: object = None
        self._since_s: float | None = None  # when a signal came that waits for the end of an import
        self._is_due = False  # the next signal repeats that one, as no import runs any more
        self._main = _thread.get_ident()

    def __enter__(self) -> None:
        before = signal.getsignal(signal.SIGINT)
        if before in (signal.default_int_handler, signal.SIG_DFL):
            with contextlib.suppress(ValueError):  # only the main thread may
                signal.signal(signal.SIGINT, self._interrupt)
                self._before = before

    def __exit__(self, *_: object) -> None:
        self._since_s = None
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)  # type: ignore[arg-type]

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        is_due, self._is_due = self._is_due, False
        since_s, now_s = self._since_s, time.monotonic()
        insists = since_s is not None and not is_due and now_s - since_s >= _INSISTS_S
        if insists or not self._imports(frame):
            self._since_s = None
            raise KeyboardInterrupt
        if since_s is not None:
            return
        self._since_s = now_s
        try:
            _thread.start_new_thread(self._wait, ())
        except RuntimeError:  # no thread could be started
            self._since_s = None
            raise KeyboardInterrupt from None

    def _wait(self) -> None:
        """Interrupt the main thread again once it imports nothing."""
        while self._since_s is not None:
            time.sleep(_AGAIN_S)
            frame = sys._current_frames().get(self._main)
            if self._since_s is not None and not self._imports(frame):
                self._is_due = True
                _thread.interrupt_main()

    def _imports(self, frame: FrameType | None) -> bool:
        while frame is not None and frame.f_code is not self._outermost:
            if frame.f_code.co_filename == _IMPORTING:
                return True
            frame = frame.f_back
        return False
