"""Counters as text, and groups of them that the kernel really opens."""

import os
import threading
import time

import pytest

from lotus.inside.common import perf_event
from lotus.inside.common.perf_event import SOFTWARE, Event, EventGroup

CLOCK, FAULTS = Event("task_clock", SOFTWARE, 1), Event("page_faults", SOFTWARE, 2)


def opened(*events, **options):
    try:
        return EventGroup(events or (CLOCK, FAULTS), **options)
    except OSError as error:
        pytest.skip(f"{error.filename} cannot be counted here: {error.strerror}")


def test_text_and_back():
    groups = [
        [Event("cycles", 0, 0), Event("raw", 4, 0x1FF, 0x20, "uk")],
        [Event("a.b:c/d", 7, 2**63, 0, "k")],
    ]
    text = perf_event.spell_groups(groups)
    assert perf_event.parse_groups(text) == groups
    assert perf_event.parse("x|0x4|1_0|0b11|u") == [Event("x", 4, 10, 3, "u")]


@pytest.mark.parametrize(
    "text", ["", "x", "x|1|2|3", "x|1|2|3|u|", "|1|2|3|u", "x|y|2|3|u", "x|1|2|3|z", "x|1|2|3|",
             "x|1|2|3|u,", ";x|1|2|3|u"]
)  # fmt: skip
def test_what_is_no_text_of_groups(text):
    with pytest.raises(ValueError):  # noqa: PT011  (of whatever the number was)
        perf_event.parse_groups(text)


def test_a_group_counts_this_thread():
    group = opened()
    try:
        before = group.unpack(group.read())
        # Of another thread nothing is in it.
        other = threading.Thread(target=lambda: sum(range(3_000_000)))
        other.start()
        other.join()
        between = group.unpack(group.read())
        started = time.thread_time_ns()
        while time.thread_time_ns() - started < 20_000_000:
            pass
        after = group.unpack(group.read())
    finally:
        group.close()
    assert before[0] <= between[0] <= after[0]
    own, others = after[2][0] - between[2][0], between[2][0] - before[2][0]
    assert own >= 19_000_000
    assert others <= (between[0] - before[0]) + 100_000  # two clocks
    assert after[0] - after[1] == before[0] - before[1]  # never without counters


def test_descriptors_are_high_and_go_with_the_group():
    group = opened(lowest=300)
    assert group.fd >= 300
    assert not os.get_inheritable(group.fd)
    assert group.is_ours()
    fd = group.fd
    group.close()
    assert not group.is_ours()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_descriptor_that_the_program_took_is_neither_ours_nor_closed(tmp_path):
    group = opened(lowest=300)
    file = os.open(tmp_path / "own", os.O_RDWR | os.O_CREAT)
    try:
        os.dup2(file, group.fd)
        assert not group.is_ours()
        fd = group.fd
        group.close()
        os.write(fd, b"mine")
        os.close(fd)
        assert os.pread(file, 9, 0) == b"mine"
    finally:
        os.close(file)


def test_an_event_that_does_not_exist_has_a_name_in_the_error():
    opened().close()
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="nonsense") as raised:
        EventGroup([CLOCK, Event("nonsense", 0x7FFF, 1)])
    assert raised.value.filename == "nonsense"
    assert raised.value.errno
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_short_reading_is_refused():
    group = opened()
    try:
        reading = group.read()
        assert len(reading) == group.size
        for short in (b"", reading[:-8]):
            with pytest.raises(ValueError, match="could not be counted"):
                group.unpack(short)
    finally:
        group.close()
