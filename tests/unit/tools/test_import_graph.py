"""tools/import_graph.py: floors and circles of graphs that are small enough to check by eye."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("grimp")
TOOL = Path(__file__).resolve().parents[3] / "tools" / "import_graph.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("import_graph", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_circles_are_found_however_long(tool: ModuleType) -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a", "d"}}
    assert tool.circles(graph) == [["a", "b", "c"], ["d", "e"]]
    assert tool.circles({"a": {"b"}, "b": set()}) == []


def test_a_circle_is_one_floor(tool: ModuleType) -> None:
    assert tool.floors({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == 3
    assert tool.floors({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == 2


def test_imports_of_files_are_those_of_their_packages(tool: ModuleType) -> None:
    files = {"p": set(), "p.x": {"p.q.y"}, "p.q": set(), "p.q.y": {"p.q.z"}, "p.q.z": set()}
    assert tool.between_packages(files, {"p", "p.q"}) == {"p": {"p.q"}, "p.q": set()}
