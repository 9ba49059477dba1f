"""Reads through `perf script` what our own reader does not: slower, and `Recording` says so."""

from pathlib import Path
from typing import TYPE_CHECKING

from native_map.errors import Unusable

if TYPE_CHECKING:
    from native_map.perf_data import Recording


def read_script(path: Path, reason: str, perf: str) -> "Recording":
    """The recording as perf prints it."""
    raise Unusable(f"{path} cannot be read: {reason}; {perf} is not asked yet")
