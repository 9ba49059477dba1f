"""Modules of the standard library that torch does not import.

Imported by name, they would be those of the program if it has a file of that name: the folder of a
script is searched first. So they are taken from Python's own folder, and `sys.modules` stays as the
program knows it.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

_FOLDER = os.path.dirname(os.__file__)


def load(name: str) -> "ModuleType":
    """Return a module of the standard library. Raises ImportError."""
    folders = [_FOLDER, os.path.join(_FOLDER, "lib-dynload")]
    spec = importlib.machinery.PathFinder.find_spec(name, folders)
    if spec is None or spec.loader is None:
        return importlib.import_module(name)  # a built-in module, which is always found first
    imported = sys.modules.get(name)
    if imported is not None and getattr(imported, "__file__", None) == spec.origin:
        return imported
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


resource = load("resource")
