"""The interface between the formats of an export: descriptions of formats, requests for exports."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from lotus.common.terminal.progress import Advance

if TYPE_CHECKING:
    from lotus.reading.run import Run


class Format(NamedTuple):
    """A row of the table of formats in lotus/export/formats.py.

    `module` is the file in lotus/export/ that writes the format: a FileFormat, or a
    DirectoryFormat if there is no `ending`.
    """

    name: str
    module: str
    about: str  # a line for --help
    ending: str  # of the file that it makes, "" for a directory
    next: str  # {path} is the file, quoted for a shell; {batches} a table in it, for Python
    text: bool = True  # whether it may be written to a terminal
    options: frozenset[str] = frozenset()  # fields of Request that only some formats use
    needs: str = ""  # a package that must be installed


@dataclass(frozen=True)
class ExportRequest:
    """The requested export; `output` None means standard output."""

    format: str
    output: Path | None = None
    torch_trace: Path | None = None
    weight: str | None = None
    force: bool = False


class FileFormat(Protocol):
    """A module that makes a file."""

    def pieces(
        self, run: "Run", request: ExportRequest, notes: list[str], progress: Advance
    ) -> Iterator[bytes | memoryview]:
        """Yield the content in pieces; add to `notes` what could not be shown."""


class DirectoryFormat(Protocol):
    """A module that makes a directory."""

    def fill(self, run: "Run", request: ExportRequest, notes: list[str], progress: Advance) -> None:
        """Make the directory at `request.output`; add to `notes` what could not be shown."""


@dataclass
class Export:
    """The written file, the command to type next, and remarks."""

    path: Path | None  # None: standard output
    next: str
    notes: list[str]
