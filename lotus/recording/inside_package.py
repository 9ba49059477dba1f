"""Imports the code that runs inside traced programs, `lotus.inside`, into this process."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from lotus.common.errors import LotusError

_INSIDE = Path(__file__).parents[1] / "inside"


def load_inside() -> ModuleType:
    """Return its tracer's module, under its private name. Raises LotusError."""
    if "_lotus_inside" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "_lotus_inside", _INSIDE / "__init__.py", submodule_search_locations=[str(_INSIDE)]
        )
        if spec is None or spec.loader is None:
            raise LotusError(f"{_INSIDE} is incomplete; install lotus-profiler again")
        module = importlib.util.module_from_spec(spec)
        sys.modules["_lotus_inside"] = module
        spec.loader.exec_module(module)
    return importlib.import_module("_lotus_inside.trace.tracer")
