"""`lotus map` on a terminal, and its part of a report."""

import re
import shlex
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from lotus.analysis.common.columns import records
from lotus.analysis.counters.counter_metrics import COLLATE, REST
from lotus.analysis.counters.function_profile import MapSummary
from lotus.analysis.counters.topdown import SMT, meaning, nodes, remarks
from lotus.common.numbers.statistics import wilson
from lotus.common.text.formatting import (
    MISSING,
    amount,
    big,
    brief_command,
    library,
    operation_name,
    plain,
    plural,
    share,
    shorten,
)
from lotus.joining.python_stacks import LOTUS
from lotus.reporters.base.console import (
    LEFT,
    RIGHT,
    WIDEST,
    print_paragraph,
    print_table,
    rows_of,
    tight,
)
from lotus.reporters.base.display_names import shorten_apart, tree
from lotus.reporters.base.grey_cells import GreyCell
from native_map.estimate.validation import ENOUGH
from native_map.events import pmu
from native_map.events.metrics import LEVEL_2, METRICS
from native_map.symbols.demangle import short

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console

_SHARES = {
    "frontend_bound": "front end",
    "backend_bound": "back end",
    "retiring": "retiring",
    "bad_speculation": "bad spec.",
}
BOUND_BY = "Bound by (top-down level 2; * the largest)"
BOUND_BY_COLUMNS = [("", LEFT), ("", LEFT), ("of slots", RIGHT), ("", LEFT)]
_COUNTS = ("cycles", "instructions")
_MOST_OPERATIONS, _MOST_NOTES, _FEW_NOTES = 25, 12, 3
_FEW = 10  # samples below which an interval says nothing


def write(console: "Console", summary: MapSummary, *, top: int = 5) -> None:
    """Print operations with their counters and `top` functions each."""
    words = summary.manifest.get("command") or []
    heading = brief_command(words, 60) if words else plain(summary.path)
    console.print(f"lotus map: {heading}", style="dim", soft_wrap=True)
    width = max(min(console.width, WIDEST) - 1, 40)
    for line in _measured(summary):
        for part in textwrap.wrap(line, width, subsequent_indent="  ", break_on_hyphens=False):
            console.print(part, style="dim", soft_wrap=True)
    _operations(console, summary)
    _level_2(console, summary)
    _misses(console, summary)
    _functions(console, summary, top)
    _python(console, summary, top)
    _outside(console, summary)
    if summary.notes:
        console.print("\nNot read, named or counted", style="bold")
        notes = worth(summary)
        for note in notes:
            print_paragraph(console, "", plain(note))
        if omitted := len(summary.notes) - len(notes):
            console.print(f"  and {omitted} more: see --json", style="dim")


def worth(summary: MapSummary) -> list[str]:
    """Return the notes to show: all if few, else not those on less than 1 % of the samples."""
    if len(summary.notes) <= _FEW_NOTES or summary.mapped is None:
        return summary.notes[:_MOST_NOTES]
    least = 0.01 * float(summary.mapped.books["recorded"].sum())
    counts = [(re.match(r"([\d,]+) samples? ", note), note) for note in summary.notes]
    large = [n for count, n in counts if not count or int(count[1].replace(",", "")) >= least]
    return large[:_MOST_NOTES]


def write_part(console: "Console", summary: MapSummary) -> None:
    """Print the map's part of a report: the counters and the three top functions."""
    _operations(console, summary, "Counters")
    _level_2(console, summary)
    _misses(console, summary)
    _functions(console, summary, 3)
    _python(console, summary, 3)
    print_paragraph(console, "", f"All of it: lotus map {shlex.quote(summary.path)}")


def _measured(summary: MapSummary) -> list[str]:
    """Return what was counted and sampled, and whether all samples are accounted for."""
    lines = []
    if summary.counted:
        names = ", ".join(plain(event["name"]) for event in summary.counted)
        user = all(event["flags"] == "u" for event in summary.counted if event["type"] != 1)
        hardware = any(event["type"] != 1 for event in summary.counted)
        where = " in user space" if user and hardware else ""
        lines.append(f"Counted exactly{where}: {names} ({plain(summary.cpu)})")
        if hardware and summary.cpu not in pmu.TRIED:
            lines.append(f"{pmu.UNTRIED} (tools/silicon.sh in the source of lotus does that)")
        if turns := turns_text(summary):
            lines.append(turns)
    mapped = summary.mapped
    if mapped is not None:
        for row in records(mapped.books):
            line = (
                f"{amount(row['recorded'])} samples of {plain(row['event'])}: "
                f"{amount(row['attributed'])} in operations and other intervals, "
                f"{amount(row['unattributed'])} outside of them, {amount(row['lost'])} lost"
            )
            line += f"; {amount(row['missing'])} MISSING" if row["missing"] else ""
            lines.append(line)
    return lines


def turns_text(summary: MapSummary) -> str:
    """Return what readers must know if groups of events took turns, or ""."""
    if not summary.turns:
        return ""
    groups = [f"{', '.join(map(plain, events))} in {share(part)}" for events, part in summary.turns]
    return f"Groups of events took turns by batch: {'; '.join(groups)} of the batches"


def _operations(console: "Console", summary: MapSummary, title: str = "Operations") -> None:
    table = summary.operations
    marked = bool((table["running_share"] < 0.995).any())
    total_ns = float(table.loc[~table["nested"].astype(bool), "total_ns"].sum())
    columns: list[tuple[str, str]] = [("", LEFT), ("time", RIGHT), ("share", RIGHT)]
    counts = [name for name in _COUNTS if name in table]
    shares = [name for name in _SHARES if name in table]
    cpu = "cpu_ns" if "cpu_ns" in table else "cpu_clock" if "cpu_clock" in table else ""
    columns += [("CPU", RIGHT)] if cpu else []
    columns += [(name, RIGHT) for name in counts]
    columns += [("IPC", RIGHT)] if "ipc" in table else []
    columns += [(_SHARES[name], RIGHT) for name in shares]
    columns += [("counted", RIGHT)] if marked else []
    rows = []
    for name, row in _as_tree(table):
        if not row:
            rows.append([name, *[""] * (len(columns) - 1)])
            continue
        cells = [name, tight(row["total_ns"]), share(row["total_ns"] / total_ns if total_ns else 0)]
        made = [(cpu, tight(row[cpu]))] if cpu else []
        made += [(column, big(row[column])) for column in counts]
        if "ipc" in row:
            made.append(("ipc", f"{row['ipc']:.2f}" if row["ipc"] == row["ipc"] else MISSING))
        made += [(column, share(row[column])) for column in shares]
        cells += [trusted(summary, row["operation"], column, text) for column, text in made]
        cells += [share(row["running_share"])] if marked else []
        rows.append(cells)
    columns_shown = {*counts, cpu}
    estimates = ", ".join(plain(name) for name in summary.sampled if name in columns_shown)
    title += f" ({estimates}: estimated from samples)" if estimates else ""
    print_table(console, title, columns, rows, names_in=(0,))
    if len(table) > _MOST_OPERATIONS:
        console.print(f"  and {len(table) - _MOST_OPERATIONS} more: see --json", style="dim")
    for line in few_samples(summary):
        print_paragraph(console, "", line)
    if marked:
        print_paragraph(
            console, "", "The counters were shared: counts are scaled by the share counted."
        )
    if summary.helper_share == summary.helper_share and summary.helper_share >= 0.05:
        print_paragraph(
            console,
            "",
            f"Other threads of the fetching processes had {share(summary.helper_share)} of their "
            "CPU time during fetches; what they did is not in the counts.",
        )


def few_samples(summary: MapSummary) -> list[str]:
    """Return a line on the operations whose estimates rest on too few samples, or none."""
    if not summary.few_samples:
        return []
    few = ", ".join(f"{plain(operation_name(name))} {n}" for name, n in summary.few_samples[:8])
    omitted = len(summary.few_samples) - 8
    few += f" and {omitted} more" if omitted > 0 else ""
    return [f"Estimates of fewer than {ENOUGH:,} samples, not to trust: {few}"]


def trusted(summary: MapSummary, operation: str, column: str, text: str) -> str:
    """Return the text of a cell; grey if it rests on fewer samples than it needs."""
    samples = dict(summary.few_samples).get(operation)
    if samples is None or column not in summary.estimated or text == MISSING:
        return text
    return GreyCell(text, f"from {plural(samples, 'sample')}, of the {ENOUGH:,} that it needs")


def _level_2(console: "Console", summary: MapSummary) -> None:
    """Print the nodes that cross their thresholds, with the largest of each operation marked."""
    rows, sentences = bound_by(summary)
    print_table(console, BOUND_BY, BOUND_BY_COLUMNS, rows, names_in=(0,))
    for sentence in sentences:
        print_paragraph(console, "", sentence)


def bound_by(summary: MapSummary) -> tuple[list[list[str]], list[str]]:
    """Return the rows of BOUND_BY_COLUMNS, and sentences: on each node that is the largest of an
    operation, on contention with the core's other thread, and on missing level 2.
    """
    levels = nodes(summary.operations)
    rows, before = [], ""
    for row in rows_of(levels.rows):
        name = "" if row["operation"] == before else plain(operation_name(row["operation"]))
        before = row["operation"]
        parent = f"{_SHARES[row['parent']]}: " if row["parent"] else ""
        part = trusted(summary, row["operation"], row["node"], share(row["share"]))
        cells = [name, parent + _node(row["node"]), part, "*" * row["binding"]]
        rows.append(cells)
    for operation in levels.unbound:
        name = plain(operation_name(operation))
        rows.append([name, "no node crosses its threshold", "", ""])
    explained = levels.rows["binding"].astype(bool) | (levels.rows["node"] == SMT)
    named = {str(row["node"]): str(row["parent"]) for row in rows_of(levels.rows[explained])}
    sentences = [
        f"{f'{_SHARES[parent]}, ' if parent else ''}{_node(node)}: {meaning(node)}"
        for node, parent in named.items()
    ]
    return rows, [*sentences, *(f"{text}." for text in remarks(summary.operations, summary.cpu))]


def _node(name: str) -> str:
    words = name.removeprefix("frontend_").removeprefix("backend_").replace("_", " ")
    return words.replace("smt", "SMT")


def _as_tree(table: pd.DataFrame) -> list[tuple[str, dict[str, Any]]]:
    """Return names and rows of the displayed operations; a heading has an empty row."""
    rows = rows_of(table.head(_MOST_OPERATIONS))
    lines = tree([str(row["operation"]) for row in rows], [bool(row["nested"]) for row in rows])
    return [(line.name, {} if line.row is None else rows[line.row]) for line in lines]


def _misses(console: "Console", summary: MapSummary) -> None:
    table = summary.operations
    columns_shown = {
        *_SHARES,
        "ipc",
        "cpu_ns",
        SMT,
        *(node for group in LEVEL_2.values() for node in group),
    }
    names = [name for name in METRICS if name in table and name not in columns_shown]
    counts = [name for name in ("page_faults", "context_switches") if name in table]
    names = [name for name in names if name not in counts]
    if not names and not counts:
        return
    columns = [("", LEFT), *((_label(name), RIGHT) for name in (*names, *counts))]
    rows = []
    for name, row in _as_tree(table):
        if not row:
            rows.append([name, *[""] * (len(columns) - 1)])
            continue
        cells = [(column, _metric(column, row[column])) for column in names]
        cells += [(column, big(row[column])) for column in counts]
        rows.append([name, *(trusted(summary, row["operation"], *cell) for cell in cells)])
    rates = any(METRICS[name].unit.startswith("per 1000") for name in names)
    title = "Misses per 1000 instructions, and other events" if rates else "Other events"
    print_table(console, title, columns, rows, names_in=(0,))


def _metric(name: str, value: float) -> str:
    return share(value) if METRICS[name].unit.startswith("of ") else _number(value)


def _label(name: str) -> str:
    return name.replace("_mpki", "").replace("_pki", "").replace("_", " ")


def _number(value: float) -> str:
    return "-" if value != value else f"{value:.3g}"


def _functions(console: "Console", summary: MapSummary, top: int) -> None:
    table = summary.functions
    if not len(table) or top < 1:
        return
    inside = table[(table["helper_of"] == "") & table["operation"].ne("")]
    room = max(console.width - 32, 24)
    rows: list[Sequence[str]] = []
    few = 0
    names = list(dict.fromkeys(plain(operation_name(name)) for name in inside["operation"]))
    short_names = dict(zip(names, shorten_apart(names, room), strict=True))
    for (_, operation), group in inside.groupby(["kind", "operation"], sort=False):
        samples = int(group["samples"].sum())
        if samples < _FEW:
            few += 1
            continue
        rows.append([amount(samples), "", short_names[plain(operation_name(operation))]])
        for row in rows_of(_short(group).head(top)):
            low, high = wilson(row["share"], samples)
            doubt = f" ±{(high - low) * 50:.0f}" if row["samples"] >= _FEW else ""
            rows.append(["", f"{share(row['share'])}{doubt}", "  " + shorten(row["name"], room)])
    columns = [("samples", RIGHT), ("share", RIGHT), ("operation, library!function", LEFT)]
    event = plain(summary.event)
    print_table(console, f"Functions by samples of {event} (± 95 %)", columns, rows)
    if few:
        text = f"and {plural(few, 'more operation')} with fewer than {_FEW} samples: see --json"
        console.print(f"  {text}", style="dim")
    helped = table[table["helper_of"] != ""]
    if len(helped):
        sums = helped.groupby("helper_of")["samples"].sum().sort_values(ascending=False)
        sampled = ", ".join(f"{plain(name)} {amount(count)}" for name, count in sums.items())
        print_paragraph(console, "", f"Samples of threads that worked for an operation: {sampled}")


def _short(functions: pd.DataFrame) -> pd.DataFrame:
    """Return name, samples and share of an operation's functions; equal short names are merged."""
    names = [
        plain(f"{library(str(file))}!{short(str(function))}")
        for file, function in zip(functions["library"], functions["function"], strict=True)
    ]
    sums = functions[["samples", "share"]].groupby(pd.Index(names, name="name"), sort=False).sum()
    return sums.sort_values("share", ascending=False, kind="stable").reset_index()


def _python(console: "Console", summary: MapSummary, top: int) -> None:
    table = summary.python
    room = max(console.width - 24, 24)
    rows: list[Sequence[str]] = []
    order = {str(name): place for place, name in enumerate(summary.operations["operation"])}
    groups = [
        (_place(order, str(kind), str(operation)), kind, operation, group)
        for (kind, operation), group in table.groupby(["kind", "operation"], sort=False)
    ]
    for _, kind, operation, group in sorted(groups, key=lambda entry: entry[0]):
        total_ns = float(group["self_ns"].sum())
        names = {"fetch": "(the data set's own code)", "lotus": "(lotus's own hooks)"}
        label = (
            operation_name(operation) if kind == "operation" else names.get(str(kind), str(kind))
        )
        rows.append([tight(total_ns), "", shorten(plain(label), room)])
        for row in rows_of(group[group["self_ns"] > 0].head(top)):
            place = plain(f"({row['file'].rpartition('/')[2]}:{row['line']})")
            function = shorten(plain(row["function"]), max(room - len(place) - 1, 12))
            part = share(row["self_ns"] / total_ns if total_ns else 0)
            rows.append(["", part, f"  {function} {place}"])
    columns = [("time", RIGHT), ("share", RIGHT), ("operation, Python function", LEFT)]
    print_table(console, "Python lines, with the C code that they call (py-spy)", columns, rows)
    if (table["kind"] == LOTUS).any():
        print_paragraph(
            console,
            "",
            "py-spy stops the program to look at it, and finds one that was stopped in a system "
            "call more often than it is in one: this over-counts lotus's own hooks, which make "
            "system calls.",
        )


def _place(order: dict[str, int], kind: str, operation: str) -> int:
    """Return the position of operations seen by py-spy: as in the main table, lotus last."""
    if kind == LOTUS:
        return len(order) + 1
    names = {"collate": COLLATE, "fetch": REST}
    parts = operation.split(" or ") if kind == "operation" else [names.get(kind, kind)]
    return min(order.get(name, len(order)) for name in parts)


def _outside(console: "Console", summary: MapSummary) -> None:
    rows = [
        [plain(row["text"]), amount(row["samples"]), share(row["share"])]
        for row in rows_of(summary.outside)
    ]
    columns = [("", LEFT), ("samples", RIGHT), ("of all", RIGHT)]
    print_table(console, "Outside of operations, collate and fetch", columns, rows)
    if not len(summary.functions) and summary.mapped is None:
        where = plural(len(summary.operations), "operation")
        hint = f"No samples: functions under the {where} come with lotus trace --perf."
        print_paragraph(console, "", hint)
