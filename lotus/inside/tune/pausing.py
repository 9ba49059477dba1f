"""Prepares a paused program for trials: its workers become idle, its ranks share the cores."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from ..common.control import deferred_interrupts
from ..common.guard import of_the_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# Variables with the number of ranks on this machine: torchrun, Open MPI, MPICH, Intel MPI.
LOCAL_WORLDS = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
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


def take_share(environ: Mapping[str, str]) -> list[tuple[int, set[int]]]:
    """Bind all threads to this rank's share of the cores; return their previous affinities."""
    ranks = number_in(environ, LOCAL_WORLDS) or 1
    if ranks < 2:
        return []
    before = []
    cores = sorted(os.sched_getaffinity(0))
    with suppress(OSError):
        if set(cores) < os.sched_getaffinity(os.getppid()):
            return []  # the launcher has bound each rank to its own
    share = max(len(cores) // ranks, 1)
    mine = cores[:share]
    for name in os.listdir("/proc/self/task"):
        with suppress(OSError):
            task = int(name)
            before.append((task, os.sched_getaffinity(task)))
            os.sched_setaffinity(task, mine)
    return before


def number_in(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        text = environ.get(name) or ""
        if text.isascii() and text.isdecimal() and len(text) < 7:
            return int(text)
    return None
