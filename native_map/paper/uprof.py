"""Imports AMD uProf's report CSV, whose functions are in the section `100 HOTTEST FUNCTIONS`.

The list ends at a hundred functions; the section on processes gives the total. CPU_TIME is taken as
samples of the interval that the report states. Intervals other than 1 ms, at which samples and
milliseconds are equal, are untested: all exports seen (4.0) have 1 ms.
"""

import math

import pandas as pd

from native_map.errors import UnusableError
from native_map.paper.function_counts import (
    MAX_COLUMNS,
    Profile,
    clean,
    csv_rows,
    decimal_mark,
    function_of,
    gathered,
    module_of,
    number,
    slug,
    unused,
)

_NAMED = {
    "CYCLES_NOT_IN_HALT": "cycles",
    "RETIRED_INST": "instructions",
}


def detect(text: str) -> bool:
    """Return True if a text is a report of AMD uProf."""
    head = text[:20_000]
    return "AMD uProf" in head or "HOTTEST FUNCTIONS" in head


def parse(text: str, source: str = "the export") -> Profile:
    """Return the functions of a uProf report, kind 'uprof'. Raises UnusableError if it has none."""
    notes: list[str] = []
    sections, interval_ns = _sections(text, source)
    functions = sections.get("FUNCTION")
    if not functions:
        raise UnusableError(
            f"{source} has no section of hottest functions; "
            "type: AMDuProfCLI report -i SESSION --detail"
        )
    header = [cell.strip() for cell in functions[0]]
    last = len(header) - 1
    if header[-1].lower() != "module" or not 2 <= last < MAX_COLUMNS:
        raise UnusableError(f"{source}: its table of functions names no module; export it again")
    body = [row for row in functions[1:] if len(row) == len(header) and row[0].strip()]
    if len(body) < len(functions) - 1:
        notes.append(f"{len(functions) - 1 - len(body)} lines with missing cells are left out")
    mark = decimal_mark((cell for row in body for cell in row[1:last]), source)
    data: dict[str, list[float]] = {}
    means: list[str] = []
    totals: dict[str, float] = {}
    damaged = 0
    for i in range(1, last):
        parsed = [number(row[i], mark) for row in body]
        damaged += sum(unit == "damaged" for _, unit in parsed)
        event, _, unit = header[i].partition(" (")
        factor, name = 1.0, _NAMED.get(event, slug(event))
        share = unit.startswith("%") or any(u == "share" for _, u in parsed)
        if share:
            signed = any(u == "share" for _, u in parsed)
            factor, name = 1.0 if signed else 0.01, f"{slug(event)}_share"
        elif event == "CPU_TIME":
            name = "cpu_ns"
            scale = number(f"1 {unit.rstrip(') ')}") if unit else (math.nan, "")
            if scale[1] == "ns":
                factor = scale[0]
            else:
                factor = interval_ns.get(event, 1e6)
                data["samples"] = [value for value, _ in parsed]
                if event not in interval_ns:
                    notes.append("the report states no sampling interval: 1 ms is assumed")
        else:
            # Not seen in a real report; uProf can write either.
            notes.append(
                f"{clean(event)[:60]} is taken as it stands: events, or samples of its interval"
            )
        name = unused(name, data)
        data[name] = [value * factor for value, _ in parsed]
        if share:
            means.append(name)
        process_total = _total(sections.get("PROCESS", []), header[i], mark)
        if not math.isnan(process_total):
            totals[name] = process_total * factor
            if name == "cpu_ns" and "samples" in data:
                totals["samples"] = process_total
    if damaged:
        notes.append(f"{damaged} cells are not numbers and were left out")
    rows = pd.DataFrame(data)
    modules = [module_of(row[last]) for row in body]
    rows.insert(0, "function", [_function(r[0], m) for r, m in zip(body, modules, strict=True)])
    rows.insert(0, "module", modules)
    return gathered("uprof", rows, means, notes, source, totals)


def _sections(text: str, source: str) -> tuple[dict[str, list[list[str]]], dict[str, float]]:
    """Return the tables by their header's first cell, and the interval in ns of timed events."""
    tables: dict[str, list[list[str]]] = {}
    interval: dict[str, float] = {}
    current: list[list[str]] | None = None
    for row in csv_rows(text, ",", source):
        if not any(cell.strip() for cell in row):
            current = None
            continue
        first = row[0].strip()
        if current is None and first in ("FUNCTION", "PROCESS", "MODULE", "THREAD"):
            # Of several tables of one kind (by process, by module) the first has the totals.
            current = [] if first in tables else tables.setdefault(first, [])
        if current is not None:
            current.append(row)
        elif not first and len(row) >= 3:
            value, unit = number(row[2])
            if unit == "ns" and value > 0:
                interval[row[1].strip()] = value
    return tables, interval


def _total(rows: list[list[str]], event: str, mark: str) -> float:
    """Return the sum of an event over processes; NaN if the report does not say."""
    header = [cell.strip() for cell in rows[0]] if rows else []
    if event not in header:
        return math.nan
    at = header.index(event)
    return sum((number(row[at], mark)[0] for row in rows[1:] if len(row) > at), start=0.0)


def _function(text: str, module: str) -> str:
    # Without symbols uProf writes `libgomp.so.1!0x00018b10`.
    name = function_of(text)
    return name[len(module) + 1 :] if module and name.startswith(f"{module}!0x") else name
