"""Limits the time of every call of a job's store.

torch's own timeout only covers waiting for a value. If the process of the store is stopped, or its
host disappears, any other call blocks forever. The program no longer needs the store once its ranks
have met, so it must not hang in a call that lotus makes.
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


def attempts(wait_s: float) -> "Iterator[None]":
    """Yield once per attempt, at least once, sleeping longer each time, for `wait_s` seconds."""
    end, nap = time.monotonic() + wait_s, _NAP_S
    while True:
        yield
        if time.monotonic() > end:
            return
        time.sleep(nap)
        nap = min(2 * nap, _LONGEST_NAP_S)


class _StoreCall:
    """A call to make, and its outcome."""

    __slots__ = ("arguments", "awaited", "error", "function", "over", "value")

    def __init__(self, function: "Callable[..., Any]", arguments: "tuple[Any, ...]") -> None:
        self.function, self.arguments = function, arguments
        self.awaited = True  # whether the caller still waits
        self.value: Any = None
        self.error: BaseException | None = None
        self.over = _thread.allocate_lock()
        self.over.acquire()

    def make(self) -> None:
        try:
            if self.awaited:
                self.value = self.function(*self.arguments)
        except BaseException as error:  # raised in the thread of the caller
            self.error = error
        self.over.release()


class _StoreThread:
    """The thread that makes all store calls of a process, one after the other.

    It is not a `threading.Thread`, because a program may join all of those.
    """

    def __init__(self) -> None:
        self.calls: SimpleQueue[_StoreCall] = SimpleQueue()
        self.started = itertools.count()

    def within(self, wait_s: float, call: _StoreCall) -> bool:
        """Return whether the call ended in time; a call that has not begun by then is dropped."""
        if next(self.started) == 0:
            _thread.start_new_thread(_make_all, (self.calls,))
        self.calls.put(call)
        try:
            return call.over.acquire(timeout=min(wait_s, _thread.TIMEOUT_MAX))
        finally:
            call.awaited = False


def _make_all(calls: "SimpleQueue[_StoreCall]") -> None:
    while True:
        calls.get().make()


_threads: dict[int, _StoreThread] = {}  # by process, as a forked child has no such thread


class StoreWithTimeout:
    """A store whose calls are made one at a time in a thread of their own.

    Every call raises whatever the store raises, and TimeoutError after `wait_s` seconds, even if it
    is an earlier call that hangs. A request that was sent by then may still take effect later.
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
        call = _StoreCall(function, arguments)
        thread = _threads.get(os.getpid()) or _threads.setdefault(os.getpid(), _StoreThread())
        if not thread.within(self.wait_s, call):
            raise TimeoutError(f"it did not answer in {self.wait_s:g} s")
        if call.error is not None:
            raise call.error
        return call.value
