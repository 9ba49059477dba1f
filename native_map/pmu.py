"""Which events to count on which CPU, and what their counts mean. Pure: opens no counter.

Events have stable names that are the same on every CPU ("cycles", "slots_frontend"); what stands
behind a name on one micro-architecture is in `native_map.events`, with its source.
"""

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from native_map.cpu import Cpu
from native_map.errors import Unusable
from native_map.events import TABLES, catalogue, expression, generic
from native_map.events.catalogue import METRICS, Metric
from native_map.events.generic import CYCLES, INSTRUCTIONS, TASK_CLOCK
from native_map.events.model import HARDWARE, RAW, SOFTWARE, Event, EventSet, Table, config

if TYPE_CHECKING:  # choosing happens before the user's program starts: it must not wait for pandas
    import pandas as pd

__all__ = [
    "METRICS",
    "Choice",
    "Event",
    "EventSet",
    "Metric",
    "choose",
    "metrics",
    "parse",
    "perf_name",
    "resolve",
    "restored",
    "saved",
    "sets",
    "table",
]


@dataclass(frozen=True)
class Choice:
    """What to count: the events of a group are opened together, the first as the leader.

    `multiplexed` is the number of groups that need counters and so take turns: with more than 1
    each counts about 1/multiplexed of the time, and an event of several groups is the mean of its
    scaled counts. `notes` say in words what was left out and why.
    """

    groups: tuple[tuple[Event, ...], ...]
    multiplexed: int
    notes: tuple[str, ...]

    @property
    def events(self) -> tuple[Event, ...]:
        """Every event once, in the order of the groups."""
        return tuple({e.name: e for group in self.groups for e in group}.values())


def table(cpu: Cpu | str) -> Table:
    """The table of a CPU or of a micro-architecture's name; the generic one if it is unknown."""
    uarch = cpu if isinstance(cpu, str) else cpu.uarch
    return TABLES.get(uarch, TABLES["generic"])


def sets(cpu: Cpu | str) -> dict[str, EventSet]:
    """The named sets of this CPU, each in its best form. "generic" and "software" always exist."""
    return {name: forms[0] for name, forms in table(cpu).sets.items()}


def metrics(counts: "pd.DataFrame", cpu: Cpu | str, known: Table | None = None) -> "pd.DataFrame":
    """Metrics (see METRICS) of each row of counts, whose columns are names of events.

    A metric is there only if its events are; NaN where a denominator is 0 or a count is NaN.
    Given a name instead of a Cpu, Neoverse N2 is taken to be r0p3 or later. Other columns of
    `counts` are ignored. `known` replaces the table of the CPU. Units and sources: METRICS.
    """
    from native_map.events import formulas

    known = known or table(cpu)
    old_n2 = False
    if isinstance(cpu, Cpu):
        old_n2 = cpu.uarch == "neoverse_n2" and 0 <= cpu.stepping < 0x03
        known = replace(known, width=cpu.slots or known.width)
    return formulas.compute(counts, known, old_n2)


def saved(known: Table) -> dict[str, str]:
    """What a run must keep of a table that `native_map.perf_list` made: its metrics' texts."""
    return {name: metric.text for name, metric in known.expressions.items()}


def restored(known: Table, texts: Mapping[str, str]) -> Table:
    """The table with metrics that `saved` kept. Texts that make no sense are left out."""
    found: dict[str, expression.Expression] = {}
    for name, text in texts.items():
        with contextlib.suppress(expression.NotUnderstood):
            if name in METRICS:
                found[name] = expression.read(text, {}, {}, str)
    return replace(known, expressions=found)


# ── choosing ─────────────────────────────────────────────────────────────────────────────────


def choose(
    cpu: Cpu | str,
    fits: int,
    working: Collection[str] | None = None,
    wanted: Sequence[str] = ("auto",),
    known: Table | None = None,
) -> Choice:
    """Groups of events for this CPU, of which each fits into the counters.

    `fits` is the size of the largest group that starts with cycles and instructions and counts
    rightly here (software events and perf metrics do not count towards it; 0: no PMU). `working`
    names the events that were tried and count rightly; None trusts all. `wanted` holds names of
    sets, names of events, or perf's spellings; "auto" is top-down level 1 as far as one group
    takes it, so that nothing is multiplexed. `known` replaces the table of the CPU, for one
    that `native_map.perf_list` made. Raises Unusable for what is not understood.
    """
    known = known or table(cpu)
    virtual = isinstance(cpu, Cpu) and cpu.virtual
    notes: list[str] = []
    if known.name.startswith("generic") and fits > 0 and not known.expressions:
        notes.append("unknown CPU: generic events, no top-down shares")
    asked = [u for word in wanted for u in _units(known, word, fits, working, virtual, notes)]
    software = _unique([TASK_CLOCK, *(e for u in asked for e in u if e.type == SOFTWARE)])
    units = [tuple(e for e in u if e.type != SOFTWARE) for u in asked]
    units = [u for u in units if u]
    if fits <= 0:
        names = _unique(e.name for u in units for e in u)
        if names:
            notes.append(f"no hardware counters here: not counted: {', '.join(names)}")
        units = []
    groups: list[tuple[Event, ...]] = []
    # Of a set of which nothing works, cycles and instructions are still counted.
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
            reason = "no hardware counters" if fits <= 0 else "no hardware event counts rightly"
            notes.append(f"{reason}: software events only")
        return Choice(
            (tuple(_unique([*software, *generic.SOFTWARE_SET.events])),), 1, (*_unique(notes),)
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
    return Choice(tuple(groups), len(groups), (*_unique(notes),))


def _is_hardware(known: Table, word: str) -> bool:
    """Whether a word that is understood asks for more than software events."""
    if word in known.sets:
        return any(e.type != SOFTWARE for form in known.sets[word] for e in form.events)
    return word == "auto" or (_by_name(known, word) or parse(word)).type != SOFTWARE


def _units(
    known: Table,
    word: str,
    fits: int,
    working: Collection[str] | None,
    virtual: bool,
    notes: list[str],
) -> list[tuple[Event, ...]]:
    """What one word asks for, as groups of events that must count together."""
    if word == "auto":
        return _auto(known, fits, working, virtual, notes)
    if word not in known.sets and word in SETS:
        raise Unusable(
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
    known: Table, fits: int, working: Collection[str] | None, virtual: bool, notes: list[str]
) -> list[tuple[Event, ...]]:
    """One group: of the best set what fits and gives a metric."""
    if fits <= 0:
        return []
    name = "topdown" if "topdown" in known.sets else "generic"
    form = _best_form(known.sets[name], working, virtual)
    base = list(_working((CYCLES, INSTRUCTIONS), working, []))
    events = [e for group in form.groups for e in _working(group, working, notes)]
    taken: list[Event] = []
    for event in (*base, *events):
        if _cost(taken) + event.counters <= fits:
            taken.append(event)
    # Half of a ratio is not worth its counter.
    optional = form.optional | {e.name for e in (*base, *taken) if not e.counters}
    for event in [e for e in taken if e not in base and e.name not in optional]:
        rest = [e.name for e in taken if e is not event]
        if catalogue.gives(rest, known) == catalogue.gives([*rest, event.name], known):
            taken.remove(event)
    given = catalogue.gives((e.name for e in taken), known)
    missing = [m for m in form.gives if m not in given and m != "smt_contention"]
    possible = catalogue.gives((e.name for e in (*base, *events)), known)
    if missing := [m for m in missing if m in possible]:
        notes.append(
            f"{fits} counters hold one group without {', '.join(missing)}; ask for {name} to count "
            "all in turns"
        )
    return [tuple(taken)] if taken else []


def _best_form(
    forms: tuple[EventSet, ...], working: Collection[str] | None, virtual: bool
) -> EventSet:
    """The form of which most events work; untried, the last in a VM, as they hide registers."""
    if working is None:
        return forms[-1 if virtual else 0]
    return max(
        forms, key=lambda form: sum(e.name in working for e in form.events) / len(form.events)
    )


def _working(
    events: Iterable[Event], working: Collection[str] | None, notes: list[str]
) -> tuple[Event, ...]:
    kept = []
    for event in events:
        if working is None or event.type == SOFTWARE or event.name in working:
            kept.append(event)
        else:
            notes.append(f"{event.name} does not count rightly on this machine: left out")
    return tuple(kept)


def _cost(events: Iterable[Event]) -> int:
    return sum(e.counters for e in events)


def _place(
    groups: list[tuple[Event, ...]],
    unit: tuple[Event, ...],
    base: tuple[Event, ...],
    fits: int,
    notes: list[str],
) -> None:
    """Adds a unit to a group that has room, else in a new one, else in several."""
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
    left = [e for e in unit if e not in counted and e not in start]
    filling = start
    for event in left:
        if _cost(filling) + event.counters > fits:
            groups.append(filling)
            filling = start
        filling = (*filling, event)
    if left:
        groups.append(filling)
    notes.append(
        f"{', '.join(e.name for e in unit)} do not fit into {fits} counters together: ratios "
        "between them join different moments"
    )


def _join(group: tuple[Event, ...], unit: tuple[Event, ...]) -> tuple[Event, ...]:
    """Both, each event once; the slots register leads where there is one, as its shares need."""
    events = {e.name: e for e in (*group, *unit)}
    lead = [e for e in events.values() if e.name == "slots"]
    shares = [e for e in events.values() if e.name.startswith("topdown_")]
    return (*lead, *shares, *(e for e in events.values() if e not in lead and e not in shares))


_T = TypeVar("_T")


def _unique(things: Iterable[_T]) -> list[_T]:
    return list(dict.fromkeys(things))


# ── spelling ─────────────────────────────────────────────────────────────────────────────────

_NAMED = {
    (HARDWARE, 0): "cycles",
    (HARDWARE, 1): "instructions",
    (HARDWARE, 2): "cache-references",
    (HARDWARE, 3): "cache-misses",
    (HARDWARE, 4): "branches",
    (HARDWARE, 5): "branch-misses",
    (HARDWARE, 6): "bus-cycles",
    (HARDWARE, 7): "stalled-cycles-frontend",
    (HARDWARE, 8): "stalled-cycles-backend",
    (HARDWARE, 9): "ref-cycles",
    (SOFTWARE, 0): "cpu-clock",
    (SOFTWARE, 1): "task-clock",
    (SOFTWARE, 2): "page-faults",
    (SOFTWARE, 3): "context-switches",
    (SOFTWARE, 4): "cpu-migrations",
    (SOFTWARE, 5): "minor-faults",
    (SOFTWARE, 6): "major-faults",
}
SETS = ("topdown", "cache", "branch", "tlb", "memory", "generic", "software")
_SYNONYMS = {"faults": "page-faults", "cs": "context-switches", "migrations": "cpu-migrations"}
_SYNONYMS |= {"cpu-cycles": "cycles", "branch-instructions": "branches"}

_EVENT_BITS = 0xFF | 0xF << 32
_FIELDS = (("umask", 8, 0xFF), ("edge", 18, 1), ("any", 21, 1), ("inv", 23, 1), ("cmask", 24, 0xFF))


def perf_name(event: Event) -> str:
    """The event as `perf record -e` and `perf stat -e` spell it, with its u or k modifier.

    Unusable where perf has no spelling for it.
    """
    if isinstance(event.type, int):
        name = _NAMED.get((event.type, event.config))
        if name is not None:
            return f"{name}:{event.flags}"
        if event.type == RAW and not event.config1:
            return f"r{event.config:x}:{event.flags}"
        raise Unusable(
            f"perf has no spelling for {event.name} (type {event.type}, config "
            f"{event.config:#x}); count it exactly instead: lotus trace --counters"
        )
    code = (event.config & 0xFF) | (event.config >> 32 & 0xF) << 8
    terms = [f"event=0x{code:02x}"]
    known = _EVENT_BITS
    for name, shift, mask in _FIELDS:
        value = event.config >> shift & mask
        known |= mask << shift
        if name == "umask":
            terms.append(f"umask=0x{value:02x}")
        elif value:
            terms.append(f"{name}=0x{value:x}" if mask > 1 else name)
    if event.config & ~known or event.type != "cpu":
        terms = [f"config=0x{event.config:x}"]
    if event.config1:
        terms.append(f"config1=0x{event.config1:x}")
    return f"{event.type}/{','.join(terms)}/{event.flags}"


def resolve(event: Event, sysfs: Path = Path("/sys")) -> int:
    """The number for perf_event_attr.type. Raises Unusable where the machine has no such PMU."""
    if isinstance(event.type, int):
        return event.type
    path = sysfs / "bus/event_source/devices" / event.type / "type"
    try:
        text = path.read_text("ascii", "replace").strip()
    except (OSError, ValueError):
        text = ""
    if not re.fullmatch("[0-9]{1,9}", text, re.ASCII):
        raise Unusable(
            f"this machine has no PMU {event.type!r}, which {event.name} needs; software events "
            "still work: see lotus doctor"
        )
    return int(text)


def _by_name(known: Table, name: str) -> Event | None:
    for forms in known.sets.values():
        for form in forms:
            for event in form.events:
                if event.name == name:
                    return event
    for event in (CYCLES, INSTRUCTIONS, *_OTHERS):
        if event.name == name:
            return event
    return None


_OTHERS = tuple(e for e in vars(generic).values() if isinstance(e, Event))


def parse(spelling: str) -> Event:
    """An event from perf's spelling: `cycles:u`, `r01c0`, `cpu/event=0xc0,umask=0x01/uk`.

    Without a modifier user space is counted. The name is `name=` where that is given, else the
    spelling with what a name cannot hold replaced by "_". Raises Unusable if it is not understood.
    """
    if len(spelling) > 200:
        raise Unusable(
            f"not an event: {spelling[:40]}...; see lotus doctor for what can be counted"
        )
    if match := re.fullmatch(r"([A-Za-z0-9_.-]+)/([^/]*)/([a-zA-Z]*)", spelling):
        return _parse_pmu(spelling, match[1], match[2], _modifier(spelling, match[3]))
    word, _, modifier = spelling.partition(":")
    flags = _modifier(spelling, modifier)
    # What is counted elsewhere than in user space is another count, and has another name.
    other = f"_{flags}" if modifier and flags != "u" else ""
    if match := re.fullmatch(r"r([0-9a-fA-F]{1,16})", word):
        return Event(
            _clean(word) + other, RAW, int(match[1], 16), flags=flags, text=f"raw event {word}"
        )
    name = _SYNONYMS.get(word, word)
    for (kind, number), spelt in _NAMED.items():
        if name == spelt:
            ours = next((e for e in _OTHERS if (e.type, e.config) == (kind, number)), None)
            if ours is not None:
                if not modifier or flags == ours.flags:
                    return ours
                return replace(ours, name=ours.name + other, flags=flags)
            cost = 0 if kind == SOFTWARE else 1
            name = _clean(name) + other
            return Event(name, kind, number, flags=flags, text=spelling, counters=cost)
    raise _not_understood(spelling)


def _parse_pmu(spelling: str, pmu: str, text: str, flags: str) -> Event:
    values: dict[str, int] = {}
    name = _clean(f"{pmu}_{text}") + (f"_{flags}" if flags != "u" else "")
    for term in text.split(","):
        key, equals, value = term.partition("=")
        if key == "name" and value:
            name = _clean(value)
            continue
        digits = value if equals else "1"
        if not re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}|[0-9]{1,19}", digits, re.ASCII):
            raise _not_understood(spelling)
        values[key] = int(digits, 16 if digits[:2].lower() == "0x" else 10)
    fields = {key: (shift, mask) for key, shift, mask in _FIELDS}
    bits = values.pop("config", 0)
    config1 = values.pop("config1", values.pop("offcore_rsp", values.pop("ldlat", 0)))
    for key, number in values.items():
        if key == "event" and number <= (0xFFF if pmu == "cpu" else 0xFFFF):
            bits |= config(number) if pmu == "cpu" else number
        elif pmu == "cpu" and key in fields and number <= fields[key][1]:
            bits |= number << fields[key][0]
        else:
            raise _not_understood(spelling)
    if max(bits, config1) >= 1 << 64:
        raise _not_understood(spelling)
    return Event(name, pmu, bits, config1, flags, text=f"as spelt: {spelling}")


def _modifier(spelling: str, modifier: str) -> str:
    if modifier not in ("", "u", "k", "uk", "ku"):
        raise _not_understood(spelling)
    return {"": "u", "ku": "uk"}.get(modifier, modifier)


def _not_understood(spelling: str) -> Unusable:
    return Unusable(
        f"not an event or a set of this CPU: {spelling!r}; give a set "
        f"({', '.join(SETS)}) or perf's spelling (cycles:u, r01c0, "
        "cpu/event=0xc0,umask=0/): see lotus doctor"
    )


def _clean(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "_", name).strip("_")[:80] or "event"
