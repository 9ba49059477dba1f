"""Data classes: an event, a set of events, the table of a micro-architecture."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from native_map.events.expression import Expression

# linux/perf_event.h: enum perf_type_id
HARDWARE = 0
SOFTWARE = 1
RAW = 4


@dataclass(frozen=True)
class Event:
    """An event that perf_event_open can count.

    `type` is perf_event_attr's number, or the name of a PMU whose number is in sysfs (see
    `native_map.events.spelling.type_number`). `counters` is the number of hardware counters that it
    occupies: 0 for software events and for events with a register of their own. `flags` says whose
    execution is counted: "u" user space, "k" kernel, "uk" both. `vendor` is the name in the
    vendor's manual and in `perf list`, if it has one.
    """

    name: str
    type: int | str
    config: int
    config1: int = 0
    flags: str = "u"
    unit: str = "events"
    text: str = ""
    source: str = ""
    counters: int = 1
    vendor: str = ""


@dataclass(frozen=True)
class EventSet:
    """Events that are requested under one name, in groups that must count at the same time.

    Groups list only additional events: `native_map.events.pmu.choose` adds task-clock, cycles and
    instructions to each. Within a group the most useful events come first. Events named in
    `optional` improve a metric but give none of their own: they are left out rather than counted in
    turns.
    """

    text: str
    groups: tuple[tuple[Event, ...], ...]
    gives: tuple[str, ...]
    optional: frozenset[str] = frozenset()

    @property
    def events(self) -> tuple[Event, ...]:
        """Every event once, in order."""
        return tuple({e.name: e for group in self.groups for e in group}.values())


@dataclass(frozen=True)
class Models:
    """CPUs of one micro-architecture: `models` of a `family` of a `vendor`, as in /proc/cpuinfo.

    On Arm the family is the implementer and the models are part numbers; the vendor is "ARM" for
    Arm's own cores (implementer 0x41), and else the implementer as text, such as "0xc0".
    """

    vendor: str
    family: int
    models: Collection[int]


@dataclass(frozen=True)
class EventTable:
    """The events and formulas of one micro-architecture.

    `cpus` lists its CPUs, for `native_map.events.cpu.detect`. `width` is the number of slots per
    cycle in its top-down level 1 (0: none); `formula` names the formula. `sets` may have several
    forms of one set, the best first; if not all events of a form work, the next is used. `notes`
    are for readers of the metrics. `expressions` are metrics as perf defines them, for tables
    without a formula.
    """

    name: str
    text: str
    cpus: tuple[Models, ...] = ()
    width: int = 0
    formula: str = ""
    sets: Mapping[str, tuple[EventSet, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    expressions: "Mapping[str, Expression]" = field(default_factory=dict)


def config(event: int, umask: int = 0) -> int:
    """Return perf's config of an x86 event; bits 8 to 11 of the event (AMD) go to 32 to 35.

    /sys/bus/event_source/devices/cpu/format/: event config:0-7,32-35 (AMD), config:0-7 (Intel);
    umask config:8-15.
    """
    return (event & 0xFF) | (event >> 8 & 0xF) << 32 | umask << 8


def vendor_event(
    source: str,
    name: str,
    vendor: str,
    event: int,
    umask: int,
    unit: str,
    text: str,
    cmask: int = 0,
) -> Event:
    """Return an event of the x86 core PMU under our name, with its vendor's name in `source`.

    With `cmask`, it counts cycles in which the event happened at least that often.
    """
    return Event(
        name,
        "cpu",
        config(event, umask) | cmask << 24,
        unit=unit,
        text=text,
        source=f"{source}: {vendor}",
        vendor=vendor,
    )
