"""Measures the peak memory of a function from the kernel's counts of pages.

Freed memory is first returned to the kernel, so that its pages count again. The counts are those of
the process, and may be off by a few pages per core.
"""

from __future__ import annotations

import ctypes

from ..common.guard import quiet

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_STATUS, _CLEAR = "/proc/self/status", "/proc/self/clear_refs"
_RESET_PEAK = "5"


class PeakMemory:
    """Measures calls; results are unknown if the kernel or the C library does not support it."""

    def __init__(self) -> None:
        self._trim: Any = None
        with quiet(OSError, AttributeError):
            self._trim = ctypes.CDLL(None).malloc_trim  # glibc

    def of(self, function: Callable[[Any], Any], value: Any) -> int | None:
        """Return the peak memory in bytes of `function(value)`, including its result; None:
        unknown.
        """
        if self._trim is None:
            return None
        self._trim(0)
        with quiet(OSError, ValueError):
            with open(_CLEAR, "w") as file:
                file.write(_RESET_PEAK)
            before = _read("VmRSS:")
            result = function(value)
            peak = _read("VmHWM:")
            del result
            return max(0, peak - before)
        return None


def _read(name: str) -> int:
    with open(_STATUS) as file:
        for line in file:
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    raise ValueError(name)
