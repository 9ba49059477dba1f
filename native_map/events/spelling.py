"""Parses perf's spelling of events, and looks up the number of a PMU in sysfs."""

import re
from dataclasses import replace
from pathlib import Path

from native_map.errors import UnusableError
from native_map.events import generic
from native_map.events.event_model import HARDWARE, RAW, SOFTWARE, Event, config

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
OTHER_EVENTS = tuple(e for e in vars(generic).values() if isinstance(e, Event))
SETS = ("topdown", "topdown2", "cache", "branch", "tlb", "memory", "generic", "software")
_SYNONYMS = {"faults": "page-faults", "cs": "context-switches", "migrations": "cpu-migrations"}
_SYNONYMS |= {"cpu-cycles": "cycles", "branch-instructions": "branches"}

_FIELDS = (("umask", 8, 0xFF), ("edge", 18, 1), ("any", 21, 1), ("inv", 23, 1), ("cmask", 24, 0xFF))


def type_number(event: Event, sysfs: Path = Path("/sys")) -> int:
    """Return an event's perf_event_attr.type. Raises UnusableError if the machine lacks the PMU."""
    if isinstance(event.type, int):
        return event.type
    path = sysfs / "bus/event_source/devices" / event.type / "type"
    try:
        text = path.read_text("ascii", "replace").strip()
    except (OSError, ValueError):
        text = ""
    if not re.fullmatch("[0-9]{1,9}", text, re.ASCII):
        raise UnusableError(
            f"this machine has no PMU {event.type!r}, which {event.name} needs; software events "
            "still work: see lotus doctor"
        )
    return int(text)


def parse(spelling: str) -> Event:
    """Parse perf's spelling of an event: `cycles:u`, `r01c0`, `cpu/event=0xc0,umask=0x01/uk`.

    Without a modifier, user space is counted. The name is the value of `name=` if given, else the
    spelling with invalid characters replaced by "_". Raises UnusableError if it is not understood.
    """
    if len(spelling) > 200:
        raise UnusableError(
            f"not an event: {spelling[:40]}...; see lotus doctor for what can be counted"
        )
    if match := re.fullmatch(r"([A-Za-z0-9_.-]+)/([^/]*)/([a-zA-Z]*)", spelling):
        return _parse_pmu(spelling, match[1], match[2], _modifier(spelling, match[3]))
    word, _, modifier = spelling.partition(":")
    flags = _modifier(spelling, modifier)
    # A count outside user space is a different quantity and needs a different name.
    other = f"_{flags}" if modifier and flags != "u" else ""
    if match := re.fullmatch(r"r([0-9a-fA-F]{1,16})", word):
        return Event(
            _clean(word) + other, RAW, int(match[1], 16), flags=flags, text=f"raw event {word}"
        )
    name = _SYNONYMS.get(word, word)
    for (kind, number), spelt in _NAMED.items():
        if name == spelt:
            ours = next((e for e in OTHER_EVENTS if (e.type, e.config) == (kind, number)), None)
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


def _not_understood(spelling: str) -> UnusableError:
    return UnusableError(
        f"not an event or a set of this CPU: {spelling!r}; give a set "
        f"({', '.join(SETS)}) or perf's spelling (cycles:u, r01c0, "
        "cpu/event=0xc0,umask=0/): see lotus doctor"
    )


def _clean(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "_", name).strip("_")[:80] or "event"
