"""The page of causes has each kind, and is as the table of causes says."""

import importlib.util
from pathlib import Path

from lotus.analysis.verdict.causes import CAUSES
from lotus.analysis.verdict.causes.explanations import EXPLANATIONS

ROOT = Path(__file__).parents[3]


def test_each_kind_is_explained() -> None:
    assert set(EXPLANATIONS) == {row.kind for row in CAUSES}


def test_the_page_is_as_the_table_says() -> None:
    spec = importlib.util.spec_from_file_location("causes_tool", ROOT / "tools" / "causes.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    text = (ROOT / "docs" / "causes.md").read_text("utf-8")
    assert text == tool.page(text), "run: python tools/causes.py"
    assert all(f"| `{row.kind}`: " in text for row in CAUSES)
