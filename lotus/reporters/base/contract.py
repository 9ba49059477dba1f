"""The contract of reporters: the functions that a module of lotus/reporters/ may define.

A reporter receives a computed summary, and computes nothing itself. It defines one or more of these
functions, under these names; further inputs are keyword arguments.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from lotus.reporters.base.page import Section

if TYPE_CHECKING:  # rich is imported when there is something to print
    from rich.console import Console


class Terminal(Protocol):
    """`write`: prints the report."""

    def __call__(self, console: "Console", summary: Any, /) -> None: ...


class Document(Protocol):
    """`document`: the values that `--json` prints."""

    def __call__(self, summary: Any, /) -> dict[str, Any]: ...


class Heading(Protocol):
    """`heading`: the title of a page, and the text below it."""

    def __call__(self, summary: Any, /) -> Section: ...


class PageSections(Protocol):
    """`sections`: the sections of a page, with charts and tables."""

    def __call__(self, summary: Any, /) -> list[Section]: ...


class Csv(Protocol):
    """`csv`: a table as comma-separated values."""

    def __call__(self, summary: Any, /) -> str: ...


class TableRows(Protocol):
    """`rows`: a table as cells of text, without its columns."""

    def __call__(self, summary: Any, /) -> Sequence[Sequence[str]]: ...


CONTRACT: dict[str, type[Any]] = {
    "write": Terminal,
    "document": Document,
    "heading": Heading,
    "sections": PageSections,
    "csv": Csv,
    "rows": TableRows,
}
