"""`lotus map apply` on a terminal and as a document."""

from typing import TYPE_CHECKING, Any

from lotus.analysis.common.columns import records
from lotus.common.text.formatting import amount, big, library, operation_name, plain, share, shorten
from lotus.mapping.function_mapping import Applied
from lotus.reporters.base.console import LEFT, RIGHT, print_paragraph, print_table, rows_of, tight
from native_map.paper.function_counts import TOPDOWN
from native_map.symbols.demangle import short

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console

SCHEMA = 1
_LABELS = {
    "retiring": "retiring",
    "frontend_bound": "front end",
    "bad_speculation": "bad spec.",
    "backend_bound": "back end",
}
_COUNTS = ("cpu_ns", "cycles", "instructions", "samples")  # others: see --json
_MOST_LEFT = 8


def document(applied: Applied) -> dict[str, Any]:
    """Return columns as in native_map.paper.attribution.apply; `_ns` are nanoseconds, shares
    fractions of 1.
    """
    return {
        "schema": SCHEMA,
        "profile": {"kind": applied.profile.kind, "source": applied.profile.source,
                    "totals": applied.profile.totals, "notes": list(applied.profile.notes)},
        "operations": records(applied.operations),
        "pairs": records(applied.pairs),
        "leftovers": records(applied.leftovers),
    }  # fmt: skip


def write(console: "Console", applied: Applied) -> None:
    """Print operations with their share of the profile, and what is left over."""
    table, profile = applied.operations, applied.profile
    counts = [name for name in _COUNTS if name in table and table[name].notna().any()]
    counts = counts or [name for name in profile.additive if name in table][:3]
    shares = [name for name in TOPDOWN if name in table and table[name].notna().any()]
    columns = [("", LEFT), *((_count_label(name), RIGHT) for name in counts)]
    columns += [("IPC", RIGHT)] if "ipc" in table else []
    columns += [(_LABELS[name], RIGHT) for name in shares]
    columns += [("covered", RIGHT), ("shared", RIGHT), ("weak", RIGHT)]
    rows = []
    for row in rows_of(table):
        cells = [plain(operation_name(row["operation"]))]
        cells += [_count(name, row[name]) for name in counts]
        cells += [_ratio(row["ipc"])] if "ipc" in row else []
        cells += [share(row[name]) for name in shares]
        cells += [share(row["covered"]), share(row["shared"]), share(row["weak"])]
        rows.append(cells)
    print_table(console, f"Operations in {plain(profile.source)}", columns, rows, names_in=(0,))
    print_paragraph(
        console,
        "",
        "covered: of the operation's isolated time, in functions that the profile has; shared: "
        "rests on functions of several operations; weak: on few runs or on a name alone.",
    )
    measure = profile.weight or (counts[0] if counts else "")
    if measure:
        total = profile.totals[measure]
        attributed = float(applied.pairs[measure].sum())
        print_paragraph(
            console,
            "",
            f"{share(attributed / total if total else 0)} of the profile is attributed.",
        )
        leftovers = applied.leftovers.sort_values(measure, ascending=False).head(_MOST_LEFT)
        rows = [
            # Rows that an export rounded up have more than its total: nothing is left over.
            [share(max(row[measure] / total, 0.0) if total else 0), plain(row["reason"]),
             shorten(plain(f"{library(row['module'])}!{short(row['function'])}"), 48)]
            for row in rows_of(leftovers)
        ]  # fmt: skip
        columns = [("share", RIGHT), ("why", LEFT), ("library!function", LEFT)]
        print_table(console, "Left over", columns, rows)
        if len(applied.leftovers) > _MOST_LEFT:
            omitted = amount(len(applied.leftovers) - _MOST_LEFT)
            console.print(f"  and {omitted} more: see --json", style="dim")
    for note in profile.notes:
        print_paragraph(console, "Note", plain(note))


def _count_label(name: str) -> str:
    return "CPU time" if name == "cpu_ns" else name.replace("_", " ")


def _count(name: str, value: float) -> str:
    return tight(value) if name.endswith("_ns") else big(value)


def _ratio(value: float) -> str:
    return "-" if value != value else f"{value:.2f}"
