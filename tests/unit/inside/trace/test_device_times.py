"""The times of an accelerator between batches, by a device that only counts time."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from lotus.inside.trace.device_times import DeviceTimes
from lotus.inside.trace.log.log_format import DEVICE, UNMEASURED
from tests.fake_device import FakeDevice

MS = 1_000_000


class Loop:
    """A training loop on a clock of its own, in milliseconds, and what is recorded of it."""

    def __init__(self, initialized: bool = True) -> None:
        self.clock = 0
        self.device: Any = FakeDevice(lambda: self.clock, initialized)
        self.rows: list[tuple[float, float]] = []  # idle and busy, milliseconds
        self.notes: list[str] = []
        self.worker = -1
        self.times = DeviceTimes(self)  # as a recorder
        self.times.find(self.device.torch())
        self.iteration = SimpleNamespace(device_step=None)

    def add_later(self, kind: int, time: int, *fields: int) -> None:
        assert kind == DEVICE
        start, idle, busy = fields
        assert start == time
        self.rows.append((idle / MS, busy / MS))

    def event(self, event: dict[str, Any]) -> None:
        self.notes.append(event["text"])

    def step(self, wait: float, launched: float, host: float) -> None:
        """Wait for a batch, launch that much work, and be busy with that on the host."""
        used = self.times.used
        timed = used is not None and used()
        start = self.clock
        if timed:
            self.times.begin_next(self.iteration)
        self.clock += round(wait * MS)
        if timed:
            self.times.end_next(self.iteration, start)
        if launched:
            self.device.launch(launched)
        self.clock += round(host * MS)

    def end(self) -> None:
        self.step(0, 0, 0)
        self.times.finish()


def test_a_device_idles_while_the_host_waits_only_once_its_work_is_done() -> None:
    loop = Loop()
    loop.step(wait=5, launched=10, host=1)  # nothing launched before it
    loop.step(wait=4, launched=10, host=1)  # 9 ms of work are left
    loop.step(wait=20, launched=2, host=3)  # 14 ms are left
    loop.clock += 100 * MS
    loop.end()
    assert loop.rows == [(5, 10), (0, 10), (6, 103)]
    assert loop.notes == []


def test_what_the_device_has_not_finished_is_not_waited_for() -> None:
    loop = Loop()
    loop.step(wait=0, launched=50, host=1)
    loop.step(wait=1, launched=50, host=1)
    assert loop.rows == []
    loop.end()
    assert loop.rows == []
    assert loop.notes == [
        "how long 2 steps took on the device is not known: it had not finished yet"
    ]


def test_events_that_never_finish_are_bounded_and_counted() -> None:
    loop = Loop()
    loop.device.stuck = True
    for _ in range(500):
        loop.step(wait=1, launched=1, host=1)
    kept = len(loop.times._pending)
    loop.end()
    assert kept == 64
    assert loop.rows == []
    assert loop.notes == [
        "how long 500 steps took on the device is not known: it had not finished yet"
    ]


@pytest.mark.parametrize("name", ["Event", "record", "query", "elapsed_time", "current_device"])
def test_an_error_of_the_device_ends_its_timing_and_is_not_raised(name: str) -> None:
    loop = Loop()
    for _ in range(3):
        loop.step(wait=1, launched=1, host=2)
    loop.device.failing = name
    made = loop.device.made
    for _ in range(3):
        loop.step(wait=1, launched=1, host=2)
    loop.end()
    assert loop.times.used is None
    assert loop.device.made <= made + 1
    assert loop.rows == [(1, 2)] * len(loop.rows)
    assert loop.notes == [f"the device is not timed any more: RuntimeError: device lost in {name}"]


def test_before_the_program_uses_the_device_nothing_is_done_to_it() -> None:
    loop = Loop(initialized=False)
    loop.step(wait=1, launched=0, host=1)
    assert loop.device.made == 0
    loop.step(wait=1, launched=2, host=3)  # it is used from here on
    assert loop.device.made == 0
    loop.step(wait=4, launched=2, host=3)
    loop.end()
    assert loop.rows == [(4, 3)]


def test_no_event_is_touched_while_a_graph_is_captured_or_by_another_thread() -> None:
    loop = Loop()
    loop.step(wait=1, launched=1, host=2)
    loop.device.capturing = True
    loop.step(wait=1, launched=0, host=2)  # an event touched raises
    loop.device.capturing = False
    thread = threading.Thread(target=loop.step, args=(1, 1, 2))
    made = loop.device.made
    thread.start()
    thread.join()
    assert loop.device.made == made
    loop.step(wait=3, launched=1, host=2)
    loop.end()
    assert loop.rows == [(3, 2)]
    assert loop.notes == []


def test_no_context_is_created_on_a_device_that_the_program_does_not_use() -> None:
    loop = Loop()
    loop.device.contexts.clear()
    loop.step(wait=1, launched=1, host=2)
    assert loop.device.made == 0
    loop.device.contexts.add(1)  # used by its number, while 0 is the current one
    loop.step(wait=3, launched=1, host=2)
    loop.end()
    assert loop.rows == [(3, 2)]
    assert loop.notes == []


def test_events_of_two_streams_are_not_compared() -> None:
    loop = Loop()
    loop.step(wait=1, launched=1, host=2)
    loop.device.stream = "other"
    loop.step(wait=3, launched=1, host=2)
    loop.step(wait=4, launched=1, host=2)
    loop.end()
    assert loop.rows == [(1, UNMEASURED / MS), (3, 2), (4, 2)]


def test_a_forked_child_keeps_the_events_of_its_parent_and_reads_none() -> None:
    loop = Loop()
    loop.step(wait=1, launched=9, host=2)
    loop.step(wait=1, launched=9, host=2)
    events = loop.times._pending
    assert events
    loop.times.forked()
    loop.device.failing = "query"
    loop.times.finish()
    assert loop.notes == []
    assert loop.times._left == [events]


def test_an_exception_of_a_signal_handler_is_the_programs() -> None:
    loop = Loop()

    def record(stream: object) -> None:
        raise KeyboardInterrupt

    loop.device.Event = lambda enable_timing: SimpleNamespace(record=record)
    with pytest.raises(KeyboardInterrupt):
        loop.step(wait=1, launched=1, host=2)


def test_a_torch_that_is_built_for_no_device_is_not_asked() -> None:
    times = DeviceTimes(Loop())
    torch = FakeDevice().torch()
    torch.version.cuda = None
    times.find(torch)
    times.find(SimpleNamespace())  # of which hardly anything is there
    assert times.used is None
