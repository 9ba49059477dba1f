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


# -- of operations ---------------------------------------------------------------------------


class Thread:
    """A thread whose clocks and delay pass as the test says, in nanoseconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time, self.cpu, self.delay, self.reads = 1_000_000, 500_000, 70_000, 0
        self.lost = 0  # without a core, once a CPU clock is read
        monkeypatch.setattr(rusage, "clock", lambda: self.time)
        monkeypatch.setattr(rusage, "cpu_clock", self.read_cpu)
        monkeypatch.setattr(rusage, "process_cpu_clock", lambda: 3 * self.cpu)
        monkeypatch.setattr(rusage, "run_delay_ns", self.read)
        monkeypatch.setattr(rusage, "_latest", (0, 0, 0, 0))

    def read_cpu(self) -> int:
        used, lost, self.lost = self.cpu, self.lost, 0
        self.passes(ready=lost)
        return used

    def read(self) -> int:
        self.reads += 1
        return self.delay

    def passes(self, on: int = 0, ready: int = 0, blocked: int = 0) -> None:
        self.time += on + ready + blocked
        self.cpu += on
        if self.delay != UNMEASURED:
            self.delay += ready

    def operation(self, **times: int) -> tuple[int, ...]:
        """CPU time, delay, and CPU time of the process of an operation that takes these times."""
        before, start = rusage.now(), self.time
        self.passes(**times)
        end, self.lost = self.time, self.lost_at_end
        row = rusage.since(before, start, end)
        return row[0], row[4], row[5]

    lost_at_end = 0


def test_an_operation_is_on_a_core_ready_without_one_or_blocked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = Thread(monkeypatch)
    for on, ready, blocked in ((9, 5, 0), (1, 0, 8), (4, 3, 2), (0, 7, 0)):
        times = {"on": on * 1_000_000, "ready": ready * 1_000_000, "blocked": blocked * 1_000_000}
        assert thread.operation(**times) == (times["on"], times["ready"], 3 * times["on"])
        thread.passes(on=10, ready=400_000)  # between two of them


def test_the_delay_is_read_where_the_thread_was_off_its_core_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = Thread(monkeypatch)
    for _ in range(5):
        assert thread.operation(on=30_000_000, blocked=1000)[1] == 0
    assert thread.reads == 1
    thread.passes(ready=1_000_000)
    assert thread.operation(on=1000)[1] == 0
    assert thread.reads == 2
    assert thread.operation(on=1000, ready=50_000)[1] == 50_000
    assert thread.operation(on=1000)[1] == 0
    assert thread.reads == 3  # that of an end serves the next start


def test_a_core_that_is_lost_at_a_reading_is_no_part_of_the_operation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread = Thread(monkeypatch)
    thread.lost_at_end = 4_000_000
    assert thread.operation(on=1000, blocked=9_000_000)[1] == 0
    assert thread.operation(on=1000, ready=3_000_000, blocked=9_000_000)[1] == 3_000_000
    thread.lost = 2_000_000  # at the first reading of the start
    assert thread.operation(on=1000, ready=3_000_000)[1] == 3_000_000
    thread.lost_at_end = 0
    before = rusage.now()
    thread.passes(ready=6_000_000)  # after the readings of the start
    start = thread.time
    thread.passes(ready=3_000_000, blocked=7_000_000)
    assert rusage.since(before, start, thread.time)[4] == 3_000_000


def test_a_delay_that_the_kernel_does_not_tell_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    thread = Thread(monkeypatch)
    thread.delay = UNMEASURED
    assert thread.operation(on=1000, blocked=9_000_000) == (1000, UNMEASURED, 3000)
    assert thread.operation(on=1000) == (1000, UNMEASURED, 3000)
    before, start, thread.delay = rusage.now(), thread.time, 1
    before = (*before[:1], 0, *before[2:])
    thread.passes(blocked=9_000_000)
    thread.delay = UNMEASURED  # from now on
    assert rusage.since(before, start, thread.time)[4] == UNMEASURED


def test_an_operation_that_ends_on_another_thread_has_no_numbers() -> None:
    before, start, rows = rusage.now(), time.monotonic_ns(), []
    other = threading.Thread(target=lambda: rows.append(rusage.since(before, start, start + 1)))
    other.start()
    other.join()
    assert rows == [(UNMEASURED,) * 6]


def test_an_operation_that_sleeps_is_blocked_and_its_helpers_are_in_the_process() -> None:
    def compute() -> None:
        begin = time.thread_time_ns()
        while time.thread_time_ns() - begin < 20_000_000:
            pass

    helper = threading.Thread(target=compute)
    before, start = rusage.now(), time.monotonic_ns()
    helper.start()
    helper.join()
    time.sleep(0.05)
    end = time.monotonic_ns()
    cpu, _, _, _, delay, process = rusage.since(before, start, end)
    assert process - cpu >= 20_000_000
    if delay != UNMEASURED:
        assert end - start - cpu - delay >= 49_000_000  # a sleep is never shorter
