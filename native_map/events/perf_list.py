"""Events and metrics of this CPU from the installed perf, which has the vendors' tables.

perf includes tables for the CPUs that it was built for (Linux tools/perf/pmu-events). If it knows
this CPU, its encodings take precedence over ours; an old perf on a new CPU lists none.
"""

import contextlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from native_map.errors import UnusableError
from native_map.events import expression, intel, pmu, spelling
from native_map.events.cpu import Cpu
from native_map.events.event_model import Event, EventSet, EventTable
from native_map.events.generic import CYCLES, INSTRUCTIONS
from native_map.events.metrics import METRICS
from native_map.programs import ProgramLimits, answer

_LARGEST = 16 << 20  # perf 6.10 lists 6 MB on the largest servers
_LIMITS = ProgramLimits(wait_s=60, cpu_s=60, output=_LARGEST)
_MOST_ENTRIES = 200_000


@dataclass(frozen=True)
class PerfEvent:
    """An event as perf lists it. `encoding` is a spelling for `perf -e`, "" if not listed."""

    name: str
    text: str = ""
    encoding: str = ""


@dataclass(frozen=True)
class PerfMetric:
    """A metric as perf lists it. perf multiplies the expression by `scale` to show it in `unit`."""

    name: str
    groups: tuple[str, ...] = ()
    expression: str = ""
    scale: float = 1.0
    unit: str = ""
    text: str = ""


@dataclass(frozen=True)
class Listing:
    """All events and metrics that perf listed, by lower-case name."""

    events: dict[str, PerfEvent] = field(default_factory=dict)
    metrics: dict[str, PerfMetric] = field(default_factory=dict)

    def group(self, name: str) -> list[PerfMetric]:
        """Return the metrics of a group such as "TopdownL1" or "PipelineL1"."""
        return [m for m in self.metrics.values() if name.lower() in map(str.lower, m.groups)]


def read(perf: str = "perf") -> Listing:
    """Return the output of `perf list`; empty if there is no perf or its output is unusable."""
    listing = parse_json(_run(perf, "list", "-j"))
    return listing if listing.events else parse_details(_run(perf, "list", "--details"))


def table(cpu: Cpu, perf: str = "perf") -> tuple[EventTable, tuple[str, ...]]:
    """Return the table to choose events from, ours updated by the installed perf, and notes."""
    listing = read(perf)
    known, notes = merge(pmu.table(cpu), listing)
    return top_down(known, listing, cpu.slots), notes


def _run(*command: str) -> str:
    environment = {**os.environ, "LC_ALL": "C", "PAGER": "cat", "PERF_PAGER": "cat"}
    try:
        output = answer(command, _LIMITS, env=environment)
    except (OSError, ValueError):
        return ""
    return "" if output.stopped else output.out.decode("utf-8", "replace")


def parse_json(text: str) -> Listing:
    """Parse the output of `perf list -j` (perf 6.2 and later). Invalid entries are left out.

    Fields: Linux tools/perf/builtin-list.c, json_print_event and json_print_metric.
    """
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError):
        return Listing()
    if not isinstance(entries, list):
        return Listing()
    events: dict[str, PerfEvent] = {}
    metrics: dict[str, PerfMetric] = {}
    of_name: dict[str, dict[str, None]] = {}
    for entry in entries[:_MOST_ENTRIES]:
        if not isinstance(entry, dict):
            continue
        get = {k: v for k, v in entry.items() if isinstance(v, str)}.get
        text = get("BriefDescription", "")
        if name := get("EventName"):
            event = PerfEvent(name, text, get("Encoding", ""))
            _keep(events, name, event)
            if alias := get("EventAlias"):
                _keep(events, alias, event)
        elif name := get("MetricName"):
            scale, unit = _scale(get("ScaleUnit", ""))
            groups = tuple(g.strip() for g in get("MetricGroup", "").split(";") if g.strip())
            # Listed once for each of its groups.
            of_name.setdefault(name.lower(), {}).update(dict.fromkeys(groups))
            metric = PerfMetric(name, (), get("MetricExpr", ""), scale, unit, text)
            metrics.setdefault(name.lower(), metric)
    complete = {key: replace(m, groups=tuple(of_name[key])) for key, m in metrics.items()}
    return Listing(events, complete)


def _keep(events: dict[str, PerfEvent], name: str, event: PerfEvent) -> None:
    existing = events.get(name.lower())
    if existing is None or not existing.encoding:
        events[name.lower()] = event


def _scale(text: str) -> tuple[float, str]:
    """ "100%" is (100, "%")."""
    match = re.match(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?(?:e[+-]?[0-9]{1,2})?)(.*)", text, re.ASCII)
    return (float(match[1]), match[2].strip()) if match else (1.0, text.strip())


def parse_details(text: str) -> Listing:
    """Parse the output of `perf list --details`, for older perfs: events with encodings only.

    An event is a line indented by two blanks; its description in brackets and its encoding, such
    as `cpu/event=0xc1/`, are indented further.
    """
    events: dict[str, PerfEvent] = {}
    name, text_of = "", ""
    for line in text[:_LARGEST].split("\n")[: 4 * _MOST_ENTRIES]:
        if re.match(r" {1,3}[A-Za-z]", line):
            name, text_of = line.split()[0], ""
            _keep(events, name, PerfEvent(name))
        elif name and line.lstrip().startswith("["):
            text_of = line.strip().strip("[]")
            _keep(events, name, PerfEvent(name, text_of))
        elif name and (match := re.fullmatch(r"\s{4,}([\w.-]{1,40}/[^/]{1,200}/)\s*", line)):
            _keep(events, name, PerfEvent(name, text_of, match[1]))
    return Listing(events)


def merge(known: EventTable, listing: Listing) -> tuple[EventTable, tuple[str, ...]]:
    """Return the table with perf's encodings of the events that perf knows, and the differences.

    Events that perf does not list, or whose spelling is not supported, are unchanged.
    """
    notes: list[str] = []

    def checked(event: Event) -> Event:
        ours = listing.events.get(event.vendor.lower()) if event.vendor else None
        if ours is None or not ours.encoding:
            return event
        try:
            perfs = spelling.parse(_without_period(ours.encoding))
        except UnusableError:
            return event
        if (perfs.config, perfs.config1) == (event.config, event.config1):
            return replace(event, source=f"{event.source}; perf list agrees")
        notes.append(
            f"{event.name}: perf lists {event.vendor} as {ours.encoding}, our table had config "
            f"{event.config:#x}; perf's is used"
        )
        return replace(
            event,
            type=perfs.type,
            config=perfs.config,
            config1=perfs.config1,
            source=f"perf list: {event.vendor}",
        )

    def checked_form(form: EventSet) -> EventSet:
        return replace(form, groups=tuple(tuple(map(checked, group)) for group in form.groups))

    merged = {name: tuple(map(checked_form, forms)) for name, forms in known.sets.items()}
    return replace(known, sets=merged), tuple(dict.fromkeys(notes))


def _without_period(encoding: str) -> str:
    """Remove the sampling period of an encoding, which only advises perf record."""
    return re.sub(r"(?<=[/,])period=[^,/]*,?", "", encoding).replace(",/", "/")


# The four shares under every name that perf's tables have for them.
_SHARES = ("frontend_bound", "backend_bound", "retiring", "bad_speculation")
_LEVEL_1 = ("TopdownL1", "PipelineL1")

# perf's names of what we always count.
_OURS = {
    **dict.fromkeys(("cycles", "cpu-cycles", "cpu_cycles", "cpu_clk_unhalted.thread"), CYCLES),
    **dict.fromkeys(("ls_not_halted_cyc", "cpu_clk_unhalted.core"), CYCLES),
    **dict.fromkeys(("instructions", "inst_retired.any", "inst_retired"), INSTRUCTIONS),
    "ex_ret_instr": INSTRUCTIONS,
    **{event.vendor: event for event in intel.PERF_METRICS.events},
    "topdown.slots": intel.PERF_METRICS.events[0],
}


def top_down(known: EventTable, listing: Listing, slots: int = 0) -> EventTable:
    """Return a table that has no top-down level 1 with that of perf, if perf has it for this CPU.

    `slots` is the kernel's value in the PMU's caps/slots (Arm), 0 if there is none. The table is
    unchanged if one of perf's metrics cannot be parsed or needs events that are not listed.
    """
    if known.formula or known.width:
        return known
    level_1 = {m.name.lower(): m for group in _LEVEL_1 for m in listing.group(group)}
    texts = {name: m.expression for name, m in listing.metrics.items() if m.expression}
    constants = {"#slots": float(slots)} if slots else {}
    events: dict[str, Event] = {}

    def rename(name: str) -> str:
        event = _OURS.get(name) or _listed(name, listing)
        events[event.name] = event
        return event.name

    expressions: dict[str, expression.Expression] = {}
    try:
        for share in _SHARES:
            metric = level_1.get(share) or level_1[f"tma_{share}"]
            shown = f"{metric.scale / 100!r} * ({metric.expression})"
            expressions[share] = expression.read(shown, texts, constants, rename)
    except (KeyError, expression.ExpressionError, UnusableError):
        return known
    ours = (CYCLES.name, INSTRUCTIONS.name)
    form = EventSet(
        "where slots went, as perf's own tables have it",
        (tuple(event for name, event in events.items() if name not in ours),),
        ("ipc", *_SHARES),
    )
    note = f"top-down shares by perf's own metrics: {', '.join(_LEVEL_1)}"
    return replace(
        known,
        name=f"{known.name}_perf",
        sets={**known.sets, "topdown": (form,)},
        notes=(*known.notes, note),
        expressions=expressions,
    )


def _listed(name: str, listing: Listing) -> Event:
    """Return one of perf's events by its name. Raises KeyError or UnusableError."""
    entry = listing.events[name]
    if not entry.encoding:
        raise KeyError(name)
    event = spelling.parse(_without_period(entry.encoding))
    return replace(
        event,
        name=re.sub(r"[^a-z0-9_]+", "_", name),
        text=entry.text or name,
        source=f"perf list: {name}",
        vendor=name,
    )


def saved_metrics(known: EventTable) -> dict[str, str]:
    """Return what a run stores of a table that `top_down` made: the metrics' expressions."""
    return {name: metric.text for name, metric in known.expressions.items()}


def with_saved_metrics(known: EventTable, texts: Mapping[str, str]) -> EventTable:
    """Return the table with the metrics of `saved_metrics`, without texts that cannot be parsed."""
    expressions: dict[str, expression.Expression] = {}
    for name, text in texts.items():
        with contextlib.suppress(expression.ExpressionError):
            if name in METRICS:
                expressions[name] = expression.read(text, {}, {}, str)
    return replace(known, expressions=expressions)
