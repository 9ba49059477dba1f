"""Hooks for a fetch that runs beside another thread's fetch, and so has its own rows.

They are slower than those of the thread that uses the recorder's rows, and only needed in programs
that fetch in several threads at once.
"""

from __future__ import annotations

import threading

from ..common.clocks import clock
from ..common.guard import hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .fetch_state import Fetch


def sample(fetch: Fetch, function: Callable[..., Any], *args: Any) -> Any:
    """Call the function that gets a sample, and time it."""
    rows, outer, is_sample = fetch.rows, fetch.sample_start, True
    before, start = len(rows.ops), clock()
    try:
        fetch.sample_start = start
        return function(*args)
    except StopIteration:
        is_sample = len(rows.ops) > before  # the call that finds the end returns no sample
        raise
    finally:
        fetch.sample_start = outer
        if is_sample:
            rows.samples.extend((start, clock() - start, len(rows.ops) // 3))


hook(sample)


def operation(fetch: Fetch, start: int, end: int, number: int, cpu: tuple[int, ...]) -> None:
    """Add an operation to the current sample; if it began outside the sample, to the fetch."""
    rows = fetch.rows
    if 0 < fetch.sample_start <= start:
        rows.ops += (start, end, number)
        rows.ops_cpu += cpu
    else:
        position = len(rows.samples) // 3
        row = (start, end - start, number, threading.get_native_id(), position, 0)
        rows.loose.append((row, cpu))
