"""Finds and loads alternatives: see lotus/inside/alternatives/__init__.py."""

from __future__ import annotations

import importlib.util
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "alternatives")
_PACKAGE = f"{__name__.rpartition('.common.')[0]}.alternatives"


class KnownOperation:
    """An operation in the form that alternatives expect, without inputs."""

    inputs: Sequence[Any] = ()

    def __init__(self, transform: Any) -> None:
        self.transform = transform
        self.name = str(getattr(transform, "__name__", type(transform).__name__))

    def run(self, value: Any) -> Any:
        """Call the operation."""
        return self.transform(value)


def names(folder: str = FOLDER) -> list[str]:
    """Return the names of all alternatives."""
    parts = (os.path.splitext(file) for file in sorted(os.listdir(folder)))
    return [name for name, ending in parts if ending == ".py" and not name.startswith("_")]


def load(name: str, folder: str = FOLDER) -> Any:
    """Return an alternative as a module. Raises ImportError, and what its file raises."""
    path = os.path.join(folder, f"{name}.py")
    # From another folder, too, it imports what files share from ours, by a relative import.
    spec = importlib.util.spec_from_file_location(f"{_PACKAGE}.{name}", path)
    if name not in names(folder) or spec is None or spec.loader is None:
        raise ImportError(name=path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def code(names: Iterable[str], folder: str = FOLDER) -> list[bytes]:
    """Return the code of alternatives and of what they share. Raises OSError."""
    files = []
    for name in ("_operations", *names):
        with open(os.path.join(folder, f"{name}.py"), "rb") as file:
            files.append(file.read())
    return files


def in_turn(functions: Iterable[Any], value: Any) -> Any:
    """Apply functions of one value, one after the other."""
    for function in functions:
        value = function(value)
    return value
