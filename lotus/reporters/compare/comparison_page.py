"""A comparison as a page: the verdict, what differs, intervals of all differences, throughput."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lotus.analysis.common.columns import records
from lotus.common.text.formatting import (
    MISSING,
    amount,
    duration,
    operation_name,
    plain,
    share,
    shorten,
)
from lotus.compare.comparison import Comparison, LoaderComparison
from lotus.compare.gate import RegressionGate
from lotus.compare.measures import GROUPS, LOOP, MeasureLine, by_weight
from lotus.reporters.base.console import LEFT, RIGHT
from lotus.reporters.base.page import COLOURS, Chart, Section, Table
from lotus.reporters.base.page import save as save_page
from lotus.reporters.compare import comparison_report as words
from lotus.reporters.compare import cpu_tables

_MOST_POINTS = 30  # of a chart of differences: more cannot be read
_MOST_LOADERS = 4
_MOST_OPERATIONS = 1000  # that the page keeps; all of them are in --json
_A, _B = COLOURS[0], COLOURS[1]
_SYMBOLS = (
    ("better", COLOURS[4], "triangle-up"),
    ("worse", COLOURS[5], "triangle-down"),
    ("different", COLOURS[3], "diamond"),
    ("no significant difference", COLOURS[7], "circle"),
)
_LINE_COLUMNS = [("", LEFT), ("A", RIGHT), ("B", RIGHT), ("change", RIGHT)]
_LINE_COLUMNS += [("95 % interval", RIGHT), ("", LEFT)]


def save(path: Path, comparisons: Sequence[Comparison], gate: RegressionGate | None = None) -> None:
    """Write the page. Raises LotusError if the file cannot be written."""
    heading_section = heading(comparisons, gate=gate)
    document = words.document(comparisons, gate=gate, most=_MOST_OPERATIONS)
    save_page(path, heading_section.title, heading_section, sections(comparisons), document)


def heading(comparisons: Sequence[Comparison], *, gate: RegressionGate | None = None) -> Section:
    """Return the verdicts, the sides, and the gate's decision."""
    parts: list[str | Table | Chart] = []
    for comparison in comparisons:
        name = f"{comparison.setting}: " if comparison.setting else ""
        parts += [name + comparison.verdict.text, *comparison.verdict.commands]
        if comparison.other_machine:
            parts.append(words.ELSEWHERE)
    baseline = comparisons[0].a
    other_sides = dict.fromkeys(
        (comparison.b.letter, comparison.b.name) for comparison in comparisons
    )
    sides = [(baseline.letter, baseline.name), *other_sides]
    parts.append(", ".join(f"{letter}: {name}" for letter, name in sides))
    parts += gate.texts if gate is not None else []
    names = dict.fromkeys(comparison.b.name for comparison in comparisons)
    return Section("Compare " + " and ".join([baseline.name, *names]), parts)


def sections(comparisons: Sequence[Comparison]) -> list[Section]:
    """Return the charts and tables of each comparison."""
    several = len(comparisons) > 1
    return [
        section
        for place, comparison in enumerate(comparisons)
        for section in _sections(place, comparison, several)
    ]


def _sections(place: int, comparison: Comparison, several: bool) -> list[Section]:
    name = comparison.setting or (
        f"{comparison.b.letter} against {comparison.a.letter}" if several else ""
    )
    before = f"{name}: " if name else ""
    facts = [*comparison.facts, *(comparison.loaders[0].facts if comparison.loaders else [])]
    columns = [("", LEFT), ("", LEFT), (comparison.a.letter, LEFT), (comparison.b.letter, LEFT)]
    parts: list[str | Table | Chart] = ["Nothing else was found to differ."]
    if facts:
        parts = [Table(columns, words.fact_rows(facts))]
    sections = [Section(f"{before}What differs besides speed", parts)]
    for number, loader in enumerate(comparison.loaders[:_MOST_LOADERS]):
        title = before + ("Differences" if len(comparison.loaders) == 1 else loader.title)
        sections.append(Section(title, _loader(f"{place}-{number}", loader, comparison)))
    remaining: list[str | Table | Chart] = [f"{note}." for note in comparison.notes]
    remaining += [
        only.words((comparison.a if only.side == "a" else comparison.b).letter)
        for only in comparison.unmatched
    ]
    if comparison.lines:
        remaining.append(_table(comparison.lines, comparison))
    if remaining:
        sections.append(Section(f"{before}Whole runs", remaining))
    return sections


def _loader(
    name: str, loader: LoaderComparison, comparison: Comparison
) -> list[str | Table | Chart]:
    parts: list[str | Table | Chart] = [loader.verdict.text, *(f"{note}." for note in loader.notes)]
    if loader.cpus is not None:
        letters = (comparison.a.letter, comparison.b.letter)
        parts += cpu_tables.parts(loader.cpus, letters)
    parts.append(_forest(f"differences-{name}", loader, comparison))
    if len(loader.paces):
        parts.append(_paces(f"throughput-{name}", loader, comparison))
    parts.append(words.MARKS)
    for group in GROUPS:
        lines = [line for line in loader.lines if line.group == group]
        if lines:
            parts.append(group[0].upper() + group[1:])
            parts.append(_table(lines if group == LOOP else by_weight(lines), comparison))
    for table, side in ((loader.removed, comparison.a), (loader.added, comparison.b)):
        if len(table):
            rows = [
                [
                    operation_name(row["parent"]),
                    operation_name(row["operation"]),
                    MISSING if row["ns"] is None else duration(float(row["ns"])),
                ]
                for row in records(table[:_MOST_OPERATIONS])
            ]
            parts.append(f"Operations that only {side.letter} has")
            parts.append(Table([("in", LEFT), ("operation", LEFT), ("a sample", RIGHT)], rows))
    if len(loader.causes):
        causes = records(loader.causes)
        rows = [[operation_name(row["name"]), share(row["a"]), share(row["b"])] for row in causes]
        columns = [("", LEFT), (comparison.a.letter, RIGHT), (comparison.b.letter, RIGHT)]
        parts += ["What the loop's time is spent on (first runs)", Table(columns, rows)]
    return parts


def _table(lines: Sequence[MeasureLine], comparison: Comparison) -> Table:
    return Table(_columns(comparison), [words.line_row(line) for line in lines])


def _columns(comparison: Comparison) -> list[tuple[str, str]]:
    columns = list(_LINE_COLUMNS)
    columns[1:3] = [(comparison.a.letter, RIGHT), (comparison.b.letter, RIGHT)]
    return columns


def _forest(name: str, loader: LoaderComparison, comparison: Comparison) -> Chart:
    """Return dots with intervals for all relative differences, those of most weight on top."""
    comparable = [
        line for line in loader.lines if line.difference.relative and line.difference.has_interval
    ]
    first = [line for line in comparable if line.group == LOOP]
    # Times come first, because counts have no weight in the loop.
    later = by_weight([line for line in comparable if line.group != LOOP and line.unit == "ns"])
    later += [line for line in comparable if line.group != LOOP and line.unit != "ns"]
    points = [*first, *later][:_MOST_POINTS]
    labels = [_name(place, line) for place, line in enumerate(points)]
    data: list[dict[str, Any]] = []
    for text, colour, symbol in _SYMBOLS:
        mine = [k for k, line in enumerate(points) if _kind(line) == text]
        differences = [points[k].difference for k in mine]
        if not mine:
            continue
        data.append(
            {
                "type": "scatter", "mode": "markers", "name": text,
                "x": [100 * found.difference for found in differences],
                "y": [labels[k] for k in mine],
                "marker": {"color": colour, "symbol": symbol, "size": 10},
                "error_x": {
                    "type": "data", "symmetric": False, "color": colour, "thickness": 1.5,
                    "array": [100 * (found.high - found.difference) for found in differences],
                    "arrayminus": [100 * (found.difference - found.low) for found in differences],
                },
                "hovertemplate": "%{y}<br>%{x:.1f} %<extra></extra>",
            }
        )  # fmt: skip
    layout = {
        "height": 140 + 24 * len(points),
        "margin": {"l": 190, "r": 20, "t": 30, "b": 50},
        "xaxis": {
            "title": {"text": f"{comparison.b.letter} against {comparison.a.letter}, per cent"},
            "zeroline": True,
            "range": _range(points),
        },
        "yaxis": {"autorange": "reversed", "type": "category", "categoryorder": "array",
                  "categoryarray": labels},
        "legend": {"orientation": "h", "y": 1.05},
    }  # fmt: skip
    omitted = len(loader.lines) - len(points)
    note = "A dot is the difference, its line the 95 % interval. " + words.MARKS
    if omitted:
        note += f" {omitted} lines are not in it: no interval in per cent, or of less weight."
    return Chart(
        name, "Differences", {"data": data, "layout": layout}, _table(points, comparison), note
    )


def _kind(line: MeasureLine) -> str:
    if not line.different:
        return "no significant difference"
    if line.better == 0:
        return "different"
    return "better" if line.slowdown[0] < 0 else "worse"


def _name(place: int, line: MeasureLine) -> str:
    """Return a name with a number if two would be equal; plotly merges equal names."""
    where = "" if line.group == LOOP else f" ({line.group})"
    return f"{place + 1}. {shorten(plain(words.label_of(line)), 24)}{where}"


def _range(lines: Sequence[MeasureLine]) -> list[float]:
    """Return a range that contains all significant differences, whatever the width of other
    intervals.
    """
    ends = [
        (line.different, max(abs(100 * line.difference.low), abs(100 * line.difference.high)))
        for line in lines
    ]
    usual = sorted(end for _, end in ends)[len(ends) // 2] if ends else 1.0
    furthest = max((end for different, end in ends if different), default=0.0)
    reach = 1.1 * max(usual, min(furthest, 500.0), 1.0)
    return [-reach, reach]


def _paces(name: str, loader: LoaderComparison, comparison: Comparison) -> Chart:
    table = loader.paces
    data: list[dict[str, Any]] = []
    rows: list[list[str]] = []
    runs = table[["side", "run"]].drop_duplicates()
    for side, number in zip(runs["side"].tolist(), runs["run"].tolist(), strict=True):
        mine = table[(table["side"] == side) & (table["run"] == number)]
        letter = comparison.a.letter if side == "a" else comparison.b.letter
        text = f"{letter}, run {number + 1}" if runs["side"].tolist().count(side) > 1 else letter
        data.append(
            {
                "type": "scatter", "mode": "lines", "name": text,
                "x": mine["batch"].tolist(), "y": mine["samples_per_s"].tolist(),
                "line": {"color": _A if side == "a" else _B, "width": 1.5,
                         "dash": "solid" if side == "a" else "dot"},
            }
        )  # fmt: skip
        points = zip(mine["batch"].tolist(), mine["samples_per_s"].tolist(), strict=True)
        rows += [[text, str(batch), amount(pace)] for batch, pace in points]
    layout = {
        "height": 360,
        "xaxis": {"title": {"text": "batch"}},
        "yaxis": {"title": {"text": "samples/s"}, "rangemode": "tozero"},
        "legend": {"orientation": "h"},
    }
    columns = [("", LEFT), ("batch", RIGHT), ("samples/s", RIGHT)]
    note = "Each point is the mean of neighbouring batches where there are many."
    figure = {"data": data, "layout": layout}
    return Chart(name, "Throughput over batches", figure, Table(columns, rows), note)
