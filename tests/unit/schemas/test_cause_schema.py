"""The schema of the report names the causes of the table and their evidence, and no others."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from lotus.analysis.verdict.causes import BY_KIND, CAUSES
from lotus.schemas import documents

TOOL = Path(__file__).parents[3] / "tools" / "cause_schema.py"


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cause_schema", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cause() -> Any:
    verdict = documents.schema("report")["$defs"]["verdict"]
    return verdict["properties"]["causes"]["items"]["properties"]


def test_the_schema_has_the_kinds_of_the_table() -> None:
    kinds = list(dict.fromkeys(row.kind for row in CAUSES))
    assert cause()["kind"]["enum"] == kinds
    assert set(BY_KIND) == set(kinds)


def test_the_schema_has_the_evidence_of_the_table() -> None:
    facts = {name: text for row in CAUSES for name, text in row.facts.items()}
    evidence = cause()["evidence"]["properties"]
    assert {name: field["description"] for name, field in evidence.items()} == facts


def test_the_tool_that_writes_it_has_nothing_to_change() -> None:
    text = documents.text("report")
    assert tool().updated(text) == text, "run: python tools/cause_schema.py"
    less = text.replace('"slow-worker",', "")
    assert less != text
    assert tool().updated(less) == text
