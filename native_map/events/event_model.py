"""What an event, a set of events and a table of a micro-architecture are."""

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
    """One thing that perf_event_open can count.

    `type` is perf_event_attr's number, or the name of a PMU whose number is in sysfs (see
    `native_map.events.spelling.type_number`). `counters` is how many of the machine's counters it
    takes: 0 for software events and for those with a register that no other event can use. `flags`
    says whose execution is counted: "u" user space, "k" kernel, "uk" both. `vendor` is the name in
    the vendor's manual and in `perf list`, if it has one.
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
    """Events asked for under one name, in groups that must count at the same time.

    Groups name only what they add: `native_map.events.pmu.choose` puts task-clock, cycles and
    instructions with each. Within a group the most useful events come first. Events named in
    `optional` make a metric better but give none of their own: they are left out rather than
    counted in turns.
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

    On Arm the vendor is "ARM", the family the implementer and the models are part numbers.
    """

    vendor: str
    family: int
    models: Collection[int]


@dataclass(frozen=True)
class Table:
    """What is known of one micro-architecture.

    `cpus` says which CPUs have it; `native_map.events.cpu.detect` looks there.
    `width` is the slots a cycle of its top-down level 1 (0: none); `formula` names the way to
    compute it. `sets` may give several forms of one set, the best first; one whose events do not
    all work gives way to the next. `notes` are what a reader of the metrics must know.
    `expressions` are metrics by their definition in perf, for tables without a formula.
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
    """perf's config of an x86 event; event bits 8 to 11 (AMD) sit at 32 to 35.

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
    """An event of the x86 core PMU under our name, by its vendor's name in `source`.

    `cmask` counts cycles in which the event happened at least so often.
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
