"""Operations on two CPUs side by side, on a terminal, on a page and in a document."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lotus.analysis.common.columns import records
from lotus.common.text.formatting import MISSING, big, duration, operation_name, plain, share
from lotus.compare.cpu_pair import TOP_DOWN, CpuPair
from lotus.reporters.base.console import LEFT, RIGHT, print_paragraph, print_table, rows_of
from lotus.reporters.base.page import Chart, Table

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console

_MOST = 25
_NODES = {
    "frontend_bound": "front end",
    "backend_bound": "back end",
    "bad_speculation": "bad spec.",
    "retiring": "retiring",
}
_Columns = list[tuple[str, str]]


def values(cpus: CpuPair | None) -> dict[str, Any] | None:
    """Return the pair as JSON-able values."""
    if cpus is None:
        return None
    return {
        "names": list(cpus.names),
        "operations": records(cpus.rows),
        "gain": cpus.gain,
        "gains_most": cpus.gains_most or None,
        "saves_most": cpus.saves_most or None,
        "notes": list(cpus.notes),
    }


def show(console: "Console", cpus: CpuPair, letters: Sequence[str]) -> None:
    """Print which operation gains most, and the tables."""
    console.print()
    print_paragraph(console, "", plain(_names(cpus, letters)))
    print_paragraph(console, "", plain(cpus.gain))
    for title, columns, rows in _tables(cpus, letters):
        named = [[plain(row[0]), *row[1:]] for row in rows]
        print_table(console, title, columns, named, names_in=(0,))
    for note in cpus.notes:
        print_paragraph(console, "", f"{plain(note)}.")


def parts(cpus: CpuPair, letters: Sequence[str]) -> list[str | Table | Chart]:
    """Return the same content for a page."""
    page_parts: list[str | Table | Chart] = [_names(cpus, letters), cpus.gain]
    for title, columns, rows in _tables(cpus, letters):
        page_parts += [title, Table(columns, rows)]
    return [*page_parts, *(f"{note}." for note in cpus.notes)]


def _tables(cpus: CpuPair, letters: Sequence[str]) -> list[tuple[str, _Columns, list[list[str]]]]:
    table = cpus.rows.head(_MOST)
    a, b = letters
    columns: _Columns = [("", LEFT), (a, RIGHT), (b, RIGHT), (f"{b} as fast", RIGHT)]
    counted = [name for name in ("instructions", "ipc") if table[f"a_{name}"].notna().any()]
    for name in counted:
        title = "IPC" if name == "ipc" else "instr."
        columns += [(f"{title} {letter}", RIGHT) for letter in letters]
    times, shares = [], []
    nodes = [name for name in TOP_DOWN if table[f"a_{name}"].notna().any()]
    for row in rows_of(table):
        name = operation_name(row["operation"])
        factor = f"{row['times']:.2f} x" if row["times"] == row["times"] else MISSING
        cells = [name, duration(row["a_ns"]), duration(row["b_ns"])]
        cells.append(factor if row["different"] else f"({factor})")
        for measure in counted:
            cells += [_count(measure, row[f"{side}_{measure}"]) for side in "ab"]
        times.append(cells)
        if any(row[f"a_{node}"] == row[f"a_{node}"] for node in nodes):
            pairs = [[share(row[f"{side}_{node}"]) for side in "ab"] for node in nodes]
            shares.append([name, *(f"{first} | {second}" for first, second in pairs)])
    title = "Operations on two CPUs (a sample; in brackets: no significant difference"
    if len(cpus.rows) > _MOST:
        title += f"; the first {_MOST} of {len(cpus.rows)}, the others: see --json"
    tables = [(f"{title})", columns, times)]
    if shares:
        heads: _Columns = [("", LEFT), *((_NODES[node], RIGHT) for node in nodes)]
        tables.append((f"Shares of slots, {a} | {b}", heads, shares))
    return tables


def _names(cpus: CpuPair, letters: Sequence[str]) -> str:
    return ", ".join(f"{letter}: {name}" for letter, name in zip(letters, cpus.names, strict=True))


def _count(measure: str, value: float) -> str:
    if measure == "ipc":
        return f"{value:.2f}" if value == value else MISSING
    return big(value)
