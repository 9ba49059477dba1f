"""`lotus map build` on a terminal: how well each operation was isolated."""

from typing import IO, TYPE_CHECKING

from lotus.reporters.console import LEFT, RIGHT, print_paragraph, print_table, rows_of, tight
from lotus.reporters.words import amount, plain, share, shorten

if TYPE_CHECKING:
    from lotus.isolated import Isolation
    from native_map.mapping import Mapping

_WIDEST_NAME = 24


def write(mapping: "Mapping", found: "Isolation", file: IO[str]) -> None:
    """What `lotus map build` found: evidence per operation, and where it is weak."""
    from rich.console import Console

    console = Console(file=file, highlight=False, markup=False, emoji=False)
    kept = mapping.kept.groupby("operation").size()
    dropped = mapping.functions[~mapping.functions["kept"]].groupby("operation").size()
    rows = []
    for row in rows_of(found.operations):
        name = str(row["operation"])
        rows.append(
            [shorten(plain(name), _WIDEST_NAME), amount(row["runs"]), amount(row["calls"]),
             tight(row["call_ns"]), amount(row["samples"]), share(row["capture"]),
             amount(int(kept.get(name, 0))), amount(int(dropped.get(name, 0)))]
        )  # fmt: skip
    names = ["runs", "calls", "a call", "samples", "capture", "functions", "dropped"]
    columns = [("", LEFT), *((name, RIGHT) for name in names)]
    print_table(console, "Isolated operations", columns, rows)
    print_paragraph(
        console,
        "",
        "capture: the probability that a function of 20 µs in each call was seen; dropped: seen in "
        f"fewer than {mapping.minimum_runs} runs.",
    )
    for note in found.notes:
        print_paragraph(console, "Note", plain(note))
