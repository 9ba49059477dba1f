"""The time of a thread, split into on a core, ready without one, and blocked."""

import os
import threading
import time

import pytest

from lotus.inside.trace.log import rusage
from lotus.inside.trace.log.log_format import UNMEASURED


def test_on_a_core_ready_and_blocked_are_all_of_the_time() -> None:
    if rusage.run_delay_ns() == UNMEASURED:
        pytest.skip("this kernel does not tell how long a thread waited for a core")
    start = time.monotonic_ns()
    before = rusage.core_times()
    time.sleep(0.05)
    while time.thread_time_ns() - before[0] < 20_000_000:
        pass
    after = rusage.core_times()
    wall = time.monotonic_ns() - start
    on, ready, process = (later - other for later, other in zip(after, before, strict=True))
    assert 20_000_000 <= on <= process * 1.01
    assert on + ready <= wall * 1.01
    assert wall - on - ready >= 49_000_000  # a sleep is never shorter


def test_other_threads_are_in_the_process_alone() -> None:
    def compute() -> None:
        begin = time.thread_time_ns()
        while time.thread_time_ns() - begin < 20_000_000:
            pass

    before = rusage.core_times()
    helper = threading.Thread(target=compute)
    helper.start()
    helper.join()
    after = rusage.core_times()
    delay, process = after[1] - before[1], after[2] - before[2]
    on = rusage.core_times()[0] - before[0]
    assert process >= 20_000_000
    assert on < process
    assert delay >= 0


@pytest.mark.parametrize("hold", [False, True])
def test_what_the_kernel_does_not_tell_is_no_zero(
    hold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing:
        @staticmethod
        def open(*args: object) -> int:
            return -1

    def refuse(*args: object) -> int:
        raise FileNotFoundError

    before = rusage.reading()
    monkeypatch.setattr(rusage, "_hold", hold)
    monkeypatch.setattr(rusage, "_libc", Refusing)
    monkeypatch.setattr(os, "open", refuse)
    assert rusage.run_delay_ns() == UNMEASURED
    assert rusage.difference(before, rusage.reading())[6] == UNMEASURED


def test_a_reading_that_took_long_is_followed_by_some_that_keep_the_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = rusage.run_delay_ns()
    if first == UNMEASURED:
        pytest.skip("this kernel does not tell how long a thread waited for a core")
    times = iter((0, 5_000_000))
    monkeypatch.setattr(rusage, "_hold", False)
    monkeypatch.setattr(rusage, "clock", lambda: next(times))
    again = rusage.run_delay_ns()
    held = rusage.run_delay_ns()  # no clock is left to read
    assert first <= again <= held
    monkeypatch.setattr(rusage, "_libc", None)  # so it was these calls that answered
    with pytest.raises(AttributeError):
        rusage.run_delay_ns()


def test_a_reading_leaves_no_descriptor_open(monkeypatch: pytest.MonkeyPatch) -> None:
    for hold in (False, True):
        monkeypatch.setattr(rusage, "_hold", hold)
        before = os.listdir("/proc/self/fd")
        for _ in range(50):
            rusage.run_delay_ns()
        assert len(os.listdir("/proc/self/fd")) == len(before)
