"""One self-contained HTML page of sections, charts and tables: no network, opens from disk.

Charts are plotly figures as plain dicts. The page contains plotly's script and a small one that
draws a chart when it comes into view and follows light and dark mode. A content security policy
with hashes allows only these scripts, whatever the names in the page contain.
"""

import base64
import hashlib
import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lotus.common.errors import LotusError
from lotus.common.storage import files
from lotus.common.text.formatting import plain
from lotus.reporters.base.grey_cells import GreyCell
from lotus.reporters.base.labelled_text import LabelledText

# Okabe and Ito, "Color Universal Design" (2008), without black: distinct for colour-blind readers.
COLOURS = ("#0072B2", "#E69F00", "#56B4E9", "#CC79A7", "#009E73", "#D55E00", "#F0E442", "#999999")
_MOST_ROWS = 1000  # of a table: more is for --json
_ASSETS = Path(__file__).with_name("assets")
_OPTION = re.compile(r"(?<![\w-])--?\w[\w=-]*|(?<!\S)--(?!\S)")  # of a command


@dataclass(frozen=True)
class Table:
    """Cells are formatted text. Columns: name, and "left" or "right"."""

    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Chart:
    """A plotly figure ({"data": [...], "layout": {...}}), and the numbers behind it.

    `id` ([a-z0-9-]+) is unique on the page. The figure sets no colours of text and background; the
    page does. `note` says what was left out or combined; `keys` are names and colours of a picture
    for which plotly has no legend.
    """

    id: str
    title: str
    figure: dict[str, Any]
    table: Table
    note: str = ""
    keys: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Details:
    """Paragraphs and tables that are shown when their title is clicked."""

    title: str
    parts: Sequence[str | Table]


@dataclass(frozen=True)
class Section:
    """A heading and its contents; text is a paragraph."""

    title: str
    parts: Sequence[str | Table | Chart | Details]


def save(
    path: Path, title: str, heading: Section, sections: Sequence[Section], document: object
) -> None:
    """Write the page. `document` (the values of `--json`) is embedded for programs; its lists
    are cut to 1,000 entries.

    Raises LotusError if the file cannot be written.
    """
    files.replace(path, pieces(title, heading, sections, document), "--html")


def packed(values: Any, kind: str) -> dict[str, Any]:
    """Encode numbers compactly for plotly. `kind`: u1, i4, f4 or f8."""
    array = np.ascontiguousarray(values, dtype=np.dtype(kind).newbyteorder("<"))
    typed_array: dict[str, Any] = {
        "dtype": kind,
        "bdata": base64.b64encode(array.tobytes()).decode(),
    }
    if array.ndim > 1:
        typed_array["shape"] = ", ".join(str(length) for length in array.shape)
    return typed_array


def pieces(
    title: str, heading: Section, sections: Sequence[Section], document: object
) -> Iterator[str]:
    """Yield the page's text in pieces."""
    library, glue = _plotly(), (_ASSETS / "page.js").read_text("utf-8")
    sources = " ".join(f"'sha256-{_hash(script)}'" for script in (library, glue))
    policy = f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline'; "
    policy += "img-src data: blob:; font-src data:"
    charts = [
        part
        for section in (heading, *sections)
        for part in section.parts
        if isinstance(part, Chart)
    ]
    if len({chart.id for chart in charts}) != len(charts):
        raise AssertionError("two charts have one id")
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_escape(title)}</title>\n"
        f"<style>\n{(_ASSETS / 'page.css').read_text('utf-8')}</style>\n</head>\n<body>\n"
    )
    yield '<header><button id="theme" type="button" title="light or dark">◐</button>\n'
    yield f"<h1>{_escape(heading.title)}</h1>\n"
    for part in heading.parts:
        yield _part(part)
    if len(sections) > 1:
        links = (
            f'<a href="#section-{number}">{_escape(section.title)}</a>'
            for number, section in enumerate(sections)
        )
        yield f"<nav>{' '.join(links)}</nav>\n"
    yield "</header>\n<main>\n"
    yield "<noscript><p>Without scripts there are no charts; the tables hold their numbers.</p></noscript>\n"  # noqa: E501
    for number, section in enumerate(sections):
        yield f'<section id="section-{number}">\n<h2>{_escape(section.title)}</h2>\n'
        for part in section.parts:
            yield _part(part)
        yield "</section>\n"
    yield "</main>\n"
    figures = {chart.id: chart.figure for chart in charts}
    yield f'<script type="application/json" id="figures">{_json(figures)}</script>\n'
    yield f'<script type="application/json" id="document">{_json(_cut(document))}</script>\n'
    yield f"<script>{library}</script>\n<script>{glue}</script>\n</body>\n</html>\n"


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise LotusError(
            "charts need plotly, which is not installed; the report without them is there; "
            "type: pip install plotly"
        ) from None
    # The text must not contain what ends a script element, not even in a string.
    return str(get_plotlyjs()).replace("</script", "<\\/script")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _json(value: object) -> str:
    """Return JSON for a script element: nothing in it can end the element."""
    text = files.json_text(value, indent=None, digits=7)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _cut(value: Any) -> Any:
    """Limit the length of lists, so that the page opens fast."""
    if isinstance(value, dict):
        return {name: _cut(item) for name, item in value.items()}
    return [_cut(item) for item in value[:_MOST_ROWS]] if isinstance(value, list) else value


def _escape(text: str) -> str:
    return html.escape(plain(text))


def _text(text: str) -> str:
    """Return text as HTML in which a line never ends within an option such as `--`."""
    return _OPTION.sub(lambda option: f"<span>{option[0]}</span>", _escape(text))


def _part(part: str | Table | Chart | Details) -> str:
    if isinstance(part, LabelledText):
        words = _text(part.words)
        words = f"<code>{words}</code>" if part.is_command else words
        return f"<p><b>{_escape(part.label)}:</b> {words}</p>\n"
    if isinstance(part, str):
        return f"<p>{_text(part)}</p>\n"
    if isinstance(part, Table):
        return _table(part)
    if isinstance(part, Details):
        inner = "".join(map(_part, part.parts))
        return f"<details><summary>{_escape(part.title)}</summary>\n{inner}</details>\n"
    note = f'<p class="note">{_escape(part.note)}</p>\n' if part.note else ""
    keys = "".join(
        f'<li><i style="background:{_escape(colour)}"></i>{_escape(name)}</li>'
        for name, colour in part.keys
    )
    keys = f'<ul class="keys">{keys}</ul>\n' if keys else ""
    height = int(part.figure.get("layout", {}).get("height", 360))
    return (
        f'<figure id="{part.id}">\n<figcaption>{_escape(part.title)}</figcaption>\n'
        f"{keys}"
        f'<div class="chart" role="img" aria-label="{_escape(part.title)}" data-chart="{part.id}" '
        f'style="height:{height}px"></div>\n{note}'
        f"<details><summary>The numbers</summary>\n{_table(part.table)}</details>\n</figure>\n"
    )


def _attributes(cell: str, side: str) -> str:
    """Return the attributes of a cell's tag."""
    classes = ["right"] if side == "right" else []
    if not isinstance(cell, GreyCell):
        return "".join(f" class={name}" for name in classes)
    return f' class="{" ".join([*classes, "grey"])}" title="{_escape(cell.why)}"'


def _table(table: Table) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        cells_html = (
            f"<{tag}{_attributes(cell, side)}>{_text(cell)}</{tag}>"
            for cell, (_, side) in zip(cells, table.columns, strict=True)
        )
        return f"<tr>{''.join(cells_html)}</tr>\n"

    head = row([name for name, _ in table.columns], "th")
    body = "".join(row(cells, "td") for cells in table.rows[:_MOST_ROWS])
    omitted = len(table.rows) - _MOST_ROWS
    after = (
        f'<p class="note">{omitted:,} rows more are left out: see --json.</p>\n'
        if omitted > 0
        else ""
    )
    inner = f"<table>\n<thead>{head}</thead>\n<tbody>\n{body}</tbody></table>"
    return f'<div class="table">{inner}</div>\n{after}'
