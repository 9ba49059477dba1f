"""Counts of loops whose instructions, branches and misses can be calculated, beside what was
counted; and what one reading of a group costs."""

import ctypes
import platform
import shutil
import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from lotus.common.errors import LotusError
from lotus.hardware.counter_probe import CYCLES, INSTRUCTIONS, settle
from lotus.inside.common import perf_event
from lotus.inside.common.perf_event import Event
from native_map.events import cpu as cpus
from native_map.events import formulas, pmu, spelling
from native_map.events.metrics import LEVEL_2, PERF_METRICS

SOURCE = Path(__file__).with_name("loops.c")
TIMES = 5  # each count is the median of so many
ROUNDS = 4_000_000
RING_LINES = 1 << 20  # of 64 bytes: 64 MiB, beyond most caches
SETS = ("generic", "topdown", "topdown2", "cache", "tlb", "branch")
SLOT_EVENTS = ("slots_frontend", "slots_backend", "ops_retired", "ops_dispatched")
SHARES = ("frontend_bound", "backend_bound", "retiring", "bad_speculation")
# Events that together fill all slots, on Intel and on Arm.
FILLING = (PERF_METRICS, ("slots_frontend", "slots_backend", "ops_dispatched"))


@dataclass(frozen=True)
class Loop:
    """`expected` has counts per round of events; what is not in it cannot be calculated."""

    name: str
    text: str
    run: Callable[[int], None]
    rounds: int
    expected: dict[str, float] = field(default_factory=dict)


class NoCompilerError(LotusError):
    """The loops could not be built here; the message says why."""


def build(folder: Path) -> ctypes.CDLL:
    """Compile the loops. Raises NoCompilerError."""
    if platform.machine() != "x86_64":
        raise NoCompilerError(
            f"the known loops are written for x86-64, this is {platform.machine()}"
        )
    compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
    if compiler is None:
        raise NoCompilerError("no C compiler: install gcc, the other measurements are made without")
    target = folder / "loops.so"
    completed = subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", "-o", str(target), str(SOURCE)],
        capture_output=True,
        text=True,
    )
    if completed.returncode:
        raise NoCompilerError(f"{compiler} failed: {completed.stderr.strip()[:300]}")
    library = ctypes.CDLL(str(target))
    library.toss.argtypes = library.make_ring.argtypes = [ctypes.c_long, ctypes.c_uint64]
    library.toss.restype = ctypes.c_long
    for name in ("additions", "nothing", "guesses", "chase"):
        getattr(library, name).argtypes = [ctypes.c_long]
        getattr(library, name).restype = None
    library.read_ns.argtypes = [ctypes.c_int, ctypes.c_long, ctypes.c_long]
    library.rdpmc_ns.argtypes = [ctypes.c_int, ctypes.c_long]
    library.read_ns.restype = library.rdpmc_ns.restype = ctypes.c_double
    return library


def loops(library: ctypes.CDLL) -> list[Loop]:
    """Return the loops, with what each round does."""
    heads = library.toss(ROUNDS, 88172645463325252) / ROUNDS
    listed = [
        Loop(
            "additions",
            "8 dependent additions a round",
            library.additions,
            10 * ROUNDS,
            {"instructions": 10, "branches": 1, "branch_misses": 0, "cycles": 8},
        ),
        Loop(
            "nothing",
            "14 instructions a round that do nothing",
            library.nothing,
            10 * ROUNDS,
            {"instructions": 16, "branches": 1, "branch_misses": 0},
        ),
        Loop(
            "guesses",
            "a branch a round on a random bit",
            library.guesses,
            ROUNDS,
            {"instructions": 5 + heads, "branches": 2, "branch_misses": 0.5},
        ),
    ]
    if library.make_ring(RING_LINES, 88172645463325252):
        expected = {"instructions": 3, "branches": 1, "branch_misses": 0, "l1d_misses": 1}
        text = f"a load a round from a random line of {RING_LINES * 64 >> 20} MiB"
        listed.append(Loop("chase", text, library.chase, ROUNDS // 4, expected))
    return listed


def events() -> dict[str, Event]:
    """Events of this CPU by name, as they are opened; those of units that are absent left out."""
    table = pmu.table(cpus.detect())
    chosen = {event.name: event for event in (CYCLES, INSTRUCTIONS)}
    for name in SETS:
        for form in table.sets.get(name, ()):
            for each in form.events:
                try:
                    number = spelling.type_number(each)
                except pmu.UnusableError:
                    continue
                event = Event(each.name, number, each.config, each.config1, each.flags)
                chosen.setdefault(each.name, event)
    return chosen


def count(names: Sequence[str], available: dict[str, Event], loop: Loop) -> dict[str, float]:
    """Counts a round of one group: {} where it is refused, or shared its counters."""
    rows = []
    for _ in range(TIMES):
        try:
            group = perf_event.EventGroup([available[name] for name in names])
        except OSError:
            return {}
        try:
            settle()
            enabled, running, before = group.unpack(group.read())
            loop.run(loop.rounds)
            then, ran, after = group.unpack(group.read())
        finally:
            group.close()
        if ran - running < 0.99 * (then - enabled):
            return {}
        rows.append([new - old for new, old in zip(after, before, strict=True)])
    middle = [statistics.median(column) for column in zip(*rows, strict=True)]
    return {name: value / loop.rounds for name, value in zip(names, middle, strict=True)}


def measure(library: ctypes.CDLL, working: Sequence[str]) -> list[dict[str, Any]]:
    """Return for each loop the counts a round beside the expected ones, and its top-down shares."""
    available = {name: event for name, event in events().items() if name in working}
    base = [name for name in ("cycles", "instructions") if name in available]
    further = [name for name in available if name not in base]
    rows = []
    for loop in loops(library):
        counted: dict[str, float] = {}
        for name in further:  # each with two others at most: no group is too large
            for event, value in count([*base, name], available, loop).items():
                counted.setdefault(event, value)
        row: dict[str, Any] = {"loop": loop.name, "text": loop.text, "rounds": loop.rounds}
        row["counts"] = {
            name: {"counted": value, "expected": loop.expected.get(name)}
            for name, value in counted.items()
        }
        row["topdown"] = level_1(available, loop)
        row["level_2"] = level_2(available, loop)
        rows.append(row)
    return rows


def level_1(available: dict[str, Event], loop: Loop) -> dict[str, float | None] | None:
    """Return the four shares of top-down level 1 and their sum; None where they are not counted."""
    cpu = cpus.detect()
    table = pmu.table(cpu)
    if table.formula == "amd" and set(SLOT_EVENTS) <= set(available):
        return topdown(count(["cycles", *SLOT_EVENTS], available, loop), table.width)
    for form in table.sets.get("topdown", ()) if table.formula else ():
        names = [each.name for each in form.events if each.name not in form.optional]
        if set(names) <= set(available) and (counted := count([*names, "cycles"], available, loop)):
            return shares_by_formula(counted, cpu)
    return None


def shares_by_formula(counted: dict[str, float], cpu: cpus.Cpu | str) -> dict[str, float | None]:
    """The four shares as lotus computes them; their sum is that of the events that fill slots, each
    counted by itself, over the slots: None where these are not counted."""
    shares = formulas.metrics(pd.DataFrame([counted]), cpu).iloc[0]
    parts = next((each for each in FILLING if set(each) <= set(counted)), ())
    width = pmu.table(cpu).width if isinstance(cpu, str) else cpu.slots or pmu.table(cpu).width
    slots = counted.get("slots") or width * counted["cycles"]
    whole = sum(counted[name] for name in parts) / slots if parts else None
    return {**{name: float(shares[name]) for name in SHARES}, "sum": whole}


def level_2(available: dict[str, Event], loop: Loop) -> dict[str, float | None]:
    """Return the shares of top-down level 2, {} where this CPU has none; None: not told apart."""
    cpu = cpus.detect()
    counted: dict[str, float] = {}
    for form in pmu.table(cpu).sets.get("topdown2", ())[:1]:
        for group in form.groups:
            names = [each.name for each in group if each.name not in form.optional]
            if not set(names) <= set(available):
                return {}
            counted |= count([*names, "cycles"], available, loop)  # a slots register leads
    if not counted:
        return {}
    shares = formulas.metrics(pd.DataFrame([counted]), cpu).iloc[0]
    nodes = [node for group in LEVEL_2.values() for node in group if node in shares]
    return {node: None if shares[node] != shares[node] else float(shares[node]) for node in nodes}


def topdown(counted: dict[str, float], width: int) -> dict[str, float] | None:
    """Return the four shares, each from counts of its own; their sum is the check (AMD)."""
    if not counted:
        return None
    slots = counted["cycles"] * width
    shares = {
        "frontend_bound": counted["slots_frontend"] / slots,
        "backend_bound": counted["slots_backend"] / slots,
        "retiring": counted["ops_retired"] / slots,
        "bad_speculation": (counted["ops_dispatched"] - counted["ops_retired"]) / slots,
    }
    return {**shares, "sum": sum(shares.values())}


def reading_costs(library: ctypes.CDLL, working: Sequence[str]) -> list[dict[str, Any]]:
    """Return nanoseconds of read(2) of groups of growing size, and of rdpmc of one counter."""
    available = {name: event for name, event in events().items() if name in working}
    software = Event("task_clock", perf_event.SOFTWARE, 1)
    rows: list[dict[str, Any]] = []
    for size in (0, 1, 3, 5):
        group_events = list(available.values())[:size] or [software]
        if len(group_events) < size:
            break
        try:
            group = perf_event.EventGroup(group_events)
        except OSError:
            break
        try:
            settle()
            read = statistics.median(library.read_ns(group.fd, 2000, group.size) for _ in range(9))
            pmc = statistics.median(library.rdpmc_ns(group.fd, 2000) for _ in range(9))
        finally:
            group.close()
        row = {"events": [event.name for event in group_events], "read_ns": read}
        rows.append({**row, "rdpmc_ns": pmc if pmc >= 0 and size else None})
    return rows
