"""What tests of tools/bench share: its modules, which find each other as scripts do, a machine."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

BENCH = Path(__file__).parents[2] / "tools" / "bench"
FACTS = {"cpu": "a CPU", "cpus": 2, "kernel": "6", "python": "3.11", "torch": "2"}


def bench(name: str) -> ModuleType:
    if str(BENCH) not in sys.path:
        sys.path.insert(0, str(BENCH))
    return importlib.import_module(name)
