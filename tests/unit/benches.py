"""Modules of tools/bench by name, and a machine, for their tests."""

import importlib
from pathlib import Path
from types import ModuleType

BENCH = Path(__file__).parents[2] / "tools" / "bench"
FACTS = {"cpu": "a CPU", "cpus": 2, "kernel": "6", "python": "3.11", "torch": "2"}


def bench(name: str) -> ModuleType:
    return importlib.import_module(f"tools.bench.{name}")
