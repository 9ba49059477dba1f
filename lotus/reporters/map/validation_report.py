"""`lotus map validate` on a terminal and as a document."""

from typing import TYPE_CHECKING, Any

from lotus.analysis.common.columns import records
from lotus.common.text.formatting import amount, big, operation_name, plain, plural, share
from lotus.mapping.function_mapping import Judged
from lotus.reporters.base.console import LEFT, RIGHT, print_paragraph, print_table, rows_of, tight
from native_map.estimate.validation import ENOUGH, NEAR, WIDE

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console

SCHEMA = 1
_CLOCKS = ("cpu-clock", "task-clock")  # perf counts these in ns


def document(judged: Judged) -> dict[str, Any]:
    """Return columns as in native_map.estimate.validation; errors are relative to exact counts."""
    return {
        "schema": SCHEMA,
        "operations": records(judged.table),
        "summary": records(judged.summary),
        "mapping": None if judged.pairs is None else records(judged.pairs),
        "notes": judged.notes,
    }


def write(console: "Console", judged: Judged) -> None:
    """Print the errors of samples and of a mapping against exact counts."""
    mapped = judged.pairs is not None
    for event, table in judged.table.groupby("event", sort=False):
        rows = []
        count = tight if str(event).startswith(_CLOCKS) else big
        for row in rows_of(table):
            name = (
                operation_name(row["operation"])
                if row["kind"] == "operation"
                else f"({row['kind']})"
            )
            cells = [plain(name), amount(row["samples"])]
            cells += [count(row["exact"])]
            cells += [_error(row["err_joined"]), f"±{share(row['width'])}"]
            cells += ["yes" if row["within_ci"] else "no"]
            cells += [_error(row["err_calibrated"])]
            cells += [_error(row["err_mapped"])] if mapped else []
            rows.append(cells)
        names = ["samples", "exact", "joined", "95 %", "holds", "calibrated"]
        names += ["mapped"] if mapped else []
        columns = [("", LEFT), *((name, RIGHT) for name in names)]
        title = f"Errors of {plain(event)} against exact counts"
        print_table(console, title, columns, rows, names_in=(0,))
    for row in rows_of(judged.summary):
        if not row["judged"]:
            text = (
                f"{plain(row['event'])}: no operation has {amount(ENOUGH)} samples, the "
                "fewest that are judged here: errors of fewer are mostly chance. Record longer, or "
                "with a higher --perf-frequency."
            )
        else:
            text = (
                f"{plain(row['event'])}: of {plural(row['judged'], 'operation')} with at least "
                f"{amount(ENOUGH)} samples {amount(row['good'])} within {share(NEAR)} of the exact "
                f"count or within an interval that is not wider than ±{share(WIDE)}; error at "
                f"most {share(row['joined_worst'])}, calibrated {share(row['calibrated_worst'])}"
            )
            text += f", mapped {share(row['mapped_worst'])}" if mapped else ""
        print_paragraph(console, "", text)
    if judged.pairs is not None:
        rows = [
            [plain(operation_name(row["operation"])), amount(row["mapped"]),
             amount(row["joined"]), amount(row["both"]), share(row["precision"]),
             share(row["recall"]), share(row["recall_count"])]
            for row in rows_of(judged.pairs)
        ]  # fmt: skip
        names = ["mapped", "joined", "both", "precision", "recall", "of counts"]
        columns = [("functions", LEFT), *((name, RIGHT) for name in names)]
        print_table(console, "The mapping against the join", columns, rows, names_in=(0,))
    for note in judged.notes:
        print_paragraph(console, "", plain(note))


def _error(value: float) -> str:
    return "-" if value != value else f"{value:+.1%}"
