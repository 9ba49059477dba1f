"""Counters of the threads of an observed program: lines, tables, document."""

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from lotus.analysis.attached.tables.counted_threads import FIRST, MAIN, CounterSummary
from lotus.common.text.formatting import MISSING, amount, big, duration, plain, share
from lotus.reporters.base.console import LEFT, RIGHT, print_paragraph, print_table, rows_of
from native_map.events import pmu
from native_map.events.metrics import METRICS

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console

Cells = tuple[list[tuple[str, str]], list[list[str]]]
TITLE = "Counters of threads"
HARDWARE_TITLE = "Hardware counters of threads (user space)"
_SOFTWARE = {
    "task_clock": ("on a core", duration),
    "context_switches": ("switches", amount),
    "page_faults": ("page faults", amount),
}
_METRICS = {
    "ipc": "IPC",
    "frontend_bound": "front end",
    "backend_bound": "back end",
    "retiring": "retiring",
    "bad_speculation": "bad spec.",
    "frontend_stalled": "front stalled",
    "backend_stalled": "back stalled",
}


def write(console: "Console", counters: CounterSummary) -> None:
    """Print the tables and what is not in them."""
    for title, (headings, rows) in tables(counters):
        print_table(console, title, headings, rows, wrap_labels=True)
    for line in lines(counters):
        print_paragraph(console, "", line)


def tables(counters: CounterSummary) -> list[tuple[str, Cells]]:
    """Return the tables that there is something for, with their titles."""
    result = []
    if len(counters.rows):
        result.append((TITLE, software_cells(counters)))
    if counters.hardware:
        result.append((HARDWARE_TITLE, hardware_cells(counters)))
    return result


def software_cells(counters: CounterSummary) -> Cells:
    """Return columns and rows of what the kernel counts without hardware."""
    shown = {name: how for name, how in _SOFTWARE.items() if name in counters.rows}
    rows = [
        [*_thread(row), *(_cell(row[name], how) for name, (_, how) in shown.items())]
        for row in rows_of(counters.rows)
    ]
    return [*_THREADS, *((heading, RIGHT) for heading, _ in shown.values())], rows


def hardware_cells(counters: CounterSummary) -> Cells:
    """Return columns and rows of hardware events, and of the shares that they give."""
    events = [name for name in ("cycles", "instructions") if name in counters.rows]
    metrics = [name for name in _METRICS if name in counters.metrics]
    rows = []
    values = pd.concat([counters.rows, counters.metrics], axis=1)
    for row in rows_of(values):
        cells = [_cell(row[name], big) for name in events]
        cells += [_cell(row[name], share if METRICS[name].is_share else amount) for name in metrics]
        rows.append([_thread(row)[0], *cells, share(row["counted_share"])])
    headings = [("", LEFT), *((name, RIGHT) for name in events)]
    headings += [(_METRICS[name], RIGHT) for name in metrics]
    return [*headings, ("counted", RIGHT)], rows


_THREADS = [("", LEFT), ("threads", RIGHT)]


def _thread(row: dict[str, Any]) -> list[str]:
    several = row["processes"] > 1
    one, more = (
        ("main process", "main processes") if row["process"] == MAIN else ("worker", "workers")
    )
    place = f"main thread{'s' if several else ''}" if row["thread"] == FIRST else "other threads"
    return [f"{more if several else one}: {place}", amount(row["threads"])]


def _cell(value: float, how: Any) -> str:
    return MISSING if math.isnan(value) else str(how(value))


def lines(counters: CounterSummary) -> list[str]:
    """Return how far two clocks agree, and what was not counted."""
    result = [f"{plain(text)}." for text in counters.remarks]
    if counters.hardware and counters.uarch not in pmu.TRIED:
        result.append(f"{pmu.UNTRIED}.")
    return [*result, *(f"Counters: {plain(note)}." for note in counters.notes)]


def document(counters: CounterSummary) -> dict[str, Any]:
    """Return the values of --json."""
    metrics = [str(name) for name in counters.metrics]
    kinds = pd.concat([counters.rows, counters.metrics], axis=1)
    return {
        "uarch": counters.uarch,
        "rows": _documents(kinds, ("process", "thread", "processes"), counters.events, metrics),
        "processes": _documents(counters.each, ("pid", "thread"), counters.events, metrics),
        "clocks": counters.clocks,
        "remarks": list(counters.remarks),
        "notes": list(counters.notes),
    }


def _documents(
    table: pd.DataFrame, keys: tuple[str, ...], events: tuple[str, ...], metrics: list[str]
) -> list[dict[str, Any]]:
    return [
        {
            **{name: row[name] for name in (*keys, "threads", "counted_share")},
            "counts": {name: row[name] for name in events},
            "metrics": {name: row[name] for name in metrics},
        }
        for row in rows_of(table)
    ]
