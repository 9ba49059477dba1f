"""Asking a job's store for a time and no longer, whatever becomes of the store.

torch's own limit holds where a value is waited for. A store whose process is stopped, or whose
host is gone without a word, keeps every other call for ever: the program, which has no need of the
store once its ranks have met, would hang in a question of ours.
"""

import _thread
import itertools
import os
import time
from queue import SimpleQueue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_NAP_S, _LONGEST_NAP_S = 0.002, 0.1


def looks(wait_s: float) -> "Iterator[None]":
    """One a look, with ever longer naps between them, until the time is over; one at least."""
    end, nap = time.monotonic() + wait_s, _NAP_S
    while True:
        yield
        if time.monotonic() > end:
            return
        time.sleep(nap)
        nap = min(2 * nap, _LONGEST_NAP_S)


class _Call:
    """One call that is to be made, and what came of it."""

    __slots__ = ("arguments", "error", "function", "over", "value", "wanted")

    def __init__(self, function: "Callable[..., Any]", arguments: "tuple[Any, ...]") -> None:
        self.function, self.arguments = function, arguments
        self.wanted = True  # who asked still waits
        self.value: Any = None
        self.error: BaseException | None = None
        self.over = _thread.allocate_lock()
        self.over.acquire()

    def make(self) -> None:
        try:
            if self.wanted:
                self.value = self.function(*self.arguments)
        except BaseException as error:  # raised in the thread that asked
            self.error = error
        self.over.release()


class _Caller:
    """The thread that makes all calls of a process, one after the other.

    Not one of threading's: a program may wait for those that it finds there.
    """

    def __init__(self) -> None:
        self.calls: SimpleQueue[_Call] = SimpleQueue()
        self.asked = itertools.count()

    def within(self, wait_s: float, call: _Call) -> bool:
        """Whether the call came to its end in time; if it had not begun by then, it never does."""
        if next(self.asked) == 0:
            _thread.start_new_thread(_make_all, (self.calls,))
        self.calls.put(call)
        try:
            return call.over.acquire(timeout=min(wait_s, _thread.TIMEOUT_MAX))
        finally:
            call.wanted = False


def _make_all(calls: "SimpleQueue[_Call]") -> None:
    while True:
        calls.get().make()


_callers: dict[int, _Caller] = {}  # by process: a fork has no threads but the one that forked


class Patient:
    """What we ask of `store`: one call at a time for the whole process, in a thread beside it.

    All calls raise what the store raises, and TimeoutError after `wait_s`, also where it is an
    earlier call that hangs. What was sent by then may still come to be, when the store goes on.
    """

    def __init__(self, store: "Any", wait_s: float) -> None:
        self.store, self.wait_s = store, wait_s

    def set(self, key: str, value: str) -> None:
        self._within(self.store.set, key, value)

    def add(self, key: str, more: int) -> int:
        return int(self._within(self.store.add, key, more))

    def get(self, key: str) -> bytes:
        return bytes(self._within(self.store.get, key))

    def multi_get(self, keys: "list[str]") -> "list[bytes]":
        return [bytes(value) for value in self._within(self.store.multi_get, keys)]

    def _within(self, function: "Callable[..., Any]", *arguments: "Any") -> "Any":
        call = _Call(function, arguments)
        caller = _callers.get(os.getpid()) or _callers.setdefault(os.getpid(), _Caller())
        if not caller.within(self.wait_s, call):
            raise TimeoutError(f"it did not answer in {self.wait_s:g} s")
        if call.error is not None:
            raise call.error
        return call.value
