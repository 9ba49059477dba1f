"""A comparison on a terminal, and as a document for programs: `lotus compare A B --json`.

`lotus schema compare` has all keys, which are only ever added within one `schema`. difference, low
and high are of b / a - 1 where `relative`, else of b - a in the line's unit; null: not known.
"""

from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

from lotus.analysis.common.columns import plain_value, records
from lotus.common.text.formatting import (
    MISSING,
    amount,
    big,
    duration,
    operation_name,
    plain,
    plural,
    share,
    shorten,
    size,
)
from lotus.common.version import __version__
from lotus.compare.comparison import (
    NOT_COMPARABLE,
    Comparison,
    ComparisonVerdict,
    LoaderComparison,
    Side,
)
from lotus.compare.differences import Fact
from lotus.compare.gate import RegressionGate
from lotus.compare.measures import (
    COUNTERS,
    CPU,
    GROUPS,
    LOOP,
    OPERATIONS,
    RUNS,
    MeasureLine,
    by_weight,
)
from lotus.compare.next_step import unclear
from lotus.reporters.base.console import LEFT, RIGHT, print_paragraph, print_table, rows_of
from lotus.reporters.base.display_names import shorten_apart
from lotus.reporters.compare import cpu_tables

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console

SCHEMA = 1
MARKS = (
    "better, worse, more, less: the difference is significant, corrected for the number of lines "
    "(Benjamini and Hochberg, 5 %). Without a word: an interval may exclude zero by chance. "
    "unclear: the interval is too wide to tell a difference from none."
)
UNCLEAR = "unclear"
ELSEWHERE = "They ran on different machines or cores: the machine is part of each difference."
_MOST = {LOOP: 10, OPERATIONS: 25, CPU: 10, COUNTERS: 30}  # lines of a group on a terminal
_USUAL, _MOST_LOADERS, _MOST_FACTS, _WIDEST_FACT = 20, 4, 20, 48
_COLOURS = {"faster": "green", "slower": "red", "no difference": "green", "same run": "green"}


# ── documents ────────────────────────────────────────────────────────────────────────────────


def document(
    comparisons: Sequence[Comparison],
    *,
    gate: RegressionGate | None = None,
    most: int | None = None,
) -> dict[str, Any]:
    """Return the document as JSON-able values; `most` limits the rows of tables of operations."""
    return {
        "schema": SCHEMA,
        "lotus": __version__,
        "comparisons": [_comparison(comparison, most) for comparison in comparisons],
        "gate": None
        if gate is None
        else {
            "metric": gate.metric,
            "above": gate.above,
            "failed": gate.failed,
            "texts": list(gate.texts),
        },
    }


def _comparison(comparison: Comparison, most: int | None) -> dict[str, Any]:
    return {
        "a": _side(comparison.a),
        "b": _side(comparison.b),
        "setting": comparison.setting or None,
        "verdict": _verdict(comparison.verdict),
        "other_machine": comparison.other_machine,
        "facts": [_fact(fact) for fact in comparison.facts],
        "lines": [_line(line) for line in comparison.lines],
        "loaders": [_loader(loader, most) for loader in comparison.loaders],
        "unmatched": [
            {"side": only.side, "loader": only.title, "count": only.count}
            for only in comparison.unmatched
        ],
        "notes": list(comparison.notes),
    }


def _side(side: Side) -> dict[str, Any]:
    paths = [str(getattr(run, "path", "")) for run in side.runs]
    return {"letter": side.letter, "name": side.name, "runs": paths}


def _verdict(verdict: ComparisonVerdict) -> dict[str, Any]:
    return {"kind": verdict.kind, "text": verdict.text, "commands": list(verdict.commands)}


def _fact(fact: Fact) -> dict[str, Any]:
    sides = {name: [plain_value(value) for value in getattr(fact, name)] for name in ("a", "b")}
    return {"kind": fact.kind, "what": fact.what, **sides}


def _line(line: MeasureLine) -> dict[str, Any]:
    difference = line.difference
    numbers = {
        "a": line.a,
        "b": line.b,
        "relative": difference.relative,
        "difference": difference.difference,
        "low": difference.low,
        "high": difference.high,
        "p": difference.p,
        "p_adjusted": line.adjusted,
        "different": line.different,
    }
    names = ("id", "group", "label", "unit", "per", "better")
    values = {name: getattr(line, name) for name in names}
    return {**values, **{name: plain_value(value) for name, value in numbers.items()}}


def _loader(loader: LoaderComparison, most: int | None) -> dict[str, Any]:
    return {
        "title": loader.title,
        "loaders": list(loader.numbers),
        "verdict": _verdict(loader.verdict),
        "facts": [_fact(fact) for fact in loader.facts],
        "lines": [_line(line) for line in loader.lines],
        "other_operations": records(loader.others[:most]),
        "added": records(loader.added[:most]),
        "removed": records(loader.removed[:most]),
        "causes": records(loader.causes),
        "paces": records(loader.paces),
        "notes": list(loader.notes),
        "cpus": cpu_tables.values(loader.cpus),
    }


# ── terminals ────────────────────────────────────────────────────────────────────────────────


def write(
    console: "Console", comparisons: Sequence[Comparison], *, gate: RegressionGate | None = None
) -> None:
    """Print comparisons; 80 columns are enough."""
    for place, comparison in enumerate(comparisons):
        if place:
            console.print()
        _write_comparison(console, comparison)
    if gate is not None:
        console.print()
        for line in gate.texts:
            print_paragraph(console, "", plain(line))


def _write_comparison(console: "Console", comparison: Comparison) -> None:
    for side in (comparison.a, comparison.b):
        runs = f" ({plural(len(side.runs), 'run')})" if len(side.runs) > 1 else ""
        console.print(f"{side.letter}: {plain(side.name)}{runs}", style="dim", soft_wrap=True)
    if comparison.setting:
        console.print(f"Setting: {plain(comparison.setting)}", style="dim")
    facts = [*comparison.facts, *(comparison.loaders[0].facts if comparison.loaders else [])]
    _facts(console, facts, comparison)
    for place, loader in enumerate(comparison.loaders[:_MOST_LOADERS]):
        console.print()
        if len(comparison.loaders) > 1:
            console.print(plain(loader.title), style="dim", soft_wrap=True)
        _verdict_line(console, loader.verdict)
        if place:
            _facts(console, loader.facts, comparison)
        for note in loader.notes:
            print_paragraph(console, "", plain(note) + ".")
        if loader.cpus is not None:
            cpu_tables.show(console, loader.cpus, (comparison.a.letter, comparison.b.letter))
        _lines(console, loader, comparison)
    if not comparison.loaders:
        console.print()
        _verdict_line(console, comparison.verdict)
    if len(comparison.loaders) > _MOST_LOADERS:
        omitted = len(comparison.loaders) - _MOST_LOADERS
        console.print(f"\nand {plural(omitted, 'smaller loader')}: see --json", style="dim")
    _table(console, "Whole runs", comparison.lines, comparison, None)
    for only in comparison.unmatched:
        side = comparison.a if only.side == "a" else comparison.b
        print_paragraph(console, "", plain(only.words(side.letter)))
    for note in comparison.notes:
        print_paragraph(console, "", plain(note) + ".")


def _verdict_line(console: "Console", verdict: ComparisonVerdict) -> None:
    style = f"bold {_COLOURS.get(verdict.kind, 'yellow')}"
    words = plain(verdict.text)
    console.print(words[0].upper() + words[1:], style=style)
    for line in verdict.commands:  # not cut, because users copy them
        console.print(f"  {plain(line)}", soft_wrap=True)


def _facts(console: "Console", facts: Sequence[Fact], comparison: Comparison) -> None:
    rows = [
        [shorten(plain(cell), _WIDEST_FACT) for cell in row]
        for row in fact_rows(facts[:_MOST_FACTS])
    ]
    columns = [("", LEFT), ("", LEFT), (comparison.a.letter, LEFT), (comparison.b.letter, LEFT)]
    print_table(console, "What differs besides speed", columns, rows)
    if len(facts) > _MOST_FACTS:
        console.print(f"  and {len(facts) - _MOST_FACTS} more: see --json", style="dim")
    if comparison.other_machine and rows:
        print_paragraph(console, "", ELSEWHERE)


def fact_rows(facts: Sequence[Fact]) -> list[list[str]]:
    """Return kind, fact, and the formatted values of both sides."""
    return [[fact.kind, fact.what, *(_values(fact, side) for side in (fact.a, fact.b))]
            for fact in facts]  # fmt: skip


def _values(fact: Fact, values: Sequence[Any]) -> str:
    def word(value: Any) -> str:
        if value is None:
            return MISSING
        if fact.what in ("memory", "read from storage"):
            return size(float(value))
        return str(value)

    text = ", ".join(word(value) for value in values[:4])
    return text + (", ..." if len(values) > 4 else "")


def _lines(console: "Console", loader: LoaderComparison, comparison: Comparison) -> None:
    for group in GROUPS:
        lines = [line for line in loader.lines if line.group == group]
        if group != LOOP:
            lines = by_weight(lines)
        of_samples = any(line.per == "sample" for line in lines)
        per = " (a sample)" if of_samples and group not in (LOOP, RUNS) else ""
        omitted = len(loader.others) if group == OPERATIONS else 0
        _table(
            console,
            group[0].upper() + group[1:] + per,
            lines,
            comparison,
            _MOST.get(group, _USUAL),
            omitted,
        )
        if group == OPERATIONS:
            for table, letter in (
                (loader.removed, comparison.a.letter),
                (loader.added, comparison.b.letter),
            ):
                _only(console, table, letter)
    comparable = loader.verdict.kind != NOT_COMPARABLE
    if comparable:
        console.print()
        print_paragraph(console, "", MARKS)
    rows = [
        [
            plain(operation_name(row["name"])),
            share(row["a"]),
            share(row["b"]),
            f"{100 * (row['b'] - row['a']):+.1f} pt",
        ]
        for row in rows_of(loader.causes.head(8))
    ]
    columns = [
        ("", LEFT),
        (comparison.a.letter, RIGHT),
        (comparison.b.letter, RIGHT),
        ("change", RIGHT),
    ]
    print_table(
        console, "What the loop's time is spent on (first runs)", columns, rows, wrap_labels=True
    )


def _only(console: "Console", table: Any, letter: str) -> None:
    if not len(table):
        return
    rows = rows_of(table.head(8))
    operations = shorten_apart([plain(operation_name(row["operation"])) for row in rows], 40)
    names = [
        name if isnan(row["ns"]) else f"{name} ({duration(row['ns'])} a sample)"
        for name, row in zip(operations, rows, strict=True)
    ]
    suffix = f" and {len(table) - 8} more" if len(table) > 8 else ""
    print_paragraph(console, "", f"Only in {letter}: {', '.join(names)}{suffix}.")


def _table(
    console: "Console",
    title: str,
    lines: Sequence[MeasureLine],
    comparison: Comparison,
    most: int | None,
    omitted: int = 0,
) -> None:
    visible = lines[:most]
    of_names = lines[0].group in (OPERATIONS, CPU, COUNTERS) if lines else False
    rows = [line_row(line) for line in visible]
    columns = [("", LEFT), (comparison.a.letter, RIGHT), (comparison.b.letter, RIGHT)]
    columns += [("change", RIGHT), ("95 % interval", RIGHT), ("", LEFT)]
    rows = [[plain(row[0]), *row[1:]] for row in rows]
    names_in = (0,) if of_names else ()
    print_table(console, title, columns, rows, names_in=names_in, wrap_labels=not of_names)
    omitted += len(lines) - len(visible)
    if omitted:
        console.print(f"  and {omitted:,} more: see --json", style="dim")


def line_row(line: MeasureLine) -> list[str]:
    """Return label, values, difference, interval and meaning, formatted."""
    difference = line.difference
    values = [value_words(line, value) for value in (line.a, line.b)]
    ends = (difference.low, difference.high)
    change = difference_words(line, difference.difference)
    interval = (
        " to ".join(difference_words(line, end) for end in ends)
        if difference.has_interval
        else MISSING
    )
    return [label_of(line), *values, change, interval, _judgement(line)]


def label_of(line: MeasureLine) -> str:
    """Return a line's label with the operation in it as it is shown elsewhere."""
    operation, colon, event = line.label.rpartition(": ")
    if line.group == COUNTERS and colon:
        return f"{operation_name(operation)}: {event}"
    return operation_name(line.label)


def _judgement(line: MeasureLine) -> str:
    if not line.different:
        return UNCLEAR if unclear(line.difference, line.unit) else ""
    up = line.difference.difference > 0
    if line.better == 0:
        return "more" if up else "less"
    return "better" if up == (line.better > 0) else "worse"


def value_words(line: MeasureLine, value: float) -> str:
    """Format a value in its unit."""
    if line.unit == "ns":
        return duration(value)
    if line.unit == "bytes":
        return size(value)
    if line.unit == "share":
        return share(value)
    if line.unit == "samples/s":
        return f"{amount(value)}/s"
    return f"{value:.3g}" if abs(value) < 1000 else big(value)


def difference_words(line: MeasureLine, value: float) -> str:
    """Format a difference in per cent, or in the line's own unit if it is absolute."""
    if value != value:
        return MISSING
    if line.difference.relative:
        return f"{value:+.1%}" if abs(value) < 10 else f"{1 + value:,.0f} times"
    if line.unit == "share":
        return f"{value * 100:+.1f} pt"
    return ("+" if value >= 0 else "") + value_words(line, value)
