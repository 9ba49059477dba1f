"""Writes the kinds of causes and their evidence into the schema of the report.

python tools/cause_schema.py    # after a change of a row in lotus/analysis/verdict/causes/
"""

import json
import re
from pathlib import Path

from lotus.analysis.verdict.causes import CAUSES

SCHEMA = Path(__file__).parents[1] / "lotus" / "schemas" / "report.json"
_CAUSE = '"description": "One cause."'  # what precedes both places
_KINDS = re.compile(r'("enum": \[)(.*?)(\n *\])', re.DOTALL)
_FACTS = re.compile(
    r'("description": "Numbers that it stands on.*?"properties": \{)(.*?)(\n *\},\n *"additional)',
    re.DOTALL,
)


def updated(schema: str) -> str:
    """The text of the schema with the kinds and the evidence of the table."""
    kinds = [json.dumps(kind) for kind in dict.fromkeys(row.kind for row in CAUSES)]
    facts: dict[str, str] = {}
    for row in CAUSES:
        for name, description in row.facts.items():
            if facts.setdefault(name, description) != description:
                raise ValueError(f"evidence {name} has two descriptions")
    fields = [
        f'{json.dumps(name)}: {{"description": {json.dumps(text)}, "type": ["number", "null"]}}'
        for name, text in facts.items()
    ]
    before, separator, cause = schema.partition(_CAUSE)
    cause = _replaced(_FACTS, _replaced(_KINDS, cause, kinds), fields)
    return before + separator + cause


def _replaced(place: re.Pattern[str], text: str, lines: list[str]) -> str:
    inside = ",".join(f"\n{' ' * 18}{line}" for line in lines)
    return place.sub(lambda match: match[1] + inside + match[3], text, count=1)


if __name__ == "__main__":
    SCHEMA.write_text(updated(SCHEMA.read_text(encoding="utf-8")), encoding="utf-8")
