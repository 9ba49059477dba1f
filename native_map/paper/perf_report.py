"""Imports the text of `perf report --stdio`, in columns or with `-t SEPARATOR`, for several events.

Counts come from the Period column (`--show-total-period`, `-F period`) if there is one, else from
the number of samples if all have one period, else from the share of the event count, which has a
resolution of 0.01 %. Rows of one function in several threads or commands are summed.
Format: Linux tools/perf/ui/stdio/hist.c.
"""

import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pandas as pd

from native_map.errors import UnusableError
from native_map.paper.function_counts import (
    MAX_CELLS,
    MAX_COLUMNS,
    Profile,
    clean,
    decimal_mark,
    function_of,
    gathered,
    lines_of,
    module_of,
    number,
    slug,
)

MAX_EVENTS = 200

_SAMPLES = re.compile(r"^# Samples: *([0-9.]+[KMG]?) +(of events?) '([^']{1,300})'")
_COUNT = re.compile(r"^# Event count \(approx\.\): *([0-9]{1,30})")
_LOST = re.compile(r"^# Total Lost Samples: *([0-9]{1,20})")
_TITLES = re.compile(r"^# *(?:Children|Overhead) *(.)")
_UNDERLINE = re.compile(r"\.\.+(?: +\.\.+)*")
_ROW = re.compile(r"^ *[0-9]{1,3}[.,][0-9]+ ?%")
# `[.] name`, and with -v `0x1af8c2           B [.] name`
_SYMBOL = re.compile(r"^(?:0x[0-9a-f]+ +\S )?\[[.kgGuH]\] ")
_ROUNDED = "{} is rounded to 0.01 % of its total; --show-total-period gives exact counts"
_COLUMNS = {
    "overhead": "share",
    "self": "share",
    "samples": "samples",
    "period": "period",
    "shared object": "module",
    "symbol": "function",
}
_EVENTS = {
    "cpu-clock": "cpu_ns",
    "task-clock": "cpu_ns",
    "cycles": "cycles",
    "cpu-cycles": "cycles",
    "instructions": "instructions",
    "slots": "slots",
}


@dataclass
class _Section:
    """The section of the report on one event."""

    event: str
    count: float = math.nan
    samples: float = math.nan
    columns: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)


def detect(text: str) -> bool:
    """Return True if a text is the output of perf report --stdio."""
    return any(_SAMPLES.match(line) for line in io.StringIO(text[:400_000]))


def parse(text: str, source: str = "the report") -> Profile:
    """Return the functions of a report, kind 'perf-report'; each event is an additive column."""
    notes: list[str] = []
    sections = _sections(text, source, notes)
    mark = decimal_mark((cell for s in sections for row in s.rows for cell in row[:2]), source)
    parts: list[pd.DataFrame] = []
    totals: dict[str, float] = {}
    damaged = 0
    for section in sections:
        metric = _metric(section.event)
        if metric in totals:
            notes.append(f"a second section of {metric} ({clean(section.event)}) is left out")
            continue
        columns = section.columns
        part = pd.DataFrame()
        cells = {name: [row[i] for row in section.rows] for i, name in enumerate(columns) if name}
        modules = cells.get("module", [""] * len(section.rows))
        part["module"] = [module_of(cell) for cell in modules]
        part["function"] = [
            function_of(_SYMBOL.sub("", cell.strip())) for cell in cells["function"]
        ]
        parsed = [number(cell, mark) for cell in cells["period" if "period" in cells else "share"]]
        damaged += sum(unit == "damaged" for _, unit in parsed)
        values = pd.Series([value for value, _ in parsed], dtype="float64")
        if "samples" in cells:
            name = "samples" if len(sections) == 1 else f"{metric}_samples"
            part[name] = [number(cell, mark)[0] for cell in cells["samples"]]
            total = section.samples if section.samples > 0 else part[name].sum()
            totals[name] = total
            if "period" not in cells and ((part[name] / total - values).abs() < 6e-5).all():
                # With one period, samples are more exact than a share of two decimals.
                values = part[name] / total
            elif "period" not in cells:
                notes.append(_ROUNDED.format(metric))
        elif "period" not in cells:
            notes.append(_ROUNDED.format(metric))
        part[metric] = values if "period" in cells else values * section.count
        totals[metric] = section.count
        parts.append(part)
    if damaged:
        notes.append(f"{damaged} cells are not numbers and were left out")
    rows = pd.concat(parts, ignore_index=True)
    return gathered("perf-report", rows, (), notes, source, totals)


def _metric(event: str) -> str:
    """`cpu_core/cycles/u` -> cycles; the CPU clocks count nanoseconds; others are unchanged."""
    name = event
    if re.fullmatch(r"[\w-]+/[\w.-]+/\w*", event):
        name = event.split("/")[1]
    name = name.split(":")[0] if re.fullmatch(r"[\w.-]+:[ukhHGppPSD]+", name) else name
    return _EVENTS.get(name, slug(name))


def _sections(text: str, source: str, notes: list[str]) -> list[_Section]:
    sections: list[_Section] = []
    lost = skipped = 0
    lines = lines_of(text, source)
    for line in lines:
        if match := _LOST.match(line):
            lost = max(lost, int(match[1]))
        elif match := _SAMPLES.match(line):
            if match[2] == "of events":
                raise UnusableError(
                    f"{source} shows its events as one group; "
                    "type: perf report --stdio -n --no-group > report.txt"
                )
            if len(sections) == MAX_EVENTS:
                raise UnusableError(f"{source} has over {MAX_EVENTS} events; report fewer with -e")
            sections.append(_Section(match[3]))
            if match[1].isdigit():  # above 9,999 perf rounds to `12K`
                sections[-1].samples = float(match[1])
        elif sections and (match := _COUNT.match(line)):
            sections[-1].count = float(match[1])
        elif sections and not sections[-1].columns and _TITLES.match(line):
            skipped += _table(sections[-1], line, lines, source)
    full = [section for section in sections if section.rows]
    if not full:
        raise UnusableError(
            f"{source} holds no samples; record again, then: perf report --stdio -n"
        )
    if lost:
        notes.append(f"{lost} samples were lost in recording: true counts are higher")
    if skipped:
        notes.append(f"{skipped} damaged lines are left out")
    if len(full) < len(sections):
        notes.append(f"{len(sections) - len(full)} events without samples are left out")
    return full


def _table(section: _Section, header: str, lines: Iterator[str], source: str) -> int:
    """Fill in the rows of one event; return the number of damaged lines."""
    bounds: list[tuple[int, int | None]] = []
    separator = ""
    first = next(lines, "")
    # Only the column form underlines its titles; the dots show where each column is.
    if _UNDERLINE.fullmatch(first[2:].strip()) and first.startswith("# "):
        starts = [match.start() for match in re.finditer(r"(?<![.])\.\.+", first)]
        bounds = list(zip(starts, [*starts[1:], None], strict=True))
        titles = [header[a:b].lstrip("#").strip().lower() for a, b in bounds]
        pending = ""
    else:
        match = _TITLES.match(header)
        separator = match[1] if match else ""
        titles = [title.strip().lower() for title in header[1:].split(separator)] if match else []
        pending = first
    columns = [_COLUMNS.get(title, "") for title in titles[:MAX_COLUMNS]]
    if ("share" not in columns and "period" not in columns) or "function" not in columns:
        raise UnusableError(
            f"{source} lacks the columns of shares and symbols; "
            "type: perf report --stdio -n --sort dso,sym > report.txt"
        )
    section.columns = columns
    last = columns.index("function")
    skipped = 0
    blanks = 0
    while True:
        line = pending or next(lines, "\0")
        pending = ""
        if line == "\0" or (line.startswith("#") and line.strip() != "#"):
            break
        if not line.strip():
            # Two empty lines end the section; one separates the entries of call graphs.
            blanks += 1
            if blanks == 2:
                break
            continue
        blanks = 0
        if line.strip() == "#" or not _ROW.match(line):
            continue  # the tree of a call graph
        if separator:
            cells = line.split(separator, len(columns) - 1)
        else:
            cells = [line[a:b].strip() for a, b in bounds]
        if len(cells) != len(columns) or not cells[last].strip():
            skipped += 1
            continue
        if separator == ",":
            # perf writes the separator as a dot inside names: `blend<float. long>`.
            cells[last] = cells[last].replace(". ", ", ")
        if len(section.rows) * len(columns) > MAX_CELLS:
            raise UnusableError(
                f"{source} has too many rows; report functions only: --sort dso,sym"
            )
        section.rows.append([cell.strip() for cell in cells])
    return skipped
