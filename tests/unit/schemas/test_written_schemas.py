"""Schemas that tools/schemas.py writes are as the code declares them."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lotus.analysis.verdict.causes import BY_KIND, CAUSES
from lotus.schemas import documents

TOOL = Path(__file__).parents[3] / "tools" / "schemas.py"
AGAIN = "run: python tools/schemas.py"


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("schemas_tool", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cause() -> Any:
    verdict = documents.schema("report")["$defs"]["verdict"]
    return verdict["properties"]["causes"]["items"]["properties"]


@pytest.mark.parametrize("name", sorted(tool().DOCUMENTS))
def test_a_schema_is_the_one_of_its_class(name: str) -> None:
    assert documents.text(name) == tool().of_classes(name), AGAIN


def test_the_schema_has_the_kinds_of_the_table() -> None:
    kinds = list(dict.fromkeys(row.kind for row in CAUSES))
    assert cause()["kind"]["enum"] == kinds
    assert set(BY_KIND) == set(kinds)


def test_the_schema_has_the_evidence_of_the_table() -> None:
    facts = {name: text for row in CAUSES for name, text in row.facts.items()}
    evidence = cause()["evidence"]["properties"]
    assert {name: field["description"] for name, field in evidence.items()} == facts


def test_the_report_has_all_causes() -> None:
    text = documents.text("report")
    assert tool().with_causes(text) == text, AGAIN
    less = text.replace('"slow-worker",', "")
    assert less != text
    assert tool().with_causes(less) == text


def test_what_is_up_to_date_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tool()
    for name in (*module.DOCUMENTS, module.REPORT, "tune"):
        (tmp_path / f"{name}.json").write_text(documents.text(name), encoding="utf-8")
    (tmp_path / "sweep.json").write_text("{}\n", encoding="utf-8")
    module.FOLDER = tmp_path
    module.main()
    assert capsys.readouterr().out == f"{tmp_path / 'sweep.json'}\n"
    assert (tmp_path / "sweep.json").read_text(encoding="utf-8") == documents.text("sweep")
