"""Calls of a store that end after a time."""

import os
import threading

import pytest

from lotus.inside.distributed.store_timeout import StoreWithTimeout


class Store:
    """Answers, raises, or hangs until it is let go on."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.goes_on = threading.Event()
        self.threads: set[int] = set()  # that asked

    def set(self, key: str, value: str) -> None:
        self.threads.add(threading.get_ident())
        if key == "hangs":
            self.goes_on.wait()
        self.values[key] = value.encode()

    def add(self, key: str, more: int) -> int:
        self.threads.add(threading.get_ident())
        now = int(self.values.get(key, b"0")) + more
        self.values[key] = str(now).encode()
        return now

    def get(self, key: str) -> bytes:
        return self.values[key]

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.values[key] for key in keys]


def test_what_the_store_answers_and_raises_is_passed_on() -> None:
    patient = StoreWithTimeout(Store(), 600)
    patient.set("a", "1")
    assert patient.add("a", 2) == 3
    assert patient.add("b", 0) == 0
    assert patient.multi_get(["a", "b"]) == [b"3", b"0"]
    with pytest.raises(KeyError, match="other"):
        patient.get("other")


def test_all_calls_are_made_in_one_thread_that_the_program_does_not_see() -> None:
    store = Store()
    before = threading.active_count()
    for _ in range(20):
        StoreWithTimeout(store, 600).add("a", 1)
    assert len(store.threads) == 1
    assert threading.get_ident() not in store.threads
    assert threading.active_count() == before


def test_a_call_that_hangs_is_left_behind() -> None:
    store = Store()
    with pytest.raises(TimeoutError, match=r"it did not answer in 0\.05 s"):
        StoreWithTimeout(store, 0.05).set("hangs", "1")
    # THEN the next one ends in time too, and is not made later, as who asked was told so
    with pytest.raises(TimeoutError):
        StoreWithTimeout(store, 0.05).add("after", 1)
    # AND what had begun comes to its end where the store goes on, in the same thread
    store.goes_on.set()
    StoreWithTimeout(store, 600).add("b", 1)
    assert store.values == {"hangs": b"1", "b": b"1"}
    assert len(store.threads) == 1


def test_threads_that_ask_at_once_each_get_their_own_answer() -> None:
    store, answers = Store(), dict[int, bytes]()
    for number in range(8):
        store.values[str(number)] = str(number).encode()

    def ask(number: int) -> None:
        for _ in range(50):
            answers[number] = StoreWithTimeout(store, 600).get(str(number))
            assert answers[number] == str(number).encode()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: str(number).encode() for number in range(8)}


def test_a_forked_process_has_a_thread_of_its_own() -> None:
    store = Store()
    StoreWithTimeout(store, 600).add("a", 1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if StoreWithTimeout(store, 600).add("a", 1) == 2 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
