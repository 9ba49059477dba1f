"""Waits until the workers of a paused program are idle."""

from __future__ import annotations

import time

from ...common.control import deferred_interrupts
from ...common.guard import of_the_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_IDLE_S = 30.0  # time for the program's own workers to become idle


def wait_until_idle(iterator: Any) -> list[str]:
    """Wait until the program's workers have finished all requested batches; return notes."""
    if not getattr(iterator, "_num_workers", 0):
        return []
    until = time.perf_counter() + _IDLE_S
    try:
        while time.perf_counter() < until:
            ready = iterator._worker_result_queue.qsize()
            if iterator._data_queue is not iterator._worker_result_queue:
                ready += iterator._data_queue.qsize()
            ready += sum(len(info) == 2 for info in iterator._task_info.values())
            if ready >= len(iterator._task_info) or not all(
                worker.is_alive() for worker in iterator._workers
            ):
                return []
            with deferred_interrupts.breakable():
                time.sleep(0.005)
    except (AttributeError, NotImplementedError, ValueError, OSError) as error:
        if of_the_program(error):  # as TimeoutError, which is an OSError
            raise
        time.sleep(0.5)
    return ["the program's own workers were not idle when the trials began"]
