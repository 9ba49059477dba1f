"""Tables and paragraphs on a terminal, as all reporters write them."""

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from lotus.analysis.columns import plain_value
from lotus.reporters.words import duration, size

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console

WIDEST, NARROWEST = 110, 12  # of a line that is easy to read; of a column of names
LEFT, RIGHT = "left", "right"


def tight(ns: float) -> str:
    return duration(ns).replace(" ", "")


def tight_size(count: float) -> str:
    return size(count).replace(" ", "")


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows with NaN for what was not measured, so that all numbers can be formatted alike."""
    rows = []
    for record in frame.to_dict("records"):
        row = {str(name): plain_value(value) for name, value in record.items()}
        rows.append({name: float("nan") if value is None else value for name, value in row.items()})
    return rows


def print_table(
    console: "Console",
    title: str,
    columns: Sequence[tuple[str, str]],
    rows: Iterable[Sequence[str]],
) -> None:
    from rich.table import Table
    from rich.text import Text

    rows = list(rows)
    widths = [
        max(map(len, cells)) for cells in zip([name for name, _ in columns], *rows, strict=True)
    ]
    gap = 2 if sum(widths) + 2 * len(widths) + 2 <= console.width else 1
    shown = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for width, (name, justify) in zip(widths, columns, strict=True):
        right = justify == RIGHT
        shown.add_column(
            Text(name),
            justify="right" if right else "left",
            no_wrap=right,
            min_width=min(width, NARROWEST),
            overflow="ellipsis" if right else "fold",
        )
    for row in rows:
        shown.add_row(*(Text(cell) for cell in row))
    if shown.row_count:
        console.print(f"\n{title}", style="bold")
        from rich.padding import Padding

        console.print(Padding(shown, (0, 0, 0, 2), expand=False))


def print_paragraph(console: "Console", label: str, text: str) -> None:
    """`text`, wrapped, after a label of fixed width."""
    from rich.text import Text

    indent = "  " + (f"{label:11} " if label else "")
    width = max(min(console.width, WIDEST) - 1, len(indent) + 20)
    wrapped = textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_on_hyphens=False,
    )
    for line in wrapped:
        shown = Text(line, no_wrap=True, overflow="ignore")
        shown.stylize("dim", 0, len(indent) if line is wrapped[0] else 0)
        console.print(shown, soft_wrap=True)
