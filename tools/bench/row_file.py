"""Rows of a measurement in a file, a JSON object a line; a restart continues after the last."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any


class RowFile:
    """`path`: of the file, which need not exist yet; None keeps no rows."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def read(self) -> list[dict[str, Any]]:
        """Return the rows in order."""
        if self.path is None or not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def by(self, *names: str) -> dict[tuple[Any, ...], dict[str, Any]]:
        """Return the rows by their values of these fields; the last of each counts."""
        return {tuple(row[name] for name in names): row for row in self.read()}

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row."""
        if self.path is not None:
            with self.path.open("a") as stream:
                stream.write(json.dumps(row) + "\n")


def printed(
    rows: Iterable[dict[str, Any]], line_of: Callable[[dict[str, Any]], str]
) -> list[dict[str, Any]]:
    """Print the line of each row as soon as it is available; return all."""
    done = []
    for row in rows:
        done.append(row)
        print(line_of(row), flush=True)
    return done
