"""Selects the events of `--counters`: the requested ones that count correctly together."""

import contextlib
import itertools
import os
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lotus.common.errors import LotusError
from lotus.hardware.counter_probe import MOST_AT_ONCE, OpenGroup, Probe
from lotus.inside.common import perf_event
from lotus.inside.common.perf_event import RAW, SOFTWARE, Event

if TYPE_CHECKING:  # imported when a group is chosen
    from native_map.events import pmu
    from native_map.events.cpu import Cpu
    from native_map.events.event_model import Event as PmuEvent
    from native_map.events.event_model import EventTable

_ANOTHER_LOOK_S = 0.1
_MOST_NAMED = 10_000  # events; Linux names some hundreds


@dataclass(frozen=True)
class Chosen:
    """The events that `--counters` counts here: one group, or several that take turns."""

    uarch: str
    groups: tuple[tuple[Event, ...], ...]
    level_1: bool  # it gives all four shares of top-down level 1
    notes: tuple[str, ...]
    tried: tuple[Event, ...] = ()  # hardware events of the requested sets

    @property
    def events(self) -> tuple[Event, ...]:
        """Every event once."""
        return tuple({event.name: event for group in self.groups for event in group}.values())


def choose_counters(
    wanted: Sequence[str] = ("auto",), event_table: "EventTable | None" = None
) -> tuple[list[list[Event]], list[str]]:
    """Return the groups of events to count on this machine, with notes on excluded events.

    `wanted` names sets or events (see `native_map.events.pmu.choose`); "auto" is always one group.
    Only events that count correctly here are included; it is empty if nothing can be counted.
    `event_table` replaces our table of this CPU (see `native_map.events.perf_list`). Takes 0.1 to
    0.2 s. Raises LotusError for a name that is not understood.
    """
    chosen = choose(wanted, event_table=event_table)
    return [list(group) for group in chosen.groups], list(chosen.notes)


def choose(
    wanted: Sequence[str],
    open_group: OpenGroup = perf_event.EventGroup,
    cpu: "Cpu | None" = None,
    sysfs: Path = Path("/sys"),
    event_table: "EventTable | None" = None,
) -> Chosen:
    """Return the result of `choose_counters` and the definitions. Raises LotusError."""
    from native_map.errors import UnusableError
    from native_map.events import cpu as cpus
    from native_map.events import pmu
    from native_map.events.metrics import gives

    cpu = cpu or cpus.detect()
    event_table = event_table or pmu.table(cpu)
    wanted = tuple(wanted) or ("auto",)
    try:
        candidates = _candidates(cpu, event_table, wanted, sysfs)
        probe = Probe(open_group)
        working = _working(probe, candidates, _named_on_arm(sysfs))
        pool = [
            event
            for ours, event in candidates
            if ours.name in working and ours.counters and event.type != SOFTWARE
        ]
        capacity = probe.largest(pool)
        if capacity.running < 0.99:  # another profiler uses counters, perhaps only for a moment
            time.sleep(_ANOTHER_LOOK_S)
            capacity = max(capacity, probe.largest(pool), key=lambda each: each.right)
        fits = capacity.right
        why = _without_hardware(cpu, event_table, wanted, probe, candidates)
        while True:
            choice = pmu.choose(cpu, fits, working, wanted, event_table)
            notes = [why] if why else list(choice.notes)
            groups = _groups(choice, probe, notes, sysfs)
            # The largest group was of other events: these are tried as well.
            if all(probe.counts_rightly(group) for group in groups):
                break
            fits -= 1
    except UnusableError as error:
        raise LotusError(str(error)) from error
    shares = {"frontend_bound", "backend_bound", "retiring", "bad_speculation"}
    measures = gives([event.name for group in groups for event in group], event_table)
    hardware = tuple(event for _, event in candidates if event.type != SOFTWARE)
    return Chosen(cpu.uarch, tuple(groups), shares <= measures, tuple(notes), hardware)


def _without_hardware(
    cpu: "Cpu",
    event_table: "EventTable",
    wanted: Sequence[str],
    probe: Probe,
    candidates: Sequence[tuple["PmuEvent", Event]],
) -> str:
    """Return one line for all events if no hardware event can be opened; else ""."""
    from native_map.events import pmu

    hardware_words = []
    for word in wanted:
        events = pmu.choose(cpu, MOST_AT_ONCE, None, (word,), event_table).events
        if word == "auto" or any(event.type != SOFTWARE for event in events):
            hardware_words.append(word)
    states = {probe.alone(event).state for _, event in candidates if event.type != SOFTWARE}
    if not hardware_words or states & {"counts", "zero"}:
        return ""
    if "refused" in states:
        why = "the kernel refuses hardware counters to this user"
    else:
        why = f"{'this VM has' if cpu.virtual else 'the kernel offers'} no hardware counters"
    named = [word for word in hardware_words if word != "auto"]
    if named:
        why += f", so {', '.join(named)} cannot be counted"
    works = any(event.type == SOFTWARE and probe.alone(event).works for _, event in candidates)
    if works:
        why += "; counting software events instead" if named else "; counting software events"
    return f"{why} (lotus doctor)"


def _candidates(
    cpu: "Cpu", event_table: "EventTable", wanted: Sequence[str], sysfs: Path
) -> list[tuple["PmuEvent", Event]]:
    """Return all events that may be chosen, as native_map defines them and as they are opened."""
    from native_map.errors import UnusableError
    from native_map.events import pmu

    opened: dict[PmuEvent, Event] = {}
    for word in wanted:
        name = word
        if word == "auto":
            name = "topdown" if "topdown" in event_table.sets else "generic"
        events = [event for form in event_table.sets.get(name, ()) for event in form.events]
        for event in (*pmu.choose(cpu, MOST_AT_ONCE, None, (word,), event_table).events, *events):
            with contextlib.suppress(UnusableError):  # this machine has no such unit
                opened[event] = _as_opened(event, sysfs)
    # Cycles and instructions first: they are in every group.
    return sorted(opened.items(), key=lambda pair: pair[0].name not in ("cycles", "instructions"))


def _working(
    probe: Probe,
    candidates: Sequence[tuple["PmuEvent", Event]],
    named: Collection[int] = (),
) -> set[str]:
    """Return the names all of whose events count. `named`: see `_named_on_arm`."""
    slots = next((event for ours, event in candidates if ours.name == "slots"), None)
    working: set[str] = set()
    broken: set[str] = set()
    for ours, event in candidates:
        if not ours.counters and event.type != SOFTWARE and slots not in (None, event):
            # A share of Intel's perf metrics opens only behind the slots register.
            probe.behind(slots, event)
        works = probe.works(event)
        if event.type == RAW and named and not probe.alone(event).count:
            works = works and event.config in named
        (working if works else broken).add(ours.name)
    return working - broken


def _named_on_arm(sysfs: Path) -> set[int]:
    """Return the numbers of the events that an Arm kernel lists; none if it does not list them.

    The kernel opens every number (seen on 6.1 and 6.12): events that the CPU lacks read 0, just as
    misses that did not occur.
    """
    numbers: set[int] = set()
    folders = (sysfs / "bus/event_source/devices").glob("armv[89]*/events/*")
    for path in itertools.islice(folders, _MOST_NAMED):
        with contextlib.suppress(OSError, ValueError):
            numbers.add(int(path.read_text("ascii").strip().removeprefix("event="), 16))
    return numbers


def _as_opened(ours: "PmuEvent", sysfs: Path) -> Event:
    """Raises UnusableError if this machine has no such unit."""
    from native_map.events import spelling

    return Event(
        ours.name, spelling.type_number(ours, sysfs), ours.config, ours.config1, ours.flags
    )


def _groups(
    choice: "pmu.Choice", probe: Probe, notes: list[str], sysfs: Path
) -> list[tuple[Event, ...]]:
    """Return the groups as they are opened, without events that the kernel refuses."""
    refused: dict[str, str] = {}
    groups = []
    for chosen in choice.groups:
        events = []
        for choice_event in chosen:
            event = _as_opened(choice_event, sysfs)
            counted = probe.alone(event)
            if event.type == SOFTWARE and counted.count is None:
                refused[choice_event.name] = os.strerror(counted.error)
            else:
                events.append(event)
        if events:
            groups.append(tuple(events))
    notes += [f"{name} is refused by the kernel ({why})" for name, why in refused.items()]
    return groups
