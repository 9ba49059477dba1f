"""Every reporter follows the contract of lotus/reporters/base/contract.py."""

import importlib
import inspect
import pkgutil

import pytest

import lotus.reporters
from lotus.reporters.base.contract import CONTRACT

MODULES = [
    module.name
    for module in pkgutil.walk_packages(lotus.reporters.__path__, "lotus.reporters.")
    if not module.ispkg
]
FUNCTIONS = [
    (name, kind)
    for name in MODULES
    for kind in CONTRACT
    if inspect.isfunction(getattr(importlib.import_module(name), kind, None))
]


def test_the_reporters_are_there() -> None:
    assert {kind for _, kind in FUNCTIONS} >= {"write", "document", "heading", "sections", "csv"}
    assert len({name for name, _ in FUNCTIONS}) > 8


@pytest.mark.parametrize(("name", "kind"), FUNCTIONS)
def test_the_signature_is_that_of_the_contract(name: str, kind: str) -> None:
    function = getattr(importlib.import_module(name), kind)
    own = inspect.signature(function)
    expected = inspect.signature(CONTRACT[kind].__call__)
    positional = [
        parameter
        for parameter in own.parameters.values()
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    wanted = list(expected.parameters.values())[1:]
    assert len(positional) == len(wanted)
    if kind == "write":
        assert positional[0].name == "console"
    assert _shown(own.return_annotation) == _shown(expected.return_annotation)


def _shown(annotation: object) -> str:
    """An annotation without its modules, whether it is evaluated or still a string."""
    return str(annotation).replace("lotus.reporters.base.page.", "").replace("typing.", "")
