"""Stops a candidate loader that takes too long or loses a worker.

While the main thread waits in torch for a batch, none of our code runs in it. So a thread watches
the clock and the workers, and sends the main thread a signal whose handler raises, as torch's own
handler of SIGCHLD does. Python runs signal handlers in the main thread only. In other threads torch
itself has to notice: a dead worker after 5 s, and the time limit as the loader's timeout.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback as tracebacks
from contextlib import contextmanager
from multiprocessing import connection

from ....common.control import deferred_interrupts
from ....common.guard import mark, of_the_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType
    from typing import Any, TypeVar

    _Result = TypeVar("_Result")

_AGAIN_S = 0.5  # the program's code may have caught the exception
_FORCE_S = 5.0  # after that torch is stuck, for instance on a descriptor from a stopped worker
_TRIES, _PAUSE_S = 500, 0.002


class CandidateError(Exception):
    """The reason why a candidate does not work, as a clause after "because"."""


class Stopped(BaseException):
    """Raised by the signal handler; a BaseException, so `except Exception` does not catch it."""


class Watchdog:
    """Runs a call that raises CandidateError if it takes longer than `limit_s` or a worker dies."""

    def __init__(self, limit_s: float, what: str, breakable: bool = True) -> None:
        self.limit_s, self.what = limit_s, what
        # By other signals: see deferred_interrupts.py.
        self._breakable, self._before = breakable, False
        self.deadline = time.monotonic() + limit_s
        self.reason, self._since = "", 0.0
        self._armed = self._done = False
        self._workers: dict[int, int] = {}  # by sentinel: process numbers
        self._iterable = False
        # Whether it can raise: Python runs signal handlers in the main thread only.
        self.raises = threading.main_thread() is threading.current_thread()
        self._number = 0
        self._thread: threading.Thread | None = None

    @property
    def left_s(self) -> float:
        return self.deadline - time.monotonic()

    def workers(self, workers: list[Any], iterable: bool) -> None:
        """Watch these processes; for an iterable data set they may exit with code 0."""
        self._workers = {worker.sentinel: worker.pid for worker in workers}
        self._iterable = iterable
        if self._thread is not None:
            os.write(self._wake[1], b"x")

    def renew(self) -> None:
        """Restart the time limit."""
        self.deadline = time.monotonic() + self.limit_s

    @contextmanager
    def off(self) -> Iterator[None]:
        """Suspend the watchdog and its time limit."""
        before, self._armed = time.monotonic(), False
        try:
            with deferred_interrupts.breakable(False):
                yield
        finally:
            self.deadline += time.monotonic() - before
            self._armed = True

    def run(self, function: Callable[[], _Result]) -> _Result:
        """Return what `function` returns; raise CandidateError if it was stopped."""
        self._start()
        try:
            try:
                return function()
            finally:
                self._stop()
        except Stopped:
            self._stop()  # the signal may have arrived as the first call began
        except BaseException:
            self._stop()
            raise
        # Outside `except`, which would keep the stopped frames alive.
        raise CandidateError(self.reason)

    def _start(self) -> None:
        if self.raises:
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
            self._number = next(
                number
                for number in range(signal.SIGRTMAX, signal.SIGRTMIN, -1)
                if signal.getsignal(number) == signal.SIG_DFL and number not in blocked
            )
            self._wake = os.pipe()
            signal.signal(self._number, self._raise)
            self._thread = threading.Thread(target=self._watch, name="lotus-watch", daemon=True)
            self._thread.start()
        self._armed = True
        self._before = deferred_interrupts.allow(self._breakable)

    def _stop(self) -> None:
        deferred_interrupts.allow(self._before)
        self._armed = False
        self._done = True
        thread, self._thread = self._thread, None
        if thread is not None:
            os.write(self._wake[1], b"x")
            thread.join()
            # Python runs the handler once more for a pending signal before it removes the handler.
            signal.signal(self._number, signal.SIG_DFL)
            for fd in self._wake:
                os.close(fd)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if not self._armed or deferred_interrupts.allowed() != self._breakable:
            return
        if deferred_interrupts.between_waits() and time.monotonic() - self._since < _FORCE_S:
            return  # torch would be left half way; `_watch` sends the signal again
        raise Stopped

    def _watch(self) -> None:
        while not self._done:
            ready = connection.wait(
                [self._wake[0], *self._workers], max(min(self.left_s, 3600.0), 0.0)
            )
            if self._wake[0] in ready:
                os.read(self._wake[0], 64)
            for sentinel in ready:
                pid = self._workers.pop(sentinel, None) if type(sentinel) is int else None
                if pid is not None:
                    self.reason = self.reason or how_ended(pid, self._iterable)
            if not self.reason and self.left_s <= 0:
                self.reason = f"{self.what} took longer than {self.limit_s:g} s"
            self._since = time.monotonic()
            while self.reason and not self._done:
                if self._armed:
                    signal.pthread_kill(threading.main_thread().ident or 0, self._number)
                connection.wait([self._wake[0]], _AGAIN_S)


def how_ended(pid: int, may_end: bool) -> str:
    """Return how a child that is not reaped yet has ended; "" if it ended well."""
    for _ in range(_TRIES):
        try:
            result = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return "" if may_end else "a worker ended"
        if result is not None:
            well = result.si_code == os.CLD_EXITED
            return end_words(result.si_status if well else -result.si_status, may_end)
        time.sleep(_PAUSE_S)  # its descriptors close shortly before it exits
    return ""  # it is alive and has closed its descriptors


def end_words(code: int, may_end: bool) -> str:
    """Return the same for an exit code of multiprocessing, which is negative for a signal."""
    if code < 0:
        return f"a worker was killed by {signal_words(-code)}"
    return "" if code == 0 and may_end else f"a worker ended with exit code {code}"


def signal_words(number: int) -> str:
    """Return text such as "SIGBUS, a bus error, as where shared memory is full"."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if number == signal.SIGBUS:
        return f"{name}, a bus error, as where shared memory is full"
    if number == signal.SIGKILL:
        return f"{name}, as where memory has run out"
    return name


@contextmanager
def held(number: signal.Signals) -> Iterator[None]:
    """Hold a signal back: the program's handler runs at the end of the context if it arrived.

    For SIGCHLD this includes torch's handler, which raises in the main thread when a worker has
    died. A second Ctrl-C, a moment after the first, is not held back.
    """
    handler = signal.getsignal(number)
    if number != signal.SIGCHLD and deferred_interrupts.is_ours(handler):
        with deferred_interrupts.kept_back():
            yield
        return
    if threading.current_thread() is not threading.main_thread() or (
        handler is None or (number != signal.SIGCHLD and not callable(handler))
    ):
        yield
        return
    came: list[int] = []
    insisting = deferred_interrupts.Insisting()

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if number == signal.SIGINT and insisting.again() and callable(handler):
            handler(number, frame)

    signal.signal(number, note)
    try:
        yield
    finally:
        signal.signal(number, handler)
        if came and callable(handler):
            signal.raise_signal(number)


def let_go(error: BaseException | None) -> None:
    """Clear the frames of an exception, so that it keeps none of their variables alive."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        tracebacks.clear_frames(error.__traceback__)
        seen.append(error)
        error = error.__cause__ or error.__context__


def interrupts(error: BaseException) -> bool:
    """Return whether an exception concerns the program rather than the trial.

    That is Ctrl-C, or an exception of the program's own signal handler.
    """
    if not isinstance(error, Exception):
        return True
    torchs = type(error).__module__.partition(".")[0] == "torch"  # no memory left on a device
    if isinstance(error, CandidateError) or torchs or not of_the_program(error):
        return False
    mark(error)  # `let_go` clears the frames that show it
    return True


def words(error: BaseException) -> str:
    """Return one line about an exception; for a worker's, about the original one."""
    kind, text = type(error).__name__, str(error).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines and text.startswith("Caught ") and "Original Traceback" in text:
        below = text.rpartition("Traceback (most recent call last):")[2].splitlines()
        # The exception follows the indented frames and may have several lines.
        raised = next((line for line in below if line[:1].strip()), lines[-1])
    else:
        raised = f"{kind}: {lines[0]}" if lines else kind
    return "".join(char if char.isprintable() else "?" for char in raised)[:300]
