"""Tables and paragraphs on a terminal, for all reporters."""

import itertools
import textwrap
from collections.abc import Collection, Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any

import pandas as pd

from lotus.analysis.common.columns import plain_value
from lotus.common.terminal.stderr import printable
from lotus.common.text.formatting import duration, size
from lotus.reporters.base.display_names import shorten_apart
from lotus.reporters.base.grey_cells import GreyCell

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console

WIDEST, NARROWEST = 110, 12  # of a line that is easy to read; of a column of names
INDENT = 2  # of tables
LEFT, RIGHT = "left", "right"


def plain_console(file: IO[str] | None = None, width: int | None = None) -> "Console":
    """Return a console that shows text without markup; on the standard output by default."""
    from lotus.reporters.base.harmless_console import HarmlessConsole

    return HarmlessConsole(file=file, highlight=False, markup=False, emoji=False, width=width)


def tight(ns: float) -> str:
    """Format a duration in nanoseconds without a space."""
    return duration(ns).replace(" ", "")


def tight_size(count: float) -> str:
    """Format a size in bytes without a space."""
    return size(count).replace(" ", "")


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows with NaN for what was not measured, so that all numbers format alike."""
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
    names_in: Collection[int] = (),
    spare: Sequence[str] = (),
    wrap_labels: bool = False,
) -> None:
    """Print rows under a title; nothing if there are none.

    names_in: the columns of names, which remain distinct when they are shortened. Pass full names:
    they are shortened only here. spare: titles of columns that are left out, in this order, as far
    as the table is too wide for the console. wrap_labels: texts of the first column that are too
    long for it go on in the next line.
    """
    from rich.cells import cell_len
    from rich.text import Text

    rows = [[printable(cell) for cell in row] for row in rows]  # before they are measured
    if not rows:
        return
    columns, rows, omitted = _without_spare(columns, rows, spare, console.width - INDENT)
    names = [name for name, _ in columns]
    full_widths = [max(map(cell_len, cells)) for cells in zip(names, *rows, strict=True)]
    # Shorten names first, then gaps. Never cut numbers, nor paths, which users copy.
    last = len(columns) - 1
    flexible = [
        justify != RIGHT and not any(row[place].startswith("/") for row in rows)
        for place, (_, justify) in enumerate(columns)
    ]
    gap, room, widths = 1, console.width - INDENT, full_widths
    for gap in (2, 1):
        widths = _narrowed(full_widths, flexible, room - gap * last)
        if sum(widths) + gap * last <= room:
            break
    console.print(f"\n{title}", style="bold")
    # Rows as displayed: text that is too wide for its column is shortened once.
    cut = {k: shorten_apart([row[k] for row in rows], widths[k]) for k in names_in if flexible[k]}
    if (
        flexible[0]
        and last
        and 0 not in cut
        and not _told_apart([row[0] for row in rows], widths[0])
    ):
        cut[0] = shorten_apart([row[0] for row in rows], widths[0])
    for place, row in enumerate((names, *rows)):
        cells = [_ended(cell, widths[k]) if flexible[k] else cell for k, cell in enumerate(row)]
        if place:
            cells = [cut[k][place - 1] if k in cut else cell for k, cell in enumerate(cells)]
        labels: list[str] = []
        if place and wrap_labels and flexible[0] and last and cell_len(row[0]) > widths[0]:
            whole = textwrap.wrap(row[0], widths[0], break_long_words=False)
            if max(map(cell_len, whole)) <= widths[0]:  # a label of words goes on below
                cells[0], *labels = whole
        continued: list[str] = []
        if flexible[last] and last not in cut and cell_len(row[last]) > widths[last]:
            # The last column may continue below.
            cells[last], *continued = textwrap.wrap(
                row[last], widths[last], break_long_words=False, break_on_hyphens=False
            )
        line, grey = " " * INDENT, []
        for cell, width, (_, justify) in zip(cells, widths, columns, strict=True):
            space = " " * (width - cell_len(cell))
            if isinstance(cell, GreyCell):
                grey.append((len(line), len(line) + len(space + cell)))
            line += (space + cell if justify == RIGHT else cell + space) + " " * gap
        indent = INDENT + sum(widths[:last]) + gap * last
        below = [
            (" " * INDENT + label).ljust(indent) + rest
            for label, rest in itertools.zip_longest(labels, continued, fillvalue="")
        ]
        for shown in (line, *below):
            text = Text(shown.rstrip(), style="dim" if row is names else "")
            for first, end in grey if shown is line else ():
                text.stylize("dim", first, end)
            console.print(text, soft_wrap=True)
    if omitted:
        print_paragraph(console, "", f"Left out, as lines are short here: {', '.join(omitted)}.")


def _without_spare(
    columns: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[str]],
    spare: Sequence[str],
    room: int,
) -> tuple[Sequence[tuple[str, str]], Sequence[Sequence[str]], list[str]]:
    """Return columns and rows without those of `spare` for which there is no room, and these."""
    from rich.cells import cell_len

    omitted: list[str] = []
    for title in spare:
        kept = [place for place, (name, _) in enumerate(columns) if name not in omitted]
        cells = [[columns[place][0], *(row[place] for row in rows)] for place in kept]
        if sum(max(map(cell_len, each)) + 1 for each in cells) - 1 <= room:
            break
        omitted += [title] if any(name == title for name, _ in columns) else []
    kept = [place for place, (name, _) in enumerate(columns) if name not in omitted]
    return (
        [columns[place] for place in kept],
        [[row[place] for place in kept] for row in rows],
        omitted,
    )


def _told_apart(texts: Sequence[str], width: int) -> bool:
    """Return whether texts that differ still differ when cut to `width`."""
    return len({_ended(text, width) for text in texts}) == len(set(texts))


def _narrowed(full_widths: Sequence[int], flexible: Sequence[bool], room: int) -> list[int]:
    """Return widths of columns that fit into `room`, if the flexible columns allow it."""
    widths = list(full_widths)
    while sum(widths) > room:
        wide = [place for place, give in enumerate(flexible) if give and widths[place] > NARROWEST]
        if not wide:
            break
        widths[max(wide, key=lambda place: widths[place])] -= 1
    return widths


def _ended(text: str, width: int) -> str:
    """Shorten `text` to `width` characters at its end, after a whole word if possible."""
    if len(text) <= width:
        return text
    shortened = text[: width - 1]
    words = shortened.rsplit(" ", 1)[0].rstrip(" ,;:(")
    if text[width - 1] != " " and len(words) >= width // 2:
        shortened = words
    return shortened.rstrip(" ,;:(") + "…"


def print_paragraph(console: "Console", label: str, text: str) -> None:
    """Print `text`, wrapped, after a label of fixed width."""
    from rich.text import Text

    indent = "  " + (f"{label:11} " if label else "")
    width = max(min(console.width, WIDEST) - 1, len(indent) + 20)
    wrapped = textwrap.wrap(
        printable(text),
        width,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_on_hyphens=False,
    )
    for line in wrapped:
        text_line = Text(line, no_wrap=True, overflow="ignore")
        text_line.stylize("dim", 0, len(indent) if line is wrapped[0] else 0)
        console.print(text_line, soft_wrap=True)
