"""The schemas of lotus's own files say what the classes of their readers declare."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from lotus.schemas import documents

TOOL = Path(__file__).parents[3] / "tools" / "document_schemas.py"


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("document_schemas", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", sorted(tool().DOCUMENTS))
def test_a_schema_is_the_one_of_its_class(name: str) -> None:
    assert documents.text(name) == tool().text(name), "type: python tools/document_schemas.py"
