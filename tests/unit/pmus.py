"""CPUs and counts for tests of their events and metrics."""

import pandas as pd

from native_map.events import TABLES
from native_map.events.cpu import Cpu

UARCHES = sorted(TABLES)


def cpu_of(uarch: str, stepping: int = 0, virtual: bool = False) -> Cpu:
    return Cpu("", 0, 0, stepping, "", "", uarch, virtual)


def row(**counts: float) -> pd.DataFrame:
    return pd.DataFrame({name: [value] for name, value in counts.items()})
