"""The counters inside the program, on a made kernel whose groups take turns."""

import os
import struct

import pytest

from lotus.inside import counters, perf_event
from lotus.inside.counters import Counters
from lotus.inside.perf_event import HEADER, SOFTWARE, Event

FIRST_FD = 100_000
COUNTED = 10  # by every event in each read of a group


class Turns:
    """One group has the counters; the next one gets them when it is paused and we are switched."""

    def __init__(self) -> None:
        self.groups: list[TurnGroup] = []
        self.on = 0
        self.changes: list[str] = []

    def switch(self, seconds: float) -> None:
        self.changes.append("switch")
        while self.groups[self.on].paused:
            self.on = (self.on + 1) % len(self.groups)

    def read(self, fd: int, size: int) -> bytes:
        for group in self.groups:
            runs = group is self.groups[self.on] and not group.paused
            group.words[1] += 0 if group.paused else 1000
            group.words[2] += 1000 if runs else 0
            for place in range(HEADER, len(group.words)):
                group.words[place] += COUNTED if runs else 0
        words = self.groups[fd - FIRST_FD].words
        return struct.pack(f"<{len(words)}Q", *words)


class TurnGroup(perf_event.Group):
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
    monkeypatch.setattr(counters, "_TIMES", (*counters._TIMES[:3], kernel.switch))
    monkeypatch.setattr(perf_event, "Group", type("Made", (TurnGroup,), {"kernel": kernel}))
    return kernel


def test_reading_costs_each_group_what_it_costs_in_its_turn(turns):
    """A group that waits for its turn while readings are tried counts nothing of them."""
    spec = [[Event("cycles", 0, 0), Event("branches", 0, 4)], [Event("cycles", 0, 0)]]
    spec.append([Event("instructions", 0, 1), Event("cache_misses", 0, 3)])
    inside = Counters(perf_event.spell_groups(spec))
    inside.prepare()
    (told,) = inside.take_events()
    assert [one["read_count"] for one in told["events"]] == [3 * COUNTED] * 5
    assert not any(group.paused for group in turns.groups)
    # A clock in a group stands still from `resume` until the thread is switched.
    assert turns.changes[-2:] == ["resume", "switch"]


def test_one_group_is_never_paused(turns):
    inside = Counters(perf_event.spell_groups([[Event("cycles", 0, 0)]]))
    inside.prepare()
    (told,) = inside.take_events()
    assert [one["read_count"] for one in told["events"]] == [COUNTED]
    assert turns.changes == ["switch"]


def test_a_paused_group_counts_nothing_until_it_resumes():
    try:
        group = perf_event.Group([Event("cpu_clock", SOFTWARE, 0)])
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
