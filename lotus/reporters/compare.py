"""A comparison on a terminal, and as a document for programs: `lotus compare A B --json`.

{
  "schema": 1, "lotus",
  "comparisons": [{
    "a": {"letter", "name", "runs": [paths]}, "b": the same,
    "setting": of a sweep, or null,
    "verdict": {"kind", "text"}, "other_machine",
    "facts": [{"kind", "what", "a": [values], "b": [values]}],    # what differs besides speed
    "lines": [...],                                               # of whole runs
    "loaders": [{
      "title", "loaders": [of a, of b], "verdict", "facts",
      "lines": [{"id", "group", "label", "unit", "per", "better", "a", "b", "relative",
                 "difference", "low", "high", "p", "p_adjusted", "different"}],
      "other_operations": [...], "added": [...], "removed": [...], "causes": [...],
      "paces": [...], "notes": [...]
    }],
    "unmatched": [{"side", "loader"}], "notes": [...]
  }],
  "gate": {"metric", "above", "failed", "texts": [...]} or null   # --fail-above
}

kind of a verdict: faster, slower, no difference, same run, unknown, not comparable. difference, low
and high are of b / a - 1 where `relative`, else of b - a in the line's unit; null: not known.
`unit`: samples/s, ns, bytes, count, share, ratio. Keys are only ever added within one `schema`.
"""

import json
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

import lotus
from lotus.analysis.columns import plain_value, records
from lotus.analysis.compare import Comparison, LoaderComparison, Side, Verdict
from lotus.analysis.compare_facts import Fact
from lotus.analysis.compare_gate import Gate
from lotus.analysis.compare_lines import COUNTERS, CPU, GROUPS, LOOP, OPERATIONS, RUNS, Line
from lotus.reporters.console import LEFT, RIGHT, print_paragraph, print_table, rows_of
from lotus.reporters.words import (
    MISSING,
    amount,
    big,
    duration,
    plain,
    plural,
    share,
    shorten,
    size,
)

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console

SCHEMA = 1
MARKS = (
    "better, worse, more and less stand where a difference holds after the correction for the "
    "number of lines (Benjamini and Hochberg, 5 %); other intervals may miss zero by chance."
)
ELSEWHERE = "They ran on different machines or cores: the machine is part of each difference."
_MOST = {LOOP: 10, OPERATIONS: 25, CPU: 10, COUNTERS: 30}  # lines of a group on a terminal
_USUAL, _MOST_LOADERS, _MOST_FACTS, _WIDEST_FACT = 20, 4, 20, 48
_COLOURS = {"faster": "green", "slower": "red", "no difference": "green", "same run": "green"}


# ── for programs ─────────────────────────────────────────────────────────────────────────────


def document(
    found: Sequence[Comparison], gate: Gate | None = None, most: int | None = None
) -> dict[str, Any]:
    """The document as JSON-able values; `most` rows of tables of operations (all of them)."""
    return {
        "schema": SCHEMA,
        "lotus": lotus.__version__,
        "comparisons": [_comparison(one, most) for one in found],
        "gate": None
        if gate is None
        else {
            "metric": gate.metric,
            "above": gate.above,
            "failed": gate.failed,
            "texts": list(gate.texts),
        },
    }


def text(found: Sequence[Comparison], gate: Gate | None = None) -> str:
    """The document as JSON text: ASCII, so that no name in it can steer a terminal."""
    return json.dumps(document(found, gate), indent=2, allow_nan=False)


def _comparison(one: Comparison, most: int | None) -> dict[str, Any]:
    return {
        "a": _side(one.a),
        "b": _side(one.b),
        "setting": one.setting or None,
        "verdict": _verdict(one.verdict),
        "other_machine": one.other_machine,
        "facts": [_fact(fact) for fact in one.facts],
        "lines": [_line(line) for line in one.lines],
        "loaders": [_loader(loader, most) for loader in one.loaders],
        "unmatched": [{"side": side, "loader": title} for side, title in one.unmatched],
        "notes": list(one.notes),
    }


def _side(side: Side) -> dict[str, Any]:
    paths = [str(getattr(run, "path", "")) for run in side.runs]
    return {"letter": side.letter, "name": side.name, "runs": paths}


def _verdict(verdict: Verdict) -> dict[str, str]:
    return {"kind": verdict.kind, "text": verdict.text}


def _fact(fact: Fact) -> dict[str, Any]:
    sides = {name: [plain_value(value) for value in getattr(fact, name)] for name in ("a", "b")}
    return {"kind": fact.kind, "what": fact.what, **sides}


def _line(line: Line) -> dict[str, Any]:
    found = line.difference
    numbers = {
        "a": line.a,
        "b": line.b,
        "relative": found.relative,
        "difference": found.difference,
        "low": found.low,
        "high": found.high,
        "p": found.p,
        "p_adjusted": line.adjusted,
        "different": line.different,
    }
    names = ("id", "group", "label", "unit", "per", "better")
    known = {name: getattr(line, name) for name in names}
    return {**known, **{name: plain_value(value) for name, value in numbers.items()}}


def _loader(one: LoaderComparison, most: int | None) -> dict[str, Any]:
    return {
        "title": one.title,
        "loaders": list(one.numbers),
        "verdict": _verdict(one.verdict),
        "facts": [_fact(fact) for fact in one.facts],
        "lines": [_line(line) for line in one.lines],
        "other_operations": records(one.others[:most]),
        "added": records(one.added[:most]),
        "removed": records(one.removed[:most]),
        "causes": records(one.causes),
        "paces": records(one.paces),
        "notes": list(one.notes),
    }


# ── for a person ─────────────────────────────────────────────────────────────────────────────


def write(found: Sequence[Comparison], file: IO[str], gate: Gate | None = None) -> None:
    """Print comparisons; 80 columns are enough."""
    from rich.console import Console

    console = Console(file=file, highlight=False, markup=False, emoji=False)
    for place, one in enumerate(found):
        if place:
            console.print()
        _write_one(console, one)
    if gate is not None:
        console.print()
        for line in gate.texts:
            print_paragraph(console, "", plain(line))


def _write_one(console: "Console", one: Comparison) -> None:
    for side in (one.a, one.b):
        runs = f" ({plural(len(side.runs), 'run')})" if len(side.runs) > 1 else ""
        console.print(f"{side.letter}: {plain(side.name)}{runs}", style="dim", soft_wrap=True)
    if one.setting:
        console.print(f"Setting: {plain(one.setting)}", style="dim")
    facts = [*one.facts, *(one.loaders[0].facts if one.loaders else [])]
    _facts(console, facts, one)
    for place, loader in enumerate(one.loaders[:_MOST_LOADERS]):
        console.print()
        if len(one.loaders) > 1:
            console.print(plain(loader.title), style="dim", soft_wrap=True)
        _verdict_line(console, loader.verdict)
        if place:
            _facts(console, loader.facts, one)
        for note in loader.notes:
            print_paragraph(console, "", plain(note) + ".")
        _lines(console, loader, one)
    if not one.loaders:
        console.print()
        _verdict_line(console, one.verdict)
    if len(one.loaders) > _MOST_LOADERS:
        more = len(one.loaders) - _MOST_LOADERS
        console.print(f"\n{plural(more, 'smaller loader')} more: see --json", style="dim")
    _table(console, "Whole runs", one.lines, one, None)
    for side_, title in one.unmatched:
        side = one.a if side_ == "a" else one.b
        print_paragraph(console, "", f"Only {side.letter} has the loader {plain(title)}.")
    for note in one.notes:
        print_paragraph(console, "", plain(note) + ".")


def _verdict_line(console: "Console", verdict: Verdict) -> None:
    style = f"bold {_COLOURS.get(verdict.kind, 'yellow')}"
    words = plain(verdict.text)
    console.print(words[0].upper() + words[1:], style=style, soft_wrap=True)


def _facts(console: "Console", facts: Sequence[Fact], one: Comparison) -> None:
    rows = [
        [shorten(plain(cell), _WIDEST_FACT) for cell in row]
        for row in fact_rows(facts[:_MOST_FACTS])
    ]
    columns = [("", LEFT), ("", LEFT), (one.a.letter, LEFT), (one.b.letter, LEFT)]
    print_table(console, "What differs besides speed", columns, rows)
    if len(facts) > _MOST_FACTS:
        console.print(f"  and {len(facts) - _MOST_FACTS} more: see --json", style="dim")
    if one.other_machine and rows:
        print_paragraph(console, "", ELSEWHERE)


def fact_rows(facts: Sequence[Fact]) -> list[list[str]]:
    """Kind, what, and the values of both sides as a person reads them."""
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


def _lines(console: "Console", loader: LoaderComparison, one: Comparison) -> None:
    for group in GROUPS:
        lines = [line for line in loader.lines if line.group == group]
        if group != LOOP:
            lines = by_weight(lines)
        per = " (a sample)" if group not in (LOOP, RUNS) else ""
        more = len(loader.others) if group == OPERATIONS else 0
        _table(
            console, group[0].upper() + group[1:] + per, lines, one, _MOST.get(group, _USUAL), more
        )
        if group == OPERATIONS:
            for table, letter in ((loader.removed, one.a.letter), (loader.added, one.b.letter)):
                _only(console, table, letter)
    console.print()
    print_paragraph(console, "", MARKS)
    rows = [
        [plain(row["name"]), share(row["a"]), share(row["b"]), f"{row['b'] - row['a']:+.1%}"]
        for row in rows_of(loader.causes.head(8))
    ]
    columns = [("", LEFT), (one.a.letter, RIGHT), (one.b.letter, RIGHT), ("points", RIGHT)]
    print_table(console, "What the loop's time is owed to (first runs)", columns, rows)


def by_weight(lines: Sequence[Line]) -> list[Line]:
    """What is different first, then by how much time or how many counts it is."""
    return sorted(lines, key=lambda line: (not line.different, -abs(line.b - line.a)))


def _only(console: "Console", table: Any, letter: str) -> None:
    if not len(table):
        return
    names = [
        f"{shorten(plain(row['operation']), 40)} ({duration(row['ns'])} a sample)"
        for row in rows_of(table.head(8))
    ]
    more = f" and {len(table) - 8} more" if len(table) > 8 else ""
    print_paragraph(console, "", f"Only in {letter}: {', '.join(names)}{more}.")


def _table(
    console: "Console",
    title: str,
    lines: Sequence[Line],
    one: Comparison,
    most: int | None,
    more: int = 0,
) -> None:
    shown = lines[:most]
    rows = [line_row(line) for line in shown]
    columns = [("", LEFT), (one.a.letter, RIGHT), (one.b.letter, RIGHT)]
    columns += [("change", RIGHT), ("95 % interval", RIGHT), ("", LEFT)]
    rows = [[shorten(plain(row[0]), 44), *row[1:]] for row in rows]
    print_table(console, title, columns, rows)
    more += len(lines) - len(shown)
    if more:
        console.print(f"  and {more:,} more: see --json", style="dim")


def line_row(line: Line) -> list[str]:
    """Label, values, difference, interval, and what it means, as a person reads them."""
    found = line.difference
    values = [value_words(line, value) for value in (line.a, line.b)]
    ends = (found.low, found.high)
    change = difference_words(line, found.difference)
    interval = " to ".join(difference_words(line, end) for end in ends) if found.known else MISSING
    return [line.label, *values, change, interval, _judgement(line)]


def _judgement(line: Line) -> str:
    if not line.different:
        return ""
    up = line.difference.difference > 0
    if line.better == 0:
        return "more" if up else "less"
    return "better" if up == (line.better > 0) else "worse"


def value_words(line: Line, value: float) -> str:
    """A value in its unit."""
    if line.unit == "ns":
        return duration(value)
    if line.unit == "bytes":
        return size(value)
    if line.unit == "share":
        return share(value)
    if line.unit == "samples/s":
        return f"{amount(value)}/s"
    return f"{value:.3g}" if abs(value) < 1000 else big(value)


def difference_words(line: Line, value: float) -> str:
    """A difference in per cent, or in the line's own unit where there is nothing to divide by."""
    if value != value:
        return MISSING
    if line.difference.relative:
        return f"{value:+.1%}" if abs(value) < 10 else f"{1 + value:,.0f} times"
    if line.unit == "share":
        return f"{value * 100:+.1f} pt"
    return ("+" if value >= 0 else "") + value_words(line, value)
