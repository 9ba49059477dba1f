"""Chooses the events to count on a CPU. Pure: opens no counter.

Events have the same names on every CPU ("cycles", "slots_frontend"); `native_map.events` has their
encodings on each micro-architecture, with the source.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from native_map.errors import UnusableError
from native_map.events import TABLES, generic
from native_map.events.cpu import Cpu
from native_map.events.event_model import SOFTWARE, Event, EventSet, EventTable
from native_map.events.generic import CYCLES, INSTRUCTIONS, TASK_CLOCK
from native_map.events.metrics import gives
from native_map.events.spelling import OTHER_EVENTS, SETS, parse


@dataclass(frozen=True)
class Choice:
    """Groups of events to count: those of a group are opened together, the first as leader.

    Several groups take turns: each of n counts about 1/n of the time, and an event of several is
    the mean of its scaled counts. `notes` are sentences on what was left out, and why.
    """

    groups: tuple[tuple[Event, ...], ...]
    notes: tuple[str, ...]

    @property
    def events(self) -> tuple[Event, ...]:
        """Every event once, in the order of the groups."""
        return tuple({e.name: e for group in self.groups for e in group}.values())


# Of these the events were counted on a real CPU by this project (docs/silicon).
TRIED = frozenset({"amd_zen5"})
UNTRIED = (  # what is said of others
    "lotus has not been tried on this CPU: its events come from the tables of Linux and of the "
    "CPU's maker, and were not compared with counts of known work"
)


def table(cpu: Cpu | str) -> EventTable:
    """Return the table of a CPU or micro-architecture; the generic one if it is unknown."""
    uarch = cpu if isinstance(cpu, str) else cpu.uarch
    return TABLES.get(uarch, TABLES["generic"])


def sets(cpu: Cpu | str) -> dict[str, EventSet]:
    """Return the sets of this CPU by name, each in its best form, with "generic" and "software"."""
    return {name: forms[0] for name, forms in table(cpu).sets.items()}


def choose(
    cpu: Cpu | str,
    fits: int,
    working: Collection[str] | None = None,
    wanted: Sequence[str] = ("auto",),
    known: EventTable | None = None,
) -> Choice:
    """Return groups of events for this CPU, each small enough for its counters.

    `fits` is the size of the largest group that starts with cycles and instructions and counts
    correctly here (software events and perf metrics do not count towards it; 0: no PMU). `working`
    names the events that were tried and count correctly; None means all. `wanted` has names of
    sets, names of events, or perf's spellings; "auto" is top-down level 1 as far as one group can
    hold it, so that nothing is multiplexed. `known` replaces the table of the CPU (see
    `native_map.events.perf_list`). Raises UnusableError for a word that is not understood.
    """
    known = known or table(cpu)
    virtual = isinstance(cpu, Cpu) and cpu.virtual
    notes: list[str] = []
    if known.name.startswith("generic") and fits > 0 and not known.expressions:
        notes.append("unknown CPU: generic events, no top-down shares")
    requested = [u for word in wanted for u in _units(known, word, fits, working, virtual, notes)]
    software = _unique([TASK_CLOCK, *(e for u in requested for e in u if e.type == SOFTWARE)])
    units = [tuple(e for e in u if e.type != SOFTWARE) for u in requested]
    units = [u for u in units if u]
    if fits <= 0:
        names = _unique(e.name for u in units for e in u)
        if names:
            notes.append(f"no hardware counters here: not counted: {', '.join(names)}")
        units = []
    groups: list[tuple[Event, ...]] = []
    # If no event of a set works, cycles and instructions are still counted.
    hardware = fits > 0 and any(_is_hardware(known, word) for word in wanted)
    base = _working((CYCLES, INSTRUCTIONS), working, notes) if units or hardware else ()
    for unit in units:
        _place(groups, unit, base, fits, notes)
    counted = {e for group in groups for e in group}
    alone = [(event,) for event in base if event not in counted]
    if alone and tuple(wanted) != ("auto",):
        groups[:0] = [base] if _cost(base) <= fits else alone
    if not groups:
        if any(word != "software" for word in wanted):
            reason = "no hardware counters" if fits <= 0 else "no hardware event counts correctly"
            notes.append(f"{reason}: software events only")
        return Choice(
            (tuple(_unique([*software, *generic.SOFTWARE_SET.events])),), (*_unique(notes),)
        )
    # Hardware leads: perf metrics need their own leader, and the kernel moves a group that
    # a software event leads.
    groups[0] = (*groups[0], *software)
    groups[1:] = [(*group, TASK_CLOCK) for group in groups[1:]]
    if len(groups) > 1:
        notes.append(
            f"{len(groups)} groups take turns on {fits} counters: each counts about "
            f"1/{len(groups)} of the time and is scaled; short operations get few of them"
        )
    return Choice(tuple(groups), (*_unique(notes),))


def _is_hardware(known: EventTable, word: str) -> bool:
    """Return True if a valid word requests more than software events."""
    if word in known.sets:
        return any(e.type != SOFTWARE for form in known.sets[word] for e in form.events)
    return word == "auto" or (_by_name(known, word) or parse(word)).type != SOFTWARE


def _units(
    known: EventTable,
    word: str,
    fits: int,
    working: Collection[str] | None,
    virtual: bool,
    notes: list[str],
) -> list[tuple[Event, ...]]:
    """Return the events that a word requests, as groups that must count together."""
    if word == "auto":
        return _auto(known, fits, working, virtual, notes)
    if word not in known.sets and word in SETS:
        raise UnusableError(
            f"{known.name} has no events of the set {word!r}; it has {', '.join(known.sets)}"
        )
    if word not in known.sets:
        return [_working((_by_name(known, word) or parse(word),), working, notes)]
    form = _best_form(known.sets[word], working, virtual)
    units = []
    for group in form.groups:
        room = fits - _cost((CYCLES, INSTRUCTIONS))
        unit = []
        for event in _working(group, working, notes):
            room -= event.counters
            if room >= 0 or event.name not in form.optional:
                unit.append(event)
        units.append(tuple(unit))
    return units


def _auto(
    known: EventTable, fits: int, working: Collection[str] | None, virtual: bool, notes: list[str]
) -> list[tuple[Event, ...]]:
    """Return one group: the events of the best set that fit and give a metric."""
    if fits <= 0:
        return []
    name = "topdown" if "topdown" in known.sets else "generic"
    form = _best_form(known.sets[name], working, virtual)
    base = list(_working((CYCLES, INSTRUCTIONS), working, []))
    events = [e for group in form.groups for e in _working(group, working, notes)]
    chosen: list[Event] = []
    for event in (*base, *events):
        if _cost(chosen) + event.counters <= fits:
            chosen.append(event)
    # Drop events that add no metric, such as half of a ratio.
    optional = form.optional | {e.name for e in (*base, *chosen) if not e.counters}
    for event in [e for e in chosen if e not in base and e.name not in optional]:
        others = [e.name for e in chosen if e is not event]
        if gives(others, known) == gives([*others, event.name], known):
            chosen.remove(event)
    given_metrics = gives((e.name for e in chosen), known)
    missing = [m for m in form.gives if m not in given_metrics and m != "smt_contention"]
    possible = gives((e.name for e in (*base, *events)), known)
    if missing := [m for m in missing if m in possible]:
        notes.append(
            f"{fits} counters hold one group without {', '.join(missing)}; ask for {name} to count "
            "all in turns"
        )
    return [tuple(chosen)] if chosen else []


def _best_form(
    forms: tuple[EventSet, ...], working: Collection[str] | None, virtual: bool
) -> EventSet:
    """Return the form with the most working events; if untried in a VM, the last: VMs may hide
    registers."""
    if working is None:
        return forms[-1 if virtual else 0]
    return max(
        forms, key=lambda form: sum(e.name in working for e in form.events) / len(form.events)
    )


def _working(
    events: Iterable[Event], working: Collection[str] | None, notes: list[str]
) -> tuple[Event, ...]:
    working_events = []
    for event in events:
        if working is None or event.type == SOFTWARE or event.name in working:
            working_events.append(event)
        else:
            notes.append(f"{event.name} does not count correctly on this machine: left out")
    return tuple(working_events)


def _cost(events: Iterable[Event]) -> int:
    return sum(e.counters for e in events)


def _place(
    groups: list[tuple[Event, ...]],
    unit: tuple[Event, ...],
    base: tuple[Event, ...],
    fits: int,
    notes: list[str],
) -> None:
    """Add a unit to a group with room, else to a new one, else split it."""
    if groups:
        joined = _join(groups[-1], unit)
        if _cost(joined) <= fits:
            groups[-1] = joined
            return
    for start in (base, base[:1]):
        if _cost(_join(start, unit)) <= fits:
            groups.append(_join(start, unit))
            return
    start = next((s for s in (base, base[:1]) if _cost(s) < fits), ())
    counted = {e for group in groups for e in group}
    unplaced = [e for e in unit if e not in counted and e not in start]
    filling = start
    for event in unplaced:
        if _cost(filling) + event.counters > fits:
            groups.append(filling)
            filling = start
        filling = (*filling, event)
    if unplaced:
        groups.append(filling)
    notes.append(
        f"{', '.join(e.name for e in unit)} do not fit into {fits} counters together: ratios "
        "between them join different moments"
    )


def _join(group: tuple[Event, ...], unit: tuple[Event, ...]) -> tuple[Event, ...]:
    """Join two groups, each event once; the slots register leads, as its shares require."""
    events = {e.name: e for e in (*group, *unit)}
    lead = [e for e in events.values() if e.name == "slots"]
    shares = [e for e in events.values() if e.name.startswith("topdown_")]
    return (*lead, *shares, *(e for e in events.values() if e not in lead and e not in shares))


_T = TypeVar("_T")


def _unique(things: Iterable[_T]) -> list[_T]:
    return list(dict.fromkeys(things))


def _by_name(known: EventTable, name: str) -> Event | None:
    for forms in known.sets.values():
        for form in forms:
            for event in form.events:
                if event.name == name:
                    return event
    for event in (CYCLES, INSTRUCTIONS, *OTHER_EVENTS):
        if event.name == name:
            return event
    return None
