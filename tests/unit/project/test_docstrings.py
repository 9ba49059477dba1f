"""Every public function, class and method says what it does, in which units, and what it raises."""

import ast
import functools
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lotus
import lotus.api
import lotus.plot
import lotus.reading.run
import lotus.recording.session
import lotus.recording.span
import lotus.settings.tuned_file
import lotus.sweep.sweep_record
import lotus.tune.search.outcome.result
import lotus.tune.session.local_tuning

ROOT = Path(lotus.__file__).parents[1]
# Inside is the user's program; commands and workloads are programs, not for import.
OTHERS = (
    "lotus/inside/",
    "lotus/commands/",
    "lotus/workloads/",
)
API = (
    lotus.plot, lotus.api, lotus.reading.run, lotus.recording.session, lotus.settings.tuned_file,
    lotus.recording.span, lotus.sweep.sweep_record, lotus.tune.session.local_tuning,
    lotus.tune.search.outcome.result,
)  # fmt: skip
UNITS = {
    r"_ns$": r"\bns\b|_ns\b|nanosecond",
    r"_s$|^seconds$": r"\bsecond|_s\b|samples/s",
    r"bytes$": r"\bbytes\b|_bytes\b",
    r"^budget$": r"\bsecond",
}
_ERRORS = {"LotusError", "UnusableError"}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Defined = Function | ast.ClassDef


def files() -> list[str]:
    paths = [*ROOT.glob("lotus/**/*.py"), *ROOT.glob("native_map/**/*.py")]
    names = sorted(str(path.relative_to(ROOT)) for path in paths)
    return [name for name in names if not name.startswith(OTHERS)]


def public(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, Defined]]:
    for node in body:
        if isinstance(node, Defined) and not node.name.startswith("_"):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body, f"{prefix}{node.name}.")


@functools.cache
def everything() -> dict[str, dict[str, Defined]]:
    return {
        name: dict(public(ast.parse((ROOT / name).read_text(encoding="utf-8")).body))
        for name in files()
    }


def test_no_text_stands_by_itself() -> None:
    """The second line of a text in two lines is lost where its parentheses are missing."""
    lost = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("lotus", "native_map", "tools")
        for path in (ROOT / folder).rglob("*.py")
        for parent in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for body in (getattr(parent, name, ()) for name in ("body", "orelse", "finalbody"))
        for node in (body[1:] if isinstance(body, list) else ())
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.JoinedStr)
        if not isinstance(node.value, ast.Constant) or isinstance(node.value.value, str)
    ]
    assert lost == []


def test_everything_public_has_a_docstring() -> None:
    known = everything()
    # What a protocol or another class of a kind documents, its other classes need not repeat.
    documented = {
        name.rpartition(".")[2]
        for of in known.values()
        for name, node in of.items()
        if "." in name and ast.get_docstring(node)
    }
    silent = [
        f"{file}: {name}"
        for file, of in known.items()
        for name, node in of.items()
        if not ast.get_docstring(node)
        and not ("." in name and name.rpartition(".")[2] in documented)
    ]
    assert silent == []


def raised(node: Defined) -> set[str]:
    """The errors for users that a function raises itself."""
    names = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Raise) and isinstance(inner.exc, ast.Call):
            name = getattr(inner.exc.func, "id", "")
            names |= {name} & _ERRORS
    return names


@pytest.mark.parametrize("package", ["lotus", "native_map"])
def test_errors_are_told(package: str) -> None:
    silent = []
    for file, of in everything().items():
        if not file.startswith(f"{package}/"):
            continue
        for name, node in of.items():
            if isinstance(node, ast.ClassDef):
                continue
            text = ast.get_docstring(node) or ""
            missing = [error for error in raised(node) if error not in text]
            silent += [f"{file}: {name} raises {error}" for error in missing]
    assert silent == []


def functions(module: Any) -> Iterator[tuple[str, str, Any]]:
    """Name, all that documents it, and the function, of all public ones of a module."""
    for name, member in vars(module).items():
        if name.startswith("_") or getattr(member, "__module__", "") != module.__name__:
            continue
        if inspect.isfunction(member):
            yield name, inspect.getdoc(member) or "", member
        elif inspect.isclass(member):
            for inner, method in vars(member).items():
                if inspect.isfunction(method) and not inner.startswith("_"):
                    texts = (inspect.getdoc(method) or "", inspect.getdoc(member) or "")
                    yield f"{name}.{inner}", "\n".join(texts), method


@pytest.mark.parametrize("module", API, ids=lambda module: module.__name__)
def test_units_of_what_is_given_are_told(module: Any) -> None:
    silent = []
    for name, text, function in functions(module):
        for parameter in inspect.signature(function).parameters:
            for ending, unit in UNITS.items():
                if re.search(ending, parameter) and not re.search(unit, text):
                    silent.append(f"{name}({parameter})")
    assert silent == []


def test_tables_of_a_run_say_their_units_and_columns() -> None:
    assert "nanosecond" in (inspect.getdoc(lotus.Run) or "")
    tables = [
        (name, member)
        for name, member in vars(lotus.Run).items()
        if not name.startswith("_") and hasattr(member, "func")
    ]
    assert len(tables) > 15
    for name, table in tables:
        text = inspect.getdoc(table.func) or ""
        if "DataFrame" in str(table.func.__annotations__.get("return")):
            columns = re.findall(r"\b[a-z]+(?:_[a-z]+)*\b", text)
            assert len(columns) >= 4, name


def test_what_lotus_offers_is_documented() -> None:
    for name in lotus.__all__:
        if name != "__version__":
            assert f"lotus.{name}" in (lotus.__doc__ or ""), name
            assert inspect.getdoc(getattr(lotus, name)), name
