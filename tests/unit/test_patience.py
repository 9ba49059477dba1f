"""Calls of a store that end after a time."""

import threading

import pytest

from lotus.inside.patience import Patient


class Store:
    """Answers, raises, or hangs until it is let go on."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.goes_on = threading.Event()

    def set(self, key: str, value: str) -> None:
        if key == "hangs":
            self.goes_on.wait()
        self.values[key] = value.encode()

    def add(self, key: str, more: int) -> int:
        now = int(self.values.get(key, b"0")) + more
        self.values[key] = str(now).encode()
        return now

    def get(self, key: str) -> bytes:
        return self.values[key]

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.values[key] for key in keys]


def test_what_the_store_answers_and_raises_is_passed_on() -> None:
    patient = Patient(Store(), 600)
    patient.set("a", "1")
    assert patient.add("a", 2) == 3
    assert patient.add("b", 0) == 0
    assert patient.multi_get(["a", "b"]) == [b"3", b"0"]
    with pytest.raises(KeyError, match="other"):
        patient.get("other")


def test_a_call_that_hangs_is_left_behind() -> None:
    store = Store()
    before = threading.active_count()
    with pytest.raises(TimeoutError, match=r"it did not answer in 0\.05 s"):
        Patient(store, 0.05).set("hangs", "1")
    # THEN it does not keep the process, and comes to its end where the store goes on
    (left,) = [one for one in threading.enumerate() if one.name == "lotus-store"]
    assert left.daemon
    store.goes_on.set()
    left.join()
    assert (store.values, threading.active_count()) == ({"hangs": b"1"}, before)
