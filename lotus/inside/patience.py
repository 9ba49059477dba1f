"""Asking a job's store for a time and no longer, whatever becomes of the store.

torch's own limit holds where a value is waited for. A store whose process is stopped, or whose
host is gone without a word, keeps every other call for ever: the program, which has no need of the
store once its ranks have met, would hang in a question of ours.
"""

import threading
import time

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


class Patient:
    """What we ask of `store`, each call in a thread of its own, left behind where it hangs.

    All calls raise what the store raises, and TimeoutError after `wait_s`. What was sent by then
    may still come to be, when the store goes on.
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

    def _within(self, call: "Callable[..., Any]", *arguments: "Any") -> "Any":
        answers: list[Any] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                answers.append(call(*arguments))
            except BaseException as error:  # raised below, in the thread that asked
                errors.append(error)

        thread = threading.Thread(target=run, name="lotus-store", daemon=True)
        thread.start()
        thread.join(self.wait_s)
        if errors:
            raise errors[0]
        if not answers:
            raise TimeoutError(f"it did not answer in {self.wait_s:g} s")
        return answers[0]
