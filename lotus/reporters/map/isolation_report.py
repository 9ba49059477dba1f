"""`lotus map build` on a terminal: how well each operation was isolated."""

from typing import TYPE_CHECKING

from lotus.common.text.formatting import amount, operation_name, plain, share
from lotus.reporters.base.console import LEFT, RIGHT, print_paragraph, print_table, rows_of, tight

if TYPE_CHECKING:
    from rich.console import Console

    from lotus.mapping.isolated_samples import Isolation
    from native_map.paper.paper_mapping import Mapping


def write(console: "Console", mapping: "Mapping", *, isolation: "Isolation") -> None:
    """Print the evidence that `lotus map build` has for each operation, and where it is weak."""
    pairs = mapping.kept.groupby("operation").size()
    dropped = mapping.functions[~mapping.functions["kept"]].groupby("operation").size()
    rows = []
    for row in rows_of(isolation.operations):
        name = str(row["operation"])
        rows.append(
            [plain(operation_name(name)), amount(row["runs"]), amount(row["calls"]),
             tight(row["call_ns"]), amount(row["samples"]), share(row["capture"]),
             amount(int(pairs.get(name, 0))), amount(int(dropped.get(name, 0)))]
        )  # fmt: skip
    names = ["runs", "calls", "a call", "samples", "capture", "functions", "dropped"]
    columns = [("", LEFT), *((name, RIGHT) for name in names)]
    print_table(console, "Isolated operations", columns, rows, names_in=(0,))
    print_paragraph(
        console,
        "",
        "capture: the probability that a function of 20 µs in each call was seen; dropped: seen in "
        f"fewer than {mapping.minimum_runs} runs.",
    )
    for note in isolation.notes:
        print_paragraph(console, "Note", plain(note))
