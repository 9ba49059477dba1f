"""The counters inside the program, on a made kernel whose groups take turns."""

import os
import struct

import pytest

from lotus.inside.common import perf_event
from lotus.inside.common.perf_event import HEADER, SOFTWARE, Event
from lotus.inside.trace.log import counter_groups
from lotus.inside.trace.log.counter_groups import Counters

FIRST_FD = 100_000
COUNTED = 10  # by every event in each read of a group


class Turns:
    """A machine that counts each group that is not paused, and has no room for two."""

    def __init__(self) -> None:
        self.groups: list[TurnGroup] = []
        self.changes: list[str] = []

    def switch(self, seconds: float) -> None:
        self.changes.append("switch")

    def read(self, fd: int, size: int) -> bytes:
        on = [group for group in self.groups if not group.paused]
        assert len(on) == 1, "two groups at once: neither is counted whole"
        group = self.groups[fd - FIRST_FD]
        if group in on:
            group.words[1] += 1000
            group.words[2] += 1000
            for place in range(HEADER, len(group.words)):
                group.words[place] += COUNTED
        words = group.words
        return struct.pack(f"<{len(words)}Q", *words)


class TurnGroup(perf_event.EventGroup):
    kernel: Turns

    def __init__(self, events: list[Event], pid: int, pinned: bool, lowest: int) -> None:
        self.events, self.size = events, 8 * (HEADER + len(events))
        self.words = [len(events), 0, 0, *(0 for _ in events)]
        self.paused = False
        self.fd = FIRST_FD + len(self.kernel.groups)
        self.kernel.groups.append(self)

    def is_ours(self) -> bool:
        return True

    def pause(self) -> None:
        self.paused = True
        self.kernel.changes.append("pause")

    def resume(self) -> None:
        self.paused = False
        self.kernel.changes.append("resume")

    def close(self) -> None:
        pass


@pytest.fixture
def turns(monkeypatch):
    kernel, read = Turns(), os.read

    def read_one(fd: int, size: int) -> bytes:
        return kernel.read(fd, size) if fd >= FIRST_FD else read(fd, size)

    monkeypatch.setattr(os, "read", read_one)
    monkeypatch.setattr(counter_groups, "_TIMES", (*counter_groups._TIMES[:3], kernel.switch))
    monkeypatch.setattr(perf_event, "EventGroup", type("Made", (TurnGroup,), {"kernel": kernel}))
    return kernel


THREE = [
    [Event("cycles", 0, 0), Event("branches", 0, 4)],
    [Event("cycles", 0, 0)],
    [Event("instructions", 0, 1), Event("cache_misses", 0, 3)],
]


def test_reading_costs_each_group_what_it_costs_in_its_turn(turns):
    """A group that waits for its turn while readings are tried counts nothing of them."""
    inside = Counters(perf_event.spell_groups(THREE))
    inside.prepare()
    (event,) = inside.take_events()
    assert [counted["read_count"] for counted in event["events"]] == [COUNTED] * 5
    assert [group.paused for group in turns.groups] == [False, True, True]


def test_groups_take_turns_by_fetch_and_the_others_read_nothing(turns):
    """GIVEN three groups WHEN four batches are fetched THEN each batch has the counts of one group
    from its first reading to its last, the words of the others are 0, and the fourth has the
    first group again."""
    inside = Counters(perf_event.spell_groups(THREE))
    sizes = [HEADER + len(group) for group in THREE]
    starts = [0, sizes[0], sizes[0] + sizes[1]]
    for turn in (0, 1, 2, 0):
        inside.prepare()
        inside.begin()
        inside.fresh()
        fields, body = inside.end()
        assert fields[0] == sum(sizes)
        words = struct.unpack(f"<{3 * sum(sizes)}Q", body)  # begin, fresh and end
        for place in range(0, len(words), sum(sizes)):
            reading = words[place : place + sum(sizes)]
            counted = [reading[start] for start in starts]  # how many events of each group
            assert counted == [len(THREE[turn]) if at == turn else 0 for at in range(3)]


def test_a_fetch_within_a_fetch_takes_no_turn(turns):
    inside = Counters(perf_event.spell_groups(THREE))
    inside.prepare()
    inside.begin()
    before = [group.paused for group in turns.groups]
    inside.prepare()
    assert [group.paused for group in turns.groups] == before


def test_one_group_is_never_paused(turns):
    inside = Counters(perf_event.spell_groups([[Event("cycles", 0, 0)]]))
    inside.prepare()
    (event,) = inside.take_events()
    assert [counted["read_count"] for counted in event["events"]] == [COUNTED]
    assert turns.changes == ["switch"]


def test_a_paused_group_counts_nothing_until_it_resumes():
    try:
        group = perf_event.EventGroup([Event("cpu_clock", SOFTWARE, 0)])
    except OSError as error:
        pytest.skip(f"nothing can be counted here: {error}")
    readings = []
    for act in (lambda: None, group.pause, lambda: None, group.resume, lambda: None):
        act()
        readings.append(group.unpack(group.read()))
        sum(range(100_000))
    group.close()
    running, paused, still, resumed, again = ((enabled, *counts) for enabled, _, counts in readings)
    assert running < paused == still < again
    assert still <= resumed < again
