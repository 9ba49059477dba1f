"""JSON Schemas (draft 2020-12) of the documents that `--json` prints, and of lotus's own files.

Each is a file NAME.json here; its title is the command that prints such a document, or the file.
A field that its schema does not have is a defect: tests/unit/schemas/test_schemas.py holds real
documents against them. Fields that depend on what was recorded are not required, all others are.
Within one `schema` (the number in each document) fields are only ever added.
"""

import json
from pathlib import Path
from typing import Any

from lotus.common.errors import LotusError

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Return the names of all schemas, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.json"))


def text(name: str) -> str:
    """Return the schema of that name as JSON text; "run.json" is "run". Raises LotusError."""
    known = names()
    wanted = name.removesuffix(".json")
    if wanted not in known:
        raise LotusError(f"there is no schema {name}; there are: {', '.join(known)}")
    return (FOLDER / f"{wanted}.json").read_text(encoding="utf-8")


def schema(name: str) -> dict[str, Any]:
    """Return the same as a dictionary. Raises LotusError."""
    content: dict[str, Any] = json.loads(text(name))
    return content
