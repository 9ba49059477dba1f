"""The files of a long measurement, which continues where it stopped when it is started again.

NAME.csv has its rows, each appended as soon as it is measured; NAME.json has its conditions.
NAME.txt and NAME.md are generated from these two on request.
"""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_type_hints

from lotus.common.storage import files

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RESULTS = Path(__file__).parent / "results"

R = TypeVar("R", bound="DataclassInstance")


class Measurements(Generic[R]):
    """`kind`: the dataclass of the rows; its fields are text or numbers, or None."""

    def __init__(self, folder: Path, name: str, kind: type[R]) -> None:
        self.folder, self.name, self.kind = folder, name, kind
        self.csv, self.json = folder / f"{name}.csv", folder / f"{name}.json"

    def read(self) -> list[R]:
        """Return the rows, without an incomplete last line."""
        if not self.csv.exists():
            return []
        kinds = get_type_hints(self.kind)
        rows = []
        with self.csv.open(newline="") as file:
            for line in csv.DictReader(line for line in file if line.endswith("\n")):
                if None not in line.values() and None not in line:
                    values = {name: value(kinds[name], word) for name, word in line.items()}
                    rows.append(self.kind(**values))
        return rows

    def write(self, rows: Sequence[R]) -> None:
        """Rewrite all rows, because an incomplete line must not be continued."""
        files.replace(self.csv, self._lines(rows, header=True))

    def append(self, *rows: R) -> None:
        with self.csv.open("a", newline="") as file:
            file.write(self._lines(rows))

    def _lines(self, rows: Sequence[R], header: bool = False) -> str:
        buffer = io.StringIO(newline="")
        writer = csv.DictWriter(buffer, [field.name for field in fields(self.kind)])
        if header:
            writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
        return buffer.getvalue()

    def known(self) -> Any:
        """Return the content of NAME.json."""
        return json.loads(self.json.read_text())

    def know(self, conditions: Any) -> None:
        files.replace(self.json, json.dumps(conditions, indent=1) + "\n")

    def throw_away(self) -> None:
        self.csv.unlink(missing_ok=True)
        self.json.unlink(missing_ok=True)

    def must_be_of(self, was: Any, conditions_now: Any) -> None:
        """Exit if the existing rows were measured under other conditions."""
        if was != conditions_now:
            raise SystemExit(
                f"{self.csv} was measured otherwise (see {self.json}): --fresh throws it away, "
                "-o FOLDER keeps it, --report only shows it"
            )

    def show(self, text: str, markdown: str, drawn: bool) -> None:
        """Write and print the tables; `drawn`: whether there is a picture as well."""
        files.replace(self.folder / f"{self.name}.txt", text)
        files.replace(self.folder / f"{self.name}.md", markdown)
        print(text)
        print(f"in {self.folder}: {self.name}.csv, .json, .txt, .md", end="")
        print(", .png, .svg" if drawn else "; no matplotlib")


def value(kind: Any, word: str) -> Any:
    """Convert a word to the type of its field."""
    if kind is str:
        return word
    return (float if kind in (float, float | None) else int)(word) if word else None


def commits_and_days(rows: Sequence[Any]) -> str:
    """Return the commits and the range of days of the rows."""
    days = sorted({row.at[:10] for row in rows if row.at})
    commits = sorted({row.commit for row in rows if row.commit})
    return f"commit {', '.join(commits)}; {' to '.join(dict.fromkeys((*days[:1], *days[-1:])))}"


@contextmanager
def stoppable() -> Iterator[None]:
    """End the measurement with one line on Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit("\nstopped; the same command goes on, --report shows it so far") from None
